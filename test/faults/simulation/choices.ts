import type { FakeClock } from '../../kit/fake-clock.ts';
import type { Chance } from './chance.ts';
import type { StoreManners } from './played-store.ts';

/** The administrator, or NTP, has set the clock. */
export interface WallStep {
  readonly kind: 'wall-step';
  readonly at: number;
  readonly byMs: number;
}

const HOUR_MS = 3_600_000;

export const GOOD_MANNERS: StoreManners = { fails: 0, isSlow: 0 };

/** How the store behaves for one run: mostly well, so that what goes wrong elsewhere is seen alone too. */
export function chooseManners(chance: Chance): StoreManners {
  return chance.weigh<StoreManners>([
    [4, GOOD_MANNERS],
    [2, { fails: 0, isSlow: 0.1 }],
    [3, { fails: 0.03, isSlow: 0.01 }],
    [1, { fails: 0.2, isSlow: 0.05 }],
  ]);
}

/** How long nobody does anything new. */
export function choosePause(chance: Chance): number {
  return chance.weigh([
    [4, 0],
    [3, chance.between(1, 60)],
    [2, chance.between(100, 2000)],
    [1, chance.between(2000, 10_000)],
  ]);
}

export interface SteppedWorld {
  readonly chance: Chance;
  readonly clock: FakeClock;
  note(event: WallStep): void;
}

export function stepWall({ chance, clock, note }: SteppedWorld): void {
  const byMs = chance.pick([-HOUR_MS, -5000, 5000, HOUR_MS, 90 * 24 * HOUR_MS]);
  clock.stepWall(byMs);
  note({ kind: 'wall-step', at: clock.monotonic(), byMs });
}
