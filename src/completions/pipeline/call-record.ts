import type { Clock } from '../../platform/clock/clock.ts';
import type { Admission, CallOutcome } from '../keys/admission.ts';
import type { AttemptRecord } from './attempt-call.ts';
import { DEMO_API } from './model-plan.ts';
import type { MeasuredUsage } from './stream-reader.ts';

/** Follows one call from admission to its end, which is settled exactly once. */
export interface CallRecord extends AttemptRecord {
  dropped: readonly string[];
  /** The first event of the answer is there. */
  firstToken(): void;
  /** What tells the caller how its call goes (contract/completions 5). */
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
      if (dropped.length > 0) headers['x-dropped-params'] = visible(dropped.slice(0, MAX_NAMES).join(', '));
      return headers;
    },
    settle({ outcome, status, measured, content }) {
      if (settled) return;
      settled = true;
      const durationMs = clock.monotonic() - startedAt;
      const { target, attempts } = record;
      admission.settle({
        model,
        api: target?.apiId ?? '',
        upstreamModel: modelOf(target),
        usage: measured?.usage,
        estimated: measured?.estimated ?? false,
        outcome,
        status,
        attempts,
        durationMs,
        firstTokenMs: firstTokenMs ?? durationMs,
        requestId,
        operation,
        ...(content !== undefined && { content }),
      });
    },
  };
  return record;
}

/** What the demo model is told to do is not part of its name. */
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
