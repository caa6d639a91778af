import { type Clock, pause } from '../clock/clock.ts';
import type { Randomness } from '../clock/randomness.ts';
import { AppError } from '../errors/app-error.ts';

export interface Backoff {
  readonly baseMs: number;
  readonly maxMs: number;
}

export interface RetryOptions extends Backoff {
  /** How often in all, the first time included. */
  readonly attempts: number;
  readonly clock: Pick<Clock, 'after'>;
  readonly randomness: Pick<Randomness, 'below'>;
  /** Whether it could go better next time. Default: always. */
  readonly shouldRetry?: (error: unknown) => boolean;
  /** What the other side asked for. Longer than `maxMs`: no further attempt. */
  readonly retryAfterMs?: (error: unknown) => number | undefined;
  readonly signal?: AbortSignal;
}

/** Beyond this the product is no exact number any more, and long past any bound. */
const MAX_DOUBLINGS = 40;

/** How long to wait after the given failed attempt (1, 2, ...): anything up to a bound that doubles, so that callers spread. */
export function backoffDelay(
  attempt: number,
  { baseMs, maxMs }: Backoff,
  randomness: Pick<Randomness, 'below'>,
): number {
  const bound = Math.min(maxMs, baseMs * 2 ** Math.min(attempt - 1, MAX_DOUBLINGS));
  return randomness.below(Math.max(0, Math.floor(bound)) + 1);
}

/** Repeats a failed attempt, with pauses; the last error is the caller's. */
export async function retry<Result>(
  attempt: (number: number) => Promise<Result>,
  options: RetryOptions,
): Promise<Result> {
  for (let number = 1; ; number += 1) {
    throwIfCancelled(options.signal);
    try {
      return await attempt(number);
    } catch (error) {
      const delay = number < options.attempts ? delayAfter(number, error, options) : undefined;
      if (delay === undefined) throw error;
      await pause(options.clock, delay, options.signal);
    }
  }
}

/** Undefined when the error is final. */
function delayAfter(number: number, error: unknown, options: RetryOptions): number | undefined {
  if (options.shouldRetry?.(error) === false) return undefined;
  const asked = options.retryAfterMs?.(error) ?? 0;
  if (asked > options.maxMs) return undefined;
  return Math.max(asked, backoffDelay(number, options, options.randomness));
}

function throwIfCancelled(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw cancelled(signal);
}

function cancelled(signal: AbortSignal | undefined): AppError {
  return new AppError('CALL_CANCELLED', {}, { cause: signal?.reason });
}
