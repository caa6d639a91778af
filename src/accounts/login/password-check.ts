import type { Runnable } from '../../platform/database/statement.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { digestToken } from '../../platform/secrets/token-digest.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { UserRow } from '../storage/accounts-schema.ts';
import { type AccountRule, createLoginFailureStore, type PairRule } from '../storage/login-failure-store.ts';
import { addressKey } from './address-key.ts';
import { createAttemptGate } from './attempt-gate.ts';

export interface PasswordAttempt {
  /** Undefined for someone who does not exist: the same is done, and the answer is no. */
  readonly user: Pick<UserRow, 'id' | 'password_hash'> | undefined;
  /** What was asked for, so that failures on what does not exist count as well. */
  readonly identifier: string;
  readonly password: string;
  /** Whether it comes from a device, or a session, of that user. */
  readonly known: boolean;
  readonly head: RequestHead;
}

/** Compares passwords, and counts what is wrong: the one way by which anybody can try one. */
export interface PasswordCheck {
  /** The statements that belong to a right password, for the batch that follows from it; undefined for a wrong one. */
  check(attempt: PasswordAttempt): Promise<readonly Runnable[] | undefined>;
}

/** Contract/accounts, Rules: Lockout. Five failures, then 30 s, doubling to 15 minutes. */
const PAIR_TRIES = 5;
const PAIR: PairRule = {
  lockMs: [0, 0, 0, 0, 30_000, 60_000, 120_000, 240_000, 480_000, 900_000],
  forgetMs: 15 * 60_000,
};
/** Fifty failures within 15 minutes: only known devices for 15 minutes. */
const ACCOUNT: AccountRule = { limit: 50, windowMs: 15 * 60_000, lockMs: 15 * 60_000 };

type Parts = Pick<AccountsCore, 'database' | 'addressFailures' | 'passwords' | 'audit' | 'clock'>;

export function createPasswordCheck({ database, addressFailures, passwords, audit, clock }: Parts): PasswordCheck {
  const failures = createLoginFailureStore(database);
  const gate = createAttemptGate();

  return {
    async check({ user, identifier, password, known, head }) {
      const account = user?.id ?? `unknown:${digestToken(identifier.toLowerCase()).toString('base64url')}`;
      const address = addressKey(head.address);
      const hash = user?.password_hash ?? null;

      const left = async (): Promise<readonly number[]> => {
        const now = clock.now();
        const forAddress = await addressFailures.left(head.address);
        const { pair, account: anywhere } = await failures.find(account, address, now);
        const locked = (pair?.locked_until ?? 0) > now || (!known && (anywhere?.locked_until ?? 0) > now);
        if (locked) return [0, forAddress];
        // After a lock has ended there is one try, and the next lock.
        return [Math.max(1, PAIR_TRIES - (pair?.failures ?? 0)), forAddress];
      };

      const leave = await gate.enter([`pair:${account}:${address}`, `address:${address}`], left);
      if (leave === undefined) {
        // As much work as for a password that is looked at, so that nobody can tell.
        await passwords.verify(hash, password);
        const refused = audit.statement({ event: 'login.refused', subject: user?.id ?? '', head });
        await database.write([addressFailures.count(head.address), refused]);
        return undefined;
      }
      try {
        if (await passwords.verify(hash, password)) return [failures.forget(account, address)];
        await countFailure(account, address, user?.id ?? '', head);
        return undefined;
      } finally {
        leave();
      }
    },
  };

  async function countFailure(account: string, address: string, subject: string, head: RequestHead): Promise<void> {
    const now = clock.now();
    const [pair, anywhere, fromAddress] = await database.write([
      failures.countForPair({ account, address }, PAIR, now),
      failures.countForAccount(account, ACCOUNT, now),
      addressFailures.count(head.address),
      audit.statement({ event: 'login.failed', subject, head }),
    ]);
    const pairLock = pair.rows[0]?.locked_until ?? 0;
    const { failures: total = 0, locked_until: accountLock = 0 } = anywhere.rows[0] ?? {};
    if (addressFailures.isLast(fromAddress.rows[0])) await audit.record({ event: 'address.limited', head });
    if (pairLock > now) {
      await audit.record({
        event: 'login.locked',
        subject,
        head,
        details: { until: new Date(pairLock).toISOString() },
      });
    }
    if (accountLock > now && total === ACCOUNT.limit) {
      const until = new Date(accountLock).toISOString();
      await audit.record({ event: 'account.known_devices_only', subject, head, details: { until } });
    }
  }
}
