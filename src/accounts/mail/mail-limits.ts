import type { Clock } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { addressKey } from '../login/address-key.ts';
import type { AccountsSchema } from '../storage/accounts-schema.ts';
import type { CounterLimit, CounterStore } from '../storage/counter-store.ts';

/** Contract/accounts, Rules: Lockout. Mails that strangers can ask for; notices are not counted. */
const PER_EMAIL_MINUTE = { kind: 'mails_minute', limit: 3, windowMs: 60_000 };
const PER_EMAIL_HOUR = { kind: 'mails_hour', limit: 10, windowMs: 3_600_000 };
const PER_ADDRESS_HOUR = { kind: 'address_mails', limit: 30, windowMs: 3_600_000 };

export interface MailLimits {
  /** Counts one mail; throws RATE_LIMITED, and counts nothing, when one of the limits is reached. */
  count(mail: { readonly email: string; readonly address: string }): Promise<void>;
}

export interface MailLimitsOptions {
  readonly database: Database<AccountsSchema>;
  readonly counters: CounterStore;
  readonly clock: Pick<Clock, 'now'>;
}

export function createMailLimits({ database, counters, clock }: MailLimitsOptions): MailLimits {
  return {
    async count({ email, address }) {
      const now = clock.now();
      const limits: readonly CounterLimit[] = [
        { ...PER_EMAIL_MINUTE, key: email },
        { ...PER_EMAIL_HOUR, key: email },
        { ...PER_ADDRESS_HOUR, key: addressKey(address) },
      ];
      try {
        await database.write(limits.map((limit) => counters.countWithin(limit, now)));
      } catch (error) {
        if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
        throw new AppError('RATE_LIMITED', { retryAfterSeconds: await secondsUntilFree(limits, now) });
      }
    },
  };

  async function secondsUntilFree(limits: readonly CounterLimit[], now: number): Promise<number> {
    const found = await Promise.all(limits.map((limit) => counters.find(limit, now)));
    const ends = found.map((row, index) => (row && row.count >= (limits[index]?.limit ?? 0) ? row.expires_at : now));
    return Math.max(1, Math.ceil((Math.max(...ends) - now) / 1000));
  }
}
