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

/** Those who wait for the same keys: what one of them finds, the next one would find as well. */
interface Line {
  readonly keys: readonly string[];
  readonly wakes: (() => void)[];
}

export function createAttemptGate(): AttemptGate {
  const underWay = new Map<string, number>();
  const lines = new Map<string, Line>();
  let waiting = 0;
  let ended = 0;

  const wakeFirst = (name: string): void => {
    const line = lines.get(name);
    const wake = line?.wakes.shift();
    if (line?.wakes.length === 0) lines.delete(name);
    if (wake === undefined) return;
    waiting -= 1;
    wake();
  };

  const wait = (name: string, keys: readonly string[], waitedBefore: boolean): Promise<void> =>
    new Promise((resolve) => {
      const line = lines.get(name) ?? { keys, wakes: [] };
      lines.set(name, line);
      waiting += 1;
      if (waitedBefore) line.wakes.unshift(resolve);
      else line.wakes.push(resolve);
    });

  const end = (keys: readonly string[]): void => {
    for (const key of keys) {
      const count = (underWay.get(key) ?? 0) - 1;
      if (count > 0) underWay.set(key, count);
      else underWay.delete(key);
    }
    ended += 1;
    for (const [name, line] of lines) if (line.keys.some((key) => keys.includes(key))) wakeFirst(name);
  };

  return {
    async enter(keys, left) {
      const name = keys.join(' ');
      let waitedBefore = false;
      try {
        for (let look = 1; ; look += 1) {
          const before = ended;
          const budgets = await left();
          if (budgets.some((budget) => budget <= 0)) return undefined;
          if (ended !== before && look < LOOKS) continue;
          if (keys.every((key, index) => (underWay.get(key) ?? 0) < (budgets[index] ?? 0))) {
            for (const key of keys) underWay.set(key, (underWay.get(key) ?? 0) + 1);
            return () => end(keys);
          }
          if (waiting >= WAITING) throw new AppError('OVERLOADED');
          await wait(name, keys, waitedBefore);
          waitedBefore = true;
          look = 0;
        }
      } finally {
        // Whoever went in, or was refused, leaves the next one to look: all at once, at each end, would be far too many.
        wakeFirst(name);
      }
    },
  };
}
