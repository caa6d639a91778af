import type { Clock } from '../../platform/clock/clock.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { CounterRow } from '../storage/accounts-schema.ts';
import type { CounterStore } from '../storage/counter-store.ts';
import { addressKey } from './address-key.ts';

/** Contract/accounts, Rules: Lockout: 30 failures a minute from one address. */
const KIND = 'address_failures';
const LIMIT = 30;
const WINDOW_MS = 60_000;

/** What one address has got wrong lately, whatever account it was about. */
export interface AddressFailures {
  /** How many more it may get wrong now; throws RATE_LIMITED when none is left. */
  left(address: string): Promise<number>;
  /** For the batch that stores the failure. */
  count(address: string): Runnable<CounterRow>;
  /** Whether this failure was the last one that is allowed for now. */
  isLast(counted: CounterRow | undefined): boolean;
}

export function createAddressFailures(counters: CounterStore, clock: Pick<Clock, 'now'>): AddressFailures {
  return {
    async left(address) {
      const now = clock.now();
      const row = await counters.find({ kind: KIND, key: addressKey(address) }, now);
      const left = LIMIT - (row?.count ?? 0);
      if (row === undefined || left > 0) return left;
      throw new AppError('RATE_LIMITED', { retryAfterSeconds: Math.ceil((row.expires_at - now) / 1000) });
    },
    count: (address) => counters.count({ kind: KIND, key: addressKey(address), windowMs: WINDOW_MS }, clock.now()),
    isLast: (counted) => counted?.count === LIMIT,
  };
}
