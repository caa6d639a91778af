import { AppError } from '../../platform/errors/app-error.ts';
import type { Call, RequestHead } from '../../platform/http/surface.ts';
import type { KeyHolder } from '../keys/admission.ts';
import { watchCaller } from '../routing/call-record.ts';
import type { IncomingCall } from './admit-call.ts';

/** What a caller may ask for by header. */
export interface CallOptions {
  /** Refuse what the upstream cannot take. */
  readonly strict: boolean;
  /** `x-cache-ttl`, in seconds: how long the answer may be given again; 0: it must be fresh. */
  readonly cacheTtlMs: number | undefined;
  /** `x-timeout-ms`: the longest time for the whole call. The configured limits hold as well. */
  readonly timeoutMs: number | undefined;
  /** `x-fallback-models`: models to try when the one that was asked for fails. */
  readonly fallbacks: readonly string[] | undefined;
}

const MAX_FALLBACKS = 5;

const MAX_TTL_SECONDS = 30 * 24 * 60 * 60;

export function readCallOptions({ headers }: RequestHead, strictByDefault: boolean): CallOptions {
  const strict = headers['x-strict-params'];
  const ttl = headers['x-cache-ttl'];
  const timeout = headers['x-timeout-ms'];
  const given = headers['x-fallback-models'];
  const fallbacks =
    typeof given === 'string' ? given.split(',', MAX_FALLBACKS + 1).map((name) => name.trim()) : undefined;
  if (fallbacks !== undefined && (fallbacks.length > MAX_FALLBACKS || fallbacks.includes(''))) {
    const reason = `the header x-fallback-models is not a list of at most ${MAX_FALLBACKS} models, with commas between them`;
    throw new AppError('INVALID_REQUEST', { reason, param: 'x-fallback-models' });
  }
  if (timeout !== undefined && !/^[1-9]\d{0,9}$/.test(String(timeout))) {
    const reason = 'the header x-timeout-ms is not a whole number of milliseconds above 0';
    throw new AppError('INVALID_REQUEST', { reason, param: 'x-timeout-ms' });
  }
  return {
    strict: strict === undefined ? strictByDefault : strict === 'true',
    cacheTtlMs:
      typeof ttl === 'string' && /^\d{1,9}$/.test(ttl) ? Math.min(Number(ttl), MAX_TTL_SECONDS) * 1000 : undefined,
    timeoutMs: timeout === undefined ? undefined : Number(timeout),
    fallbacks,
  };
}

/** A call as the pipeline admits it, and whether it refuses what the upstream cannot take. */
export function readIncoming(
  { head, caller: holder, reply }: Pick<Call<KeyHolder>, 'head' | 'caller' | 'reply'>,
  operation: IncomingCall['operation'],
  body: IncomingCall['body'],
  strictByDefault = false,
): { readonly strict: boolean; readonly incoming: IncomingCall } {
  const { strict, timeoutMs, fallbacks } = readCallOptions(head, strictByDefault);
  const presence = watchCaller(reply.raw);
  return { strict, incoming: { holder, requestId: head.requestId, presence, body, operation, timeoutMs, fallbacks } };
}
