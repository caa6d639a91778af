import type { Clock } from '../../../src/platform/clock/clock.ts';

/** Timers that run out when the test says so. */
export interface ManualTimers extends Pick<Clock, 'after'> {
  /** How many are set. */
  count(): number;
  advance(ms: number): void;
}

export function createManualTimers(): ManualTimers {
  const timers = new Set<{ at: number; action: () => void }>();
  let now = 0;
  return {
    after(ms, action) {
      const timer = { at: now + ms, action };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    count: () => timers.size,
    advance(ms) {
      now += ms;
      for (const timer of [...timers].sort((left, right) => left.at - right.at)) {
        if (timer.at > now || !timers.delete(timer)) continue;
        timer.action();
      }
    },
  };
}
