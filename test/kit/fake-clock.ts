import type { Clock } from '../../src/platform/clock/clock.ts';

export interface FakeClock extends Clock {
  /** Lets time pass: every timer that falls due runs, in order, and the work it starts gets its turn before the next. */
  advance(ms: number): Promise<void>;
  /** Lets time pass as a machine that sleeps does: every timer that fell due runs once, when it wakes up. For days. */
  sleep(ms: number): Promise<void>;
  /** Moves the wall clock alone, as an administrator or NTP would. */
  stepWall(ms: number): void;
  /** How many timers wait. */
  pending(): number;
}

interface Timer {
  readonly due: number;
  readonly action: () => void;
}

/** `settle` gives the work that a timer started its turn; one turn of the event loop is enough for most. */
export function createFakeClock(wallStart = Date.UTC(2030, 0, 1), settle = oneTurn): FakeClock {
  let wall = wallStart;
  let passed = 0;
  const timers = new Set<Timer>();

  const passTo = (moment: number): void => {
    if (moment <= passed) return;
    wall += moment - passed;
    passed = moment;
  };

  return {
    now: () => wall,
    monotonic: () => passed,
    after(ms, action) {
      const timer = { due: passed + Math.max(0, ms), action };
      timers.add(timer);
      return () => timers.delete(timer);
    },
    async advance(ms) {
      const end = passed + ms;
      await settle();
      for (let timer = earliest(timers, end); timer !== undefined; timer = earliest(timers, end)) {
        timers.delete(timer);
        passTo(timer.due);
        timer.action();
        await settle();
      }
      passTo(end);
    },
    async sleep(ms) {
      const end = passed + ms;
      await settle();
      const due = [...timers].filter((timer) => timer.due <= end).sort((one, other) => one.due - other.due);
      passTo(end);
      for (const timer of due) {
        if (timers.delete(timer)) timer.action();
        await settle();
      }
    },
    stepWall(ms) {
      wall += ms;
    },
    pending: () => timers.size,
  };
}

function earliest(timers: ReadonlySet<Timer>, end: number): Timer | undefined {
  let first: Timer | undefined;
  for (const timer of timers) {
    if (timer.due <= end && (first === undefined || timer.due < first.due)) first = timer;
  }
  return first;
}

function oneTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
