import type { Clock } from '../../../src/platform/clock/clock.ts';

/** A process of the program. When it has died, nothing that it left behind happens any more. */
export interface PlayedProcess {
  /** Its timers die with it. Its monotonic clock begins when it does. */
  readonly clock: Clock;
  isAlive(): boolean;
  /** The same action, which does nothing any more once the process has died. */
  whileAlive<Given extends unknown[]>(action: (...given: Given) => void): (...given: Given) => void;
  /** As kill -9 does. */
  die(): void;
}

export function startPlayedProcess(outside: Clock): PlayedProcess {
  const bornAt = outside.monotonic();
  const timers = new Set<() => void>();
  let isAlive = true;
  return {
    clock: {
      now: outside.now,
      monotonic: () => outside.monotonic() - bornAt,
      after(ms, action) {
        if (!isAlive) return () => undefined;
        const cancel = outside.after(ms, () => {
          timers.delete(cancel);
          action();
        });
        timers.add(cancel);
        return () => {
          timers.delete(cancel);
          cancel();
        };
      },
    },
    isAlive: () => isAlive,
    whileAlive:
      (action) =>
      (...given) => {
        if (isAlive) action(...given);
      },
    die() {
      isAlive = false;
      for (const cancel of timers) cancel();
      timers.clear();
    },
  };
}
