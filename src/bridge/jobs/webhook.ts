import { createHmac } from 'node:crypto';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { JobDeliveryRow, JobRow } from '../storage/bridge-schema.ts';
import type { CallbackPost } from './callback-post.ts';
import { toRecord } from './job-record.ts';

/** What came of an attempt to tell somebody something. */
export type DeliveryResult = 'sent' | 'try again' | 'given up';

export interface WebhookOptions {
  readonly post: CallbackPost['post'];
  /** Empty: webhooks carry no signature. */
  secret(): string;
  now(): number;
}

/** One attempt to post the record of an ended job (contract/bridge 7, webhook). */
export type SendWebhook = (job: JobRow, delivery: JobDeliveryRow, signal: AbortSignal) => Promise<DeliveryResult>;

export function createWebhook({ post, secret, now }: WebhookOptions): SendWebhook {
  return async (job, delivery, signal) => {
    // As it was when the job ended: every attempt says the same.
    const body = JSON.stringify(toRecord({ ...job, webhook_sent: 0, webhook_tries: 0, card_sent: 0 }, now()));
    const headers = {
      'content-type': 'application/json',
      'x-app-event': 'job.finished',
      'x-app-job-id': job.id,
      'x-app-delivery': delivery.id,
      ...signatureHeader(secret(), Math.floor(now() / 1000), body),
    };
    try {
      return judgeStatus(await post({ url: job.webhook_url, headers, body, signal }));
    } catch (error) {
      return errorCode(error) === 'CALLBACK_URL_REFUSED' ? 'given up' : 'try again';
    }
  };
}

export function judgeStatus(status: number): DeliveryResult {
  if (status >= 200 && status < 300) return 'sent';
  return status === 408 || status === 429 || status >= 500 ? 'try again' : 'given up';
}

function signatureHeader(secret: string, time: number, body: string): Record<string, string> {
  if (secret === '') return {};
  const mark = createHmac('sha256', secret).update(`${time}.${body}`).digest('hex');
  return { 'x-app-signature': `t=${time},v1=${mark}` };
}
