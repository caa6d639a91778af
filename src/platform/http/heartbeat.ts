import type { Clock } from '../clock/clock.ts';

/** Something that must show signs of life. */
export interface Beating {
  /** The slice that it was put into; the heartbeat's own note. */
  slice: number;
  /** Called once per interval. */
  beat(): void;
}

export interface Heartbeat {
  add(member: Beating): void;
  remove(member: Beating): void;
  stop(): void;
}

const SLICES = 30;

/** One timer for all members; each tick serves one slice of them, so that thousands of pings do not go out in one burst. */
export function createHeartbeat(intervalMs: number, clock: Pick<Clock, 'after'>): Heartbeat {
  const slices = Array.from({ length: SLICES }, () => new Set<Beating>());
  let size = 0;
  let nextSlice = 0;
  let current = 0;
  let cancel: (() => void) | undefined;

  function tick(): void {
    cancel = size === 0 ? undefined : clock.after(intervalMs / SLICES, tick);
    current = (current + 1) % SLICES;
    for (const member of slices[current] ?? []) member.beat();
  }

  return {
    add(member) {
      member.slice = nextSlice;
      nextSlice = (nextSlice + 1) % SLICES;
      slices[member.slice]?.add(member);
      size += 1;
      cancel ??= clock.after(intervalMs / SLICES, tick);
    },
    remove(member) {
      if (slices[member.slice]?.delete(member)) size -= 1;
    },
    stop() {
      cancel?.();
      cancel = undefined;
    },
  };
}
