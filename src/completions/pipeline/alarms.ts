import type { Clock } from '../../platform/clock/clock.ts';

/** Something that happens at a moment of the monotonic clock, unless it is cleared before. */
export interface Alarm {
  dueAt: number;
  ring(): void;
}

/**
 * Many alarms on one timer. Calls set some each and nearly all clear them again: a set is enough for
 * that, without a timer object for each.
 */
export interface Alarms {
  set(alarm: Alarm): void;
  clear(alarm: Alarm): void;
}

/** Alarms that follow closely upon another wait for each other: with thousands of them each look costs something. */
const LEAST_PAUSE_MS = 50;

/** The timer is set while alarms are; it does not keep the process alive. */
export function createAlarms(clock: Pick<Clock, 'monotonic' | 'after'>): Alarms {
  const alarms = new Set<Alarm>();
  let wakesAt = Number.POSITIVE_INFINITY;
  let stopTimer: (() => void) | undefined;

  function wakeAt(moment: number, now: number): void {
    stopTimer?.();
    wakesAt = moment;
    stopTimer = clock.after(Math.max(0, moment - now), ringAll);
  }

  function ringAll(): void {
    const now = clock.monotonic();
    wakesAt = Number.POSITIVE_INFINITY;
    stopTimer = undefined;
    let next = Number.POSITIVE_INFINITY;
    for (const alarm of [...alarms]) {
      if (alarm.dueAt > now) next = Math.min(next, alarm.dueAt);
      // One that rang may have cleared others.
      else if (alarms.delete(alarm)) alarm.ring();
    }
    if (next < wakesAt) wakeAt(Math.max(next, now + LEAST_PAUSE_MS), now);
  }

  return {
    set(alarm) {
      alarms.add(alarm);
      if (alarm.dueAt < wakesAt) wakeAt(alarm.dueAt, clock.monotonic());
    },
    clear: (alarm) => void alarms.delete(alarm),
  };
}
