import type { ServerResponse } from 'node:http';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { DEMO_API } from '../apis/demo-models.ts';
import { type DearerFields, priceFactor, type UsedAt, usdText, withSearch } from '../apis/prices.ts';
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
  /** What APIs charge for tries that failed. Created with the first one. */
  spent?: SpentTry[];
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
      const { target, attempts, spent } = record;
      const own = measured && usedAt(record, record.counted(measured.usage));
      const usedBy = spent && (own === undefined ? spent : [...spent, own]);
      const call = admission.settle({
        model: model.startsWith(`${DEMO_API}/`) ? withoutOptions(model) : model,
        api: target?.apiId ?? '',
        upstreamModel: modelOf(target),
        usage: usedBy === undefined ? own?.usage : usedBy.map(({ usage }) => usage).reduce(sumOf),
        ...(usedBy !== undefined && { usedBy }),
        estimated: measured?.estimated === true || spent?.some(({ estimated }) => estimated) === true,
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
      const isWhole = outcome === 'ok' || outcome === 'cached';
      if (isWhole && call?.priceKnown === true) costNano = call.costNano;
    },
  };
  return record;
}

/** What a try that failed used, at its target. */
export type SpentTry = UsedAt & MeasuredUsage;

/** Notes what an API used for a try, or a part of it, that failed. `dropped`: parameters that this try dropped itself. */
export function addSpent(
  record: SpendingRecord,
  usage: Usage,
  estimated: boolean,
  dropped: readonly string[] = [],
): void {
  const { target, dearer } = record;
  const used = usedAt({ target, dearer, dropped: [...record.dropped, ...dropped] }, record.counted(usage));
  record.spent ??= [];
  record.spent.push({ ...used, estimated });
}

/** What is read of a record to note what a try used. */
export type SpendingRecord = Pick<CallRecord, 'spent' | 'target' | 'dropped' | 'dearer' | 'counted'>;

/** Describes usage of the current target, with all that its price depends on. */
export function usedAt(
  { target, dearer, dropped }: Pick<SpendingRecord, 'target' | 'dearer' | 'dropped'>,
  usage: Usage,
): UsedAt & { usage: Usage } {
  const factor = dearer !== undefined && { priceFactor: priceFactor(dearer, dropped) };
  return { api: target?.apiId ?? '', upstreamModel: modelOf(target), usage, ...factor };
}

/** Adds figures member by member. */
function sumOf<Value>(before: Value, more: Value): Value {
  if (typeof before === 'number' && typeof more === 'number') return (before + more) as Value;
  if (typeof before !== 'object' || before === null || typeof more !== 'object' || more === null) return more ?? before;
  const sum = { ...before } as Record<string, unknown>;
  for (const [name, value] of Object.entries(more)) sum[name] = sumOf(sum[name], value);
  return sum as Value;
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
