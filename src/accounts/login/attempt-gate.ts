import { AppError } from '../../platform/errors/app-error.ts';

/**
 * Keeps a burst of parallel guesses within the budget that the same guesses would have one after another: no more are
 * under way at once than may still fail. Others wait, so that someone who logs in many times at once is not refused.
 */
export interface AttemptGate {
  /**
   * `left` says how many may still fail, in the order of `keys`; it is asked again whenever an attempt has ended.
   * Resolves with the function that ends this attempt, or with undefined once none is left. End it after its failure
   * was stored.
   */
  enter(keys: readonly string[], left: () => Promise<readonly number[]>): Promise<(() => void) | undefined>;
}

const WAITING = 1000;
/** Ends come in all the time on a busy server: a look that is a moment old must do in the end. */
const LOOKS = 5;

export function createAttemptGate(): AttemptGate {
  const underWay = new Map<string, number>();
  let waiting: (() => void)[] = [];
  let ended = 0;

  const end = (keys: readonly string[]): void => {
    for (const key of keys) {
      const count = (underWay.get(key) ?? 0) - 1;
      if (count > 0) underWay.set(key, count);
      else underWay.delete(key);
    }
    ended += 1;
    const woken = waiting;
    waiting = [];
    for (const wake of woken) wake();
  };

  return {
    async enter(keys, left) {
      for (let look = 1; ; look += 1) {
        const before = ended;
        const budgets = await left();
        if (budgets.some((budget) => budget <= 0)) return undefined;
        if (ended !== before && look < LOOKS) continue;
        if (keys.every((key, index) => (underWay.get(key) ?? 0) < (budgets[index] ?? 0))) {
          for (const key of keys) underWay.set(key, (underWay.get(key) ?? 0) + 1);
          return () => end(keys);
        }
        if (waiting.length >= WAITING) throw new AppError('OVERLOADED');
        await new Promise<void>((resolve) => waiting.push(resolve));
        look = 0;
      }
    },
  };
}
