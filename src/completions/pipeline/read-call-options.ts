import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';

/** What a caller may ask for by header. */
export interface CallOptions {
  /** Refuse what the upstream cannot take (contract/completions 2). */
  readonly strict: boolean;
  /** `x-cache-ttl`, in seconds: how long the answer may be given again; 0: it must be fresh. */
  readonly cacheTtlMs: number | undefined;
  /** `x-timeout-ms`: the longest time for the whole call. The configured limits hold as well. */
  readonly timeoutMs: number | undefined;
}

const MAX_TTL_SECONDS = 30 * 24 * 60 * 60;

export function readCallOptions({ headers }: RequestHead, strictByDefault: boolean): CallOptions {
  const strict = headers['x-strict-params'];
  const ttl = headers['x-cache-ttl'];
  const timeout = headers['x-timeout-ms'];
  if (timeout !== undefined && !/^[1-9]\d{0,9}$/.test(String(timeout))) {
    const reason = 'the header x-timeout-ms is not a whole number of milliseconds above 0';
    throw new AppError('INVALID_REQUEST', { reason, param: 'x-timeout-ms' });
  }
  return {
    strict: strict === undefined ? strictByDefault : strict === 'true',
    cacheTtlMs:
      typeof ttl === 'string' && /^\d{1,9}$/.test(ttl) ? Math.min(Number(ttl), MAX_TTL_SECONDS) * 1000 : undefined,
    timeoutMs: timeout === undefined ? undefined : Number(timeout),
  };
}
