import type { Clock } from '../../platform/clock/clock.ts';

/** The wall clock was set. */
export interface ClockStep {
  /** By how much; less than nothing when it was set back. */
  readonly byMs: number;
  /** What it says now. */
  readonly now: number;
  /** How long ago it was last seen to be right: what bears a time since then may have been made after the step. */
  readonly sinceMs: number;
}

/** Less is told by nobody, and a job may end a second too early or too late. */
const LEAST_STEP_MS = 1000;

/**
 * The deadlines of jobs are stored as times of the wall clock, but a job has its time by the monotonic one. Each look at
 * both finds out whether the wall clock was set, and hands that to `move`, again at the next look when it fails.
 */
export function createFollowClock(
  clock: Pick<Clock, 'now' | 'monotonic'>,
  move: (step: ClockStep) => Promise<void>,
): () => Promise<void> {
  let apart = clock.now() - clock.monotonic();
  let lookedAt = clock.monotonic();
  let moving: Promise<void> | undefined;

  async function follow(): Promise<void> {
    const now = clock.now();
    const monotonic = clock.monotonic();
    const byMs = Math.round(now - monotonic - apart);
    if (Math.abs(byMs) >= LEAST_STEP_MS) {
      await move({ byMs, now, sinceMs: Math.ceil(monotonic - lookedAt) });
      apart += byMs;
    }
    lookedAt = monotonic;
  }

  return () => {
    moving ??= follow().finally(() => {
      moving = undefined;
    });
    return moving;
  };
}
