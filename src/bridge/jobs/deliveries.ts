import {
  ATTEMPT_MS,
  type AttemptReport,
  type CallbackPost,
  postEvent,
} from '../../platform/callbacks/callback-post.ts';
import { withinTime } from '../../platform/clock/clock.ts';
import { createRounds } from '../../platform/queue/batcher.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { JobDeliveryRow, JobRow } from '../storage/bridge-schema.ts';
import type { JobDeliveryStore, JobStore } from '../storage/job-store.ts';
import { outcomeOf, toRecord } from './job-record.ts';

/** Sends the webhooks and cards of ended jobs. */
export interface Deliveries {
  /** Sends what is due. */
  look(): Promise<void>;
  /** Begins no further attempts. Running ones get a moment to end; the rest is sent after the next start. */
  stop(): Promise<void>;
}

/** One attempt. Never rejects. */
export type SendDelivery = (job: JobRow, delivery: JobDeliveryRow, signal: AbortSignal) => Promise<AttemptReport>;

interface DeliveriesOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly store: JobDeliveryStore;
  readonly jobs: Pick<JobStore, 'find'>;
  readonly senders: Readonly<Record<JobDeliveryRow['kind'], SendDelivery>>;
}

/**
 * The pauses before the second and the third attempt. A card is sent once, because a receiver could not tell a
 * second one from the first.
 */
const PAUSES_MS: Readonly<Record<JobDeliveryRow['kind'], readonly number[]>> = { webhook: [2000, 10_000], card: [] };
const AT_ONCE = 32;
/** An attempt without a heartbeat for this long has ended with its bridge. */
const ATTEMPT_LIMIT_MS = ATTEMPT_MS + 20_000;
/** The longest possible wait. A delivery that is due later was scheduled before the clock was set back. */
const MAX_WAIT_MS = 2 * ATTEMPT_LIMIT_MS;
const STOP_MS = 2000;

export function createDeliveries({ store, jobs, senders, clock, logger }: DeliveriesOptions): Deliveries {
  const underWay = new Map<string, Promise<void>>();
  const timers = new Set<() => void>();
  const stopped = new AbortController();
  const rounds = createRounds(beginDue);
  let isStopping = false;

  async function beginDue(): Promise<void> {
    try {
      const room = AT_ONCE - underWay.size;
      if (isStopping || room <= 0) return;
      const now = clock.now();
      for (const delivery of await store.due(now, now + MAX_WAIT_MS, room)) {
        if (underWay.has(delivery.id)) continue;
        const work = attempt(delivery)
          .catch((error: unknown) => logger.warn({ err: error, jobId: delivery.job_id }, 'a delivery has to wait'))
          .finally(() => {
            underWay.delete(delivery.id);
            void rounds.look();
          });
        underWay.set(delivery.id, work);
      }
    } catch (error) {
      logger.warn({ err: error }, 'what is to be delivered could not be looked for');
    }
  }

  async function attempt(delivery: JobDeliveryRow): Promise<void> {
    const { job_id: jobId, kind, attempts } = delivery;
    const pauses = PAUSES_MS[kind];
    const job = await jobs.find(jobId);
    // The last attempt ended with its bridge. Whether it arrived is not known, and there is no further attempt.
    if (job === undefined || attempts > pauses.length) return store.finish(delivery, false);
    const begunAt = clock.now();
    if (!(await store.beginAttempt(delivery, begunAt, begunAt + ATTEMPT_LIMIT_MS))) return;
    const { result, detail } = await senders[kind](job, delivery, stopped.signal);
    const pause = pauses[attempts];
    if (result !== 'try again' || pause === undefined) {
      if (result !== 'sent') logger.warn({ jobId, kind, attempts: attempts + 1 }, 'a delivery was given up');
      return store.finish(delivery, result === 'sent', { now: clock.now(), detail });
    }
    await store.postpone(delivery, clock.now() + pause, { now: clock.now(), detail });
    lookAfter(pause);
  }

  function lookAfter(ms: number): void {
    const cancel = clock.after(ms, () => {
      timers.delete(cancel);
      void rounds.look();
    });
    timers.add(cancel);
  }

  return {
    look: rounds.look,
    async stop() {
      isStopping = true;
      const ended = async () => {
        await rounds.underWay();
        await Promise.all(underWay.values());
      };
      await withinTime(clock, STOP_MS, ended(), () => undefined);
      stopped.abort(new Error('the bridge is stopping'));
      await ended();
      for (const cancel of timers) cancel();
    },
  };
}

interface WebhookOptions {
  readonly post: CallbackPost['post'];
  /** Empty: webhooks carry no signature. */
  secret(): string;
  now(): number;
}

/** Posts the record of an ended job. */
export function createWebhook({ post, secret, now }: WebhookOptions): SendDelivery {
  return (job, delivery, signal) =>
    postEvent(post, {
      url: job.webhook_url,
      event: 'job.finished',
      delivery: delivery.id,
      headers: { 'x-app-job-id': job.id },
      // As it was when the job ended: every attempt sends the same record.
      body: JSON.stringify(toRecord({ ...job, webhook_sent: 0, webhook_tries: 0, card_sent: 0 }, now())),
      secret: secret(),
      now: now(),
      signal,
    });
}

/** All supported chat systems accept a message of this length. */
const MAX_CHARACTERS = 3500;
const INVISIBLE_SPACE = '\u200b';

/** The Markdown text of a result card: a heading with id and status, then the outcome of the job. */
export function cardText(job: JobRow): string {
  const { result, error } = outcomeOf(job);
  const words = [result?.summary, result?.output, error].find((text) => typeof text === 'string' && text.trim() !== '');
  const heading = `**Job ${job.id}: ${job.status}**`;
  return words === undefined ? heading : `${heading}\n\n${neutralise(shorten(String(words)))}`;
}

const REPLACEMENTS: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  // A link needs both brackets, and a backslash before an escape of ours would undo the escape.
  '[': '\\[',
  ']': '\\]',
  '\\': '\\\\',
  // An @ must not become a mention.
  '@': `@${INVISIBLE_SPACE}`,
  '＠': `＠${INVISIBLE_SPACE}`,
};

/** Makes the text of an agent harmless, because anyone may have written it: no mentions, no HTML, no address behind a link text. */
export function neutralise(text: string): string {
  return text.replaceAll(/[&<>[\]\\@\uff20]/g, (character) => REPLACEMENTS[character] ?? '');
}

function shorten(text: string): string {
  return text.length <= MAX_CHARACTERS ? text : `${text.slice(0, MAX_CHARACTERS).toWellFormed()}…`;
}
