import type { Clock } from '../clock/clock.ts';
import type { SharedBuckets } from '../limits/shared-buckets.ts';
import { formatIpAddress, parseIpAddress, unmapAddress } from '../network-address/ip-address.ts';

export interface NotedFailure {
  /** Set once the address has failed more often than allowed: the time after which it is not refused. */
  readonly retryAfterSeconds?: number;
  /** True exactly once per window: the moment to write a log line. */
  readonly firstOverLimit: boolean;
}

export interface FailureThrottle {
  /** Waits where other instances count the same failures. */
  note(address: string): NotedFailure | Promise<NotedFailure>;
}

export interface FailureThrottleOptions {
  readonly limit?: number;
  readonly windowMs?: number;
  readonly maxEntries?: number;
  readonly clock: Pick<Clock, 'monotonic'>;
  /** Counts the failures of all instances. Undefined: this one counts alone. */
  readonly shared?: { readonly buckets: Pick<SharedBuckets, 'of'>; readonly name: string } | undefined;
}

const MINUTE_MS = 60_000;
const WITHIN: NotedFailure = { firstOverLimit: false };

interface Window {
  readonly endsAt: number;
  failures: number;
  isOver: boolean;
}

/**
 * Counts failures per address in fixed windows. Memory is bounded: the oldest window makes room for a new address. What
 * other instances count comes on top: what is too much here is not asked for there, and while the store is away each counts alone.
 */
export function createFailureThrottle({
  limit = 20,
  windowMs = 60_000,
  maxEntries = 10_000,
  clock,
  shared,
}: FailureThrottleOptions): FailureThrottle {
  // In the order in which the windows began, and so in which they end.
  const windows = new Map<string, Window>();

  function windowOf(key: string, now: number): Window {
    const known = windows.get(key);
    if (known !== undefined && known.endsAt > now) return known;
    windows.delete(key);
    for (const [oldest, { endsAt }] of windows) {
      if (endsAt > now && windows.size < maxEntries) break;
      windows.delete(oldest);
    }
    const fresh = { endsAt: now + windowMs, failures: 0, isOver: false };
    windows.set(key, fresh);
    return fresh;
  }

  function over(window: Window, waitMs: number): NotedFailure {
    const firstOverLimit = !window.isOver;
    window.isOver = true;
    return { retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1000)), firstOverLimit };
  }

  async function waitElsewhere(key: string): Promise<number> {
    const perMinute = (limit * MINUTE_MS) / windowMs;
    return (await shared?.buckets.of(`wrong ${shared.name} ${key}`, perMinute).take(1)) ?? 0;
  }

  return {
    note(address) {
      const now = clock.monotonic();
      const key = throttleKey(address);
      const window = windowOf(key, now);
      window.failures += 1;
      if (window.failures > limit) return over(window, window.endsAt - now);
      if (shared === undefined) return WITHIN;
      return waitElsewhere(key).then(
        (waitMs) => (waitMs > 0 ? over(window, waitMs) : WITHIN),
        () => WITHIN,
      );
    },
  };
}

/** Counts an IPv6 /64 as one address, because one household can use all of its addresses. */
function throttleKey(address: string): string {
  const parsed = parseIpAddress(address);
  if (parsed === undefined) return address;
  const plain = unmapAddress(parsed);
  if (plain.version === 4) return formatIpAddress(plain);
  return plain.groups.slice(0, 4).join(':');
}
