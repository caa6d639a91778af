import { type Clock, withinTime } from '../clock/clock.ts';
import { AppError } from '../errors/app-error.ts';

/** Asks a store that calls must not wait for: while it is away, they are answered without it. */
export interface StoreWatch {
  /** What the store answers. Throws STORAGE_UNAVAILABLE when that takes too long or fails; late work is not stopped. */
  ask<T>(work: Promise<T>): Promise<T>;
  /** Whether it failed a moment ago. */
  isAway(): boolean;
  /** What callers get that need it while it is away. */
  refusal(cause?: unknown): AppError;
}

interface StoreWatchOptions {
  readonly clock: Pick<Clock, 'monotonic' | 'after'>;
  /** Called when it begins to be away. */
  onAway(error: unknown): void;
}

const ANSWER_MS = 2000;
/** While the store is away, it is asked this often. */
const AWAY_MS = 500;

export function createStoreWatch({ clock, onAway }: StoreWatchOptions): StoreWatch {
  let awayUntil = Number.NEGATIVE_INFINITY;
  let wasAway = false;

  function refusal(cause?: unknown): AppError {
    return new AppError('STORAGE_UNAVAILABLE', { retryAfterSeconds: 1 }, { cause });
  }

  return {
    refusal,
    isAway: () => clock.monotonic() < awayUntil,
    async ask(work) {
      // It may fail when nobody waits for it any more.
      work.catch(() => undefined);
      try {
        const answer = await withinTime(clock, ANSWER_MS, work, () => {
          throw new Error('the store of limits does not answer');
        });
        wasAway = false;
        return answer;
      } catch (error) {
        awayUntil = clock.monotonic() + AWAY_MS;
        if (!wasAway) onAway(error);
        wasAway = true;
        throw refusal(error);
      }
    },
  };
}
