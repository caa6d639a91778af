import type { ServerResponse } from 'node:http';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { DEMO_API } from '../apis/demo-models.ts';
import { type DearerFields, priceFactor, usdText, withSearch } from '../apis/prices.ts';
import type { Usage } from '../contract/chat.ts';
import { describeFailure } from '../errors.ts';
import type { Admission, CallOutcome, FailedAttempt } from '../keys/admission.ts';
import type { Target } from './model-plan.ts';

/** Records one call from its admission to its end, and settles it exactly once. */
export interface CallRecord extends AttemptRecord {
  dropped: readonly string[];
  /** The request after masking by guardrails. It is stored instead of the original one. */
  maskedRequest?: string;
  /** Whether we marked parts of the prompt for the upstream's cache. */
  promptMarked?: boolean;
  /** Whether the request asks for a web search, which chat completions do not count. */
  asksForSearch?: boolean;
  /** What APIs used for tries that failed. It counts if the whole call fails. */
  spent?: MeasuredUsage;
  /** Fields of the request that make its tokens dearer. */
  dearer?: DearerFields | undefined;
  /** Returns the usage, with the search that the API did not count. */
  counted(usage: Usage): Usage;
  /** Called when the first event of the response has arrived. */
  firstToken(): void;
  /** Returns the headers that describe the call to its caller. */
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
      // Known at this point only if the response is complete.
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
        model: model.startsWith(`${DEMO_API}/`) ? withoutOptions(model) : model,
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
        ...(record.dearer !== undefined && { priceFactor: priceFactor(record.dearer, record.dropped) }),
        ...(content !== undefined && { content: { ...content, request: record.maskedRequest ?? content.request } }),
      });
      if (outcome === 'ok' || outcome === 'cached') costNano = cost;
    },
  };
  return record;
}

/** Adds what an API used for a try, or a part of it, that failed. */
export function addSpent(record: Pick<CallRecord, 'spent'>, usage: Usage, estimated: boolean): void {
  const { spent } = record;
  record.spent =
    spent === undefined
      ? { usage, estimated }
      : { usage: sumOf(spent.usage, usage) as Usage, estimated: estimated || spent.estimated };
}

/** Adds figures member by member, because each kind of token has its own price. */
function sumOf(before: unknown, more: unknown): unknown {
  if (typeof before === 'number' && typeof more === 'number') return before + more;
  if (typeof before !== 'object' || before === null || typeof more !== 'object' || more === null) return more ?? before;
  const sum: Record<string, unknown> = { ...before };
  for (const [name, value] of Object.entries(more)) sum[name] = sumOf(sum[name], value);
  return sum;
}

const SEARCH = 'web_search_options';

/** Returns the name of the model, without the options of a demo model. */
function modelOf(target: AttemptRecord['target']): string {
  if (target === undefined) return '';
  return target.apiId === DEMO_API ? withoutOptions(target.model) : target.model;
}

/** The options of a demo model are not part of its name: usage counts `demo/echo?delay=200` as `demo/echo`. */
function withoutOptions(model: string): string {
  return model.split('?', 1)[0] ?? '';
}

const MAX_NAMES = 32;
const MAX_HEADER_LENGTH = 1000;
const INVISIBLE = /[^\x20-\x7e]/;

/** Returns text that a header can contain, for names that the caller chose. */
function visible(text: string): string {
  if (text.length <= MAX_HEADER_LENGTH && !INVISIBLE.test(text)) return text;
  return text.slice(0, MAX_HEADER_LENGTH).replaceAll(/[^\x20-\x7e]/g, '?');
}

/**
 * Tells whether the caller still waits for the response. It has one listener at a time, for the current step. It is a class, because
 * one object is created for each call.
 */
export class CallerPresence {
  gone = false;
  /** Why the call was ended while the caller still waits; undefined if the caller has left. */
  reason: AppError | undefined = undefined;
  place = -1;
  #listener: (() => void) | undefined = undefined;

  /** Sets the listener. Calls it immediately if the caller has left already. */
  watch(listener: () => void): void {
    this.#listener = listener;
    if (this.gone) listener();
  }

  /** Ends the call. With a reason, the caller still waits and gets this error. */
  leave(reason?: AppError): void {
    if (this.gone) return;
    this.gone = true;
    this.reason = reason;
    this.#listener?.();
  }

  /** Returns the error of a call that has ended. */
  failure(): AppError {
    return this.reason ?? new AppError('CALL_CANCELLED');
  }
}

/** Watches the connection of an HTTP request: when it closes, the caller has left. */
export function watchCaller(response: ServerResponse): CallerPresence {
  const presence = new CallerPresence();
  if (response.destroyed) presence.leave();
  else response.once('close', () => presence.leave());
  return presence;
}

/** Returns the content that is stored for a failed call: the request, and the error that its caller got. */
export function failedContent(body: Buffer | string | undefined, error: unknown): Pick<CallOutcome, 'content'> {
  if (body === undefined) return {};
  return { content: { request: String(body), answer: JSON.stringify(describeFailure(error).body) } };
}

/** Ends a call: releases its lease on the target, and settles it. */
export type FinishCall = (end: Parameters<CallRecord['settle']>[0] & { readonly error?: unknown }) => void;

/** `estimated`: Trestle counted the tokens, because the upstream sent no usage. */
export interface MeasuredUsage {
  readonly usage: Usage;
  readonly estimated: boolean;
}

/** The attempts so far, for the caller and for metering. */
export interface AttemptRecord {
  attempts: number;
  /** Created with the first failed try. */
  failures?: FailedAttempt[];
  target: Pick<Target, 'apiId' | 'model'> | undefined;
}
