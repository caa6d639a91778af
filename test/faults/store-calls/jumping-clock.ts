import type { FakeClock } from '../../fakes/fake-clock.ts';

interface Timer {
  readonly due: number;
  readonly action: () => void;
}

/**
 * A clock whose time passes in jumps, as on a machine that slept: what was due meanwhile is done once, and not as often
 * as it would have come back. What happens each second would otherwise hide what happens every ten minutes.
 */
export function createJumpingClock(wallStart = Date.UTC(2030, 0, 1)): FakeClock {
  const timers = new Set<Timer>();
  let wall = wallStart;
  let passed = 0;
  return {
    now: () => wall,
    monotonic: () => passed,
    after(ms, action) {
      const timer = { due: passed + Math.max(0, ms), action };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    async advance(ms) {
      wall += ms;
      passed += ms;
      const due = [...timers].filter((timer) => timer.due <= passed).sort((left, right) => left.due - right.due);
      for (const timer of due) {
        if (timers.delete(timer)) timer.action();
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
    stepWall(ms) {
      wall += ms;
    },
    pending: () => timers.size,
  };
}
