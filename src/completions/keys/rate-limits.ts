import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Limits } from '../../platform/identity/owner.ts';

/** The limits of one bucket: requests and tokens a minute. */
export interface RateLimits {
  /** Throws RATE_LIMIT_EXCEEDED when one request with that many tokens has no room now. */
  check(tokens: number): void;
  /** Takes one request and that many tokens. */
  take(tokens: number): { settle(tokens: number): void };
  /** As OpenAI's API has them: `x-ratelimit-limit-requests`, `x-ratelimit-reset-tokens: 1m30s`. */
  headers(): Record<string, string>;
  /** As if it had never been used. */
  isIdle(): boolean;
}

interface Limit {
  readonly unit: 'requests' | 'tokens';
  readonly names: { readonly limit: string; readonly remaining: string; readonly reset: string };
  readonly perMinute: number;
  readonly bucket: TokenBucket;
}

export function createRateLimits(
  { requestsPerMinute, tokensPerMinute }: Limits,
  clock: Pick<Clock, 'monotonic'>,
): RateLimits {
  const limit = (unit: Limit['unit'], perMinute: number | undefined): Limit[] =>
    perMinute === undefined
      ? []
      : [{ unit, names: headerNames(unit), perMinute, bucket: createTokenBucket(perMinute, clock) }];
  const limits = [...limit('requests', requestsPerMinute), ...limit('tokens', tokensPerMinute)];
  let underWay = 0;

  function headers(): Record<string, string> {
    const all: Record<string, string> = {};
    for (const { names, perMinute, bucket } of limits) {
      all[names.limit] = String(perMinute);
      all[names.remaining] = String(bucket.remaining());
      all[names.reset] = spanText(bucket.fullAfterMs());
    }
    return all;
  }

  return {
    headers,
    check(tokens) {
      for (const { unit, perMinute, bucket } of limits) {
        const wait = bucket.waitMs(unit === 'requests' ? 1 : tokens);
        if (wait === 0) continue;
        throw new AppError('RATE_LIMIT_EXCEEDED', {
          limit: perMinute,
          unit,
          retryAfterSeconds: Math.ceil(wait / 1000),
          headers: headers(),
        });
      }
    },
    take(tokens) {
      underWay += 1;
      const reserved = Math.min(tokens, tokensPerMinute ?? tokens);
      for (const { unit, bucket } of limits) bucket.take(unit === 'requests' ? 1 : reserved);
      return {
        settle(used) {
          underWay -= 1;
          for (const { unit, bucket } of limits) {
            if (unit !== 'tokens') continue;
            if (used < reserved) bucket.giveBack(reserved - used);
            else bucket.take(used - reserved);
          }
        },
      };
    },
    isIdle: () => underWay === 0 && limits.every(({ bucket }) => bucket.fullAfterMs() === 0),
  };
}

function headerNames(unit: Limit['unit']): Limit['names'] {
  const name = (what: string) => `x-ratelimit-${what}-${unit}`;
  return { limit: name('limit'), remaining: name('remaining'), reset: name('reset') };
}

/** As OpenAI writes it: `120ms`, `6s`, `1m30s`. */
function spanText(ms: number): string {
  if (ms < 1000) return `${Math.ceil(ms)}ms`;
  const seconds = Math.ceil(ms / 1000);
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}

/** A token bucket: fills steadily, up to the limit of a minute, which is also the largest burst (contract/completions 6). */
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
