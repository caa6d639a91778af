import type { Clock } from '../../platform/clock/clock.ts';

/** Fills steadily, up to what it may hold in a minute; that much may also be taken at once (contract/completions 6). */
export interface TokenBucket {
  /** How long until `amount` is there; 0 when it is there now. More than it can ever hold counts as all of it. */
  waitMs(amount: number): number;
  /** Takes it whether it is there or not: what is owed is filled up first. */
  take(amount: number): void;
  /** Gives back what was taken and not used. */
  giveBack(amount: number): void;
  /** What may be taken now. */
  remaining(): number;
  /** How long until it is full again. */
  fullAfterMs(): number;
}

const MINUTE_MS = 60_000;

export function createTokenBucket(perMinute: number, clock: Pick<Clock, 'monotonic'>): TokenBucket {
  const perMs = perMinute / MINUTE_MS;
  let level = perMinute;
  let at = clock.monotonic();

  function fill(): void {
    const now = clock.monotonic();
    level = Math.min(perMinute, level + (now - at) * perMs);
    at = now;
  }

  return {
    waitMs(amount) {
      fill();
      const lacking = Math.min(amount, perMinute) - level;
      return lacking <= ROUNDING ? 0 : lacking / perMs;
    },
    take(amount) {
      fill();
      level -= amount;
    },
    giveBack(amount) {
      fill();
      level = Math.min(perMinute, level + amount);
    },
    remaining() {
      fill();
      return Math.max(0, Math.floor(level + ROUNDING));
    },
    fullAfterMs() {
      fill();
      return (perMinute - level) / perMs;
    },
  };
}

/** Sixty steps of a sixtieth are not quite one. */
const ROUNDING = 1e-9;
