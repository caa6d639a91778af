import type { Clock } from '../clock/clock.ts';
import { formatIpAddress, parseIpAddress, unmapAddress } from '../network-address/ip-address.ts';

export interface NotedFailure {
  /** Set once the address has failed more often than allowed: when it may try again without being told so. */
  readonly retryAfterSeconds?: number;
  /** True exactly once per window: the moment to write a log line. */
  readonly firstOverLimit: boolean;
}

export interface FailureThrottle {
  note(address: string): NotedFailure;
}

export interface FailureThrottleOptions {
  readonly limit?: number;
  readonly windowMs?: number;
  readonly maxEntries?: number;
  readonly clock: Pick<Clock, 'monotonic'>;
}

interface Window {
  readonly endsAt: number;
  failures: number;
}

/** Counts failures per address in fixed windows. Memory is bounded: the oldest window makes room for a new address. */
export function createFailureThrottle({
  limit = 20,
  windowMs = 60_000,
  maxEntries = 10_000,
  clock,
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
    const fresh = { endsAt: now + windowMs, failures: 0 };
    windows.set(key, fresh);
    return fresh;
  }

  return {
    note(address) {
      const now = clock.monotonic();
      const window = windowOf(throttleKey(address), now);
      window.failures += 1;
      if (window.failures <= limit) return { firstOverLimit: false };
      const retryAfterSeconds = Math.max(1, Math.ceil((window.endsAt - now) / 1000));
      return { retryAfterSeconds, firstOverLimit: window.failures === limit + 1 };
    },
  };
}

/** One household has a whole IPv6 /64: counting its addresses one by one would count nothing. */
function throttleKey(address: string): string {
  const parsed = parseIpAddress(address);
  if (parsed === undefined) return address;
  const plain = unmapAddress(parsed);
  if (plain.version === 4) return formatIpAddress(plain);
  return plain.groups.slice(0, 4).join(':');
}
