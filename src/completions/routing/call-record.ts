import type { ServerResponse } from 'node:http';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { DEMO_API } from '../apis/demo-models.ts';
import { usdText, withSearch } from '../apis/prices.ts';
import type { Usage } from '../contract/chat.ts';
import { describeFailure } from '../errors.ts';
import type { Admission, CallOutcome, FailedAttempt } from '../keys/admission.ts';
import type { Target } from './model-plan.ts';

/** Follows one call from admission to its end, which is settled exactly once. */
export interface CallRecord extends AttemptRecord {
  dropped: readonly string[];
  /** The request without what guardrails masked: what is stored instead of the one that came. */
  maskedRequest?: string;
  /** Parts of the prompt were marked for the upstream's cache by us. */
  promptMarked?: boolean;
  /** The request asks for a search of the web, which chat completions do not count. */
  asksForSearch?: boolean;
  /** What a call used: with the search that its API did not count. */
  counted(usage: Usage): Usage;
  /** The first event of the answer is there. */
  firstToken(): void;
  /** What tells the caller how its call goes. */
  headers(): Record<string, string>;
  settle(end: CallEnd): void;
  readonly keepsContent: boolean;
}

export interface CallEnd {
  readonly outcome: CallOutcome['outcome'];
  readonly status: number;
  readonly measured?: MeasuredUsage | undefined;
  readonly content?: CallOutcome['content'];
}

export interface CallRecordOptions {
  readonly admission: Admission;
  readonly model: string;
  readonly requestId: string;
  readonly operation: NonNullable<CallOutcome['operation']>;
  readonly clock: Pick<Clock, 'monotonic'>;
}

export function createCallRecord(options: CallRecordOptions): CallRecord {
  const { admission, model, requestId, operation, clock } = options;
  const startedAt = clock.monotonic();
  let firstTokenMs: number | undefined;
  let settled = false;
  let costNano: number | undefined;

  const record: CallRecord = {
    attempts: 0,
    target: undefined,
    dropped: [],
    keepsContent: admission.keepsContent,
    firstToken() {
      firstTokenMs ??= clock.monotonic() - startedAt;
    },
    headers() {
      const { target, attempts, dropped } = record;
      const headers: Record<string, string> = { ...admission.headers, 'x-attempts': String(attempts) };
      if (target !== undefined) {
        headers['x-model-api'] = target.apiId;
        headers['x-model-id'] = visible(target.model);
      }
      // Known before the headers are sent only where the response is complete by then.
      if (costNano !== undefined) headers['x-cost-usd'] = usdText(costNano);
      if (dropped.length > 0) headers['x-dropped-params'] = visible(dropped.slice(0, MAX_NAMES).join(', '));
      if (record.promptMarked === true) headers['x-prompt-cache'] = 'auto';
      return headers;
    },
    counted(usage) {
      const asked = record.asksForSearch === true && !record.dropped.includes(SEARCH);
      return withSearch(usage, record.target?.model ?? '', asked);
    },
    settle({ outcome, status, measured, content }) {
      if (settled) return;
      settled = true;
      const durationMs = clock.monotonic() - startedAt;
      const { target, attempts } = record;
      const cost = admission.settle({
        model,
        api: target?.apiId ?? '',
        upstreamModel: modelOf(target),
        usage: measured && record.counted(measured.usage),
        estimated: measured?.estimated ?? false,
        outcome,
        status,
        attempts,
        failures: record.failures,
        durationMs,
        firstTokenMs: firstTokenMs ?? durationMs,
        requestId,
        operation,
        ...(content !== undefined && { content: { ...content, request: record.maskedRequest ?? content.request } }),
      });
      if (outcome === 'ok' || outcome === 'cached') costNano = cost;
    },
  };
  return record;
}

const SEARCH = 'web_search_options';

/** The instructions for the demo model are not part of its name. */
function modelOf(target: AttemptRecord['target']): string {
  if (target === undefined) return '';
  return target.apiId === DEMO_API ? (target.model.split('?', 1)[0] ?? '') : target.model;
}

const MAX_NAMES = 32;
const MAX_HEADER_LENGTH = 1000;
const INVISIBLE = /[^\x20-\x7e]/;

/** Names that the caller chose, as a header can carry them. */
function visible(text: string): string {
  if (text.length <= MAX_HEADER_LENGTH && !INVISIBLE.test(text)) return text;
  return text.slice(0, MAX_HEADER_LENGTH).replaceAll(/[^\x20-\x7e]/g, '?');
}

/**
 * Whether somebody still waits for the answer. One listener at a time: what is under way now. A class, because there is
 * one for each call.
 */
export class CallerPresence {
  gone = false;
  /** Why the call was ended although the caller still waits; undefined when the caller has left. */
  reason: AppError | undefined = undefined;
  place = -1;
  #listener: (() => void) | undefined = undefined;

  /** Called immediately when the caller is gone already. */
  watch(listener: () => void): void {
    this.#listener = listener;
    if (this.gone) listener();
  }

  /** With a reason, the caller still waits and gets the reason as the answer. */
  leave(reason?: AppError): void {
    if (this.gone) return;
    this.gone = true;
    this.reason = reason;
    this.#listener?.();
  }

  /** What a call that nobody waits for, or that was ended, fails with. */
  failure(): AppError {
    return this.reason ?? new AppError('CALL_CANCELLED');
  }
}

/** The caller of an HTTP request leaves when its connection closes. */
export function watchCaller(response: ServerResponse): CallerPresence {
  const presence = new CallerPresence();
  if (response.destroyed) presence.leave();
  else response.once('close', () => presence.leave());
  return presence;
}

/** What is stored of a call that failed: the request, and the error that its caller got. */
export function failedContent(body: Buffer | string | undefined, error: unknown): Pick<CallOutcome, 'content'> {
  if (body === undefined) return {};
  return { content: { request: String(body), answer: JSON.stringify(describeFailure(error).body) } };
}

/** Ends a call: frees its place on the target, and settles it. */
export type FinishCall = (end: Parameters<CallRecord['settle']>[0] & { readonly error?: unknown }) => void;

/** `estimated`: counted by us. */
export interface MeasuredUsage {
  readonly usage: Usage;
  readonly estimated: boolean;
}

/** What the caller and the meter learn about the attempts so far. */
export interface AttemptRecord {
  attempts: number;
  /** Made with the first try that fails. */
  failures?: FailedAttempt[];
  target: Pick<Target, 'apiId' | 'model'> | undefined;
}
