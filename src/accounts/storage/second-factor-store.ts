import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, UserRow } from './accounts-schema.ts';

export interface LockRule {
  /** So many wrong codes lock. */
  readonly tries: number;
  /** How long, by how often it locked before: the last one counts for all that follow. */
  readonly lockMs: readonly number[];
}

export interface SecondFactorStore {
  /** Counts a try ahead of it; undefined while the second factor is locked. */
  reserveTry(userId: string, rule: LockRule, now: number): Promise<UserRow | undefined>;
  /**
   * Accepts the code of a time step, once, by whichever instance is first: the batch is undone for a step that is not
   * newer than the last one accepted. Forgets the failures.
   */
  acceptStep(userId: string, step: number): Runnable;
  hasRecoveryCode(userId: string, codeHash: string): Promise<boolean>;
  /** Uses a recovery code up, once. */
  takeRecoveryCode(userId: string, codeHash: string): readonly Runnable[];
  countRecoveryCodes(userId: string): Promise<number>;
  replaceRecoveryCodes(userId: string, codeHashes: readonly string[]): readonly Runnable[];
  /** Stores a secret that counts once a code of it has come; undoes the batch while one counts already. */
  setPending(change: { userId: string; sealed: string; now: number }): Runnable;
  /** The pending secret counts from now on, for the batch whose pending secret is still that one. */
  confirm(change: { userId: string; sealed: string; step: number; epoch: number; now: number }): Runnable;
  /** Takes the second factor away, and raises the epoch. */
  remove(change: { userId: string; epoch: number; now: number }): readonly Runnable[];
}

export function createSecondFactorStore(database: Database<AccountsSchema>): SecondFactorStore {
  const { query } = database;
  const deleteCodes = (userId: string) => query.deleteFrom('recovery_codes').where('user_id', '=', userId);
  const forgetFailures = { totp_failures: 0, totp_locks: 0, totp_locked_until: 0 };

  return {
    async reserveTry(userId, { tries, lockMs }, now) {
      const isLast = sql<boolean>`totp_failures + 1 >= ${tries}`;
      const steps = lockMs.map((ms, index) => sql`when totp_locks <= ${index} then cast(${now + ms} as bigint)`);
      const until = sql<number>`case ${sql.join(steps, sql` `)} else cast(${now + (lockMs.at(-1) ?? 0)} as bigint) end`;
      const reserve = query
        .updateTable('users')
        .set({
          totp_failures: sql<number>`case when ${isLast} then 0 else totp_failures + 1 end`,
          totp_locks: sql<number>`case when ${isLast} then totp_locks + 1 else totp_locks end`,
          totp_locked_until: sql<number>`case when ${isLast} then ${until} else totp_locked_until end`,
        })
        .where('id', '=', userId)
        .where('totp_locked_until', '<=', now)
        .returningAll();
      const [{ rows }] = await database.write([reserve.compile()]);
      return rows[0];
    },
    acceptStep: (userId, step) =>
      expectChanges(
        query
          .updateTable('users')
          .set({ totp_last_step: step, ...forgetFailures })
          .where('id', '=', userId)
          .where('totp_secret', 'is not', null)
          .where('totp_last_step', '<', step)
          .compile(),
        1,
      ),
    async hasRecoveryCode(userId, codeHash) {
      const find = query
        .selectFrom('recovery_codes')
        .select('user_id')
        .where('user_id', '=', userId)
        .where('code_hash', '=', codeHash);
      return (await database.readKeyed(find.compile())).length > 0;
    },
    takeRecoveryCode: (userId, codeHash) => [
      expectChanges(deleteCodes(userId).where('code_hash', '=', codeHash).compile(), 1),
      query.updateTable('users').set(forgetFailures).where('id', '=', userId).compile(),
    ],
    async countRecoveryCodes(userId) {
      const count = query
        .selectFrom('recovery_codes')
        .select((build) => build.fn.countAll<number>().as('count'))
        .where('user_id', '=', userId);
      return Number((await database.readKeyed(count.compile()))[0]?.count ?? 0);
    },
    replaceRecoveryCodes: (userId, codeHashes) => [
      deleteCodes(userId).compile(),
      query
        .insertInto('recovery_codes')
        .values(codeHashes.map((code_hash) => ({ user_id: userId, code_hash })))
        .compile(),
    ],
    setPending: ({ userId, sealed, now }) =>
      expectChanges(
        query
          .updateTable('users')
          .set({ totp_pending: sealed, totp_issued_at: now, updated_at: now })
          .where('id', '=', userId)
          .where('totp_secret', 'is', null)
          .compile(),
        1,
      ),
    confirm: ({ userId, sealed, step, epoch, now }) =>
      expectChanges(
        query
          .updateTable('users')
          .set({
            totp_secret: sealed,
            totp_pending: null,
            totp_confirmed_at: now,
            totp_last_step: step,
            ...forgetFailures,
            access_epoch: epoch + 1,
            updated_at: now,
          })
          .where('id', '=', userId)
          .where('totp_pending', '=', sealed)
          .where('totp_secret', 'is', null)
          .where('access_epoch', '=', epoch)
          .compile(),
        1,
      ),
    remove: ({ userId, epoch, now }) => [
      expectChanges(
        query
          .updateTable('users')
          .set({
            totp_secret: null,
            totp_pending: null,
            totp_issued_at: null,
            totp_confirmed_at: null,
            access_epoch: epoch + 1,
            updated_at: now,
          })
          .where('id', '=', userId)
          .where('access_epoch', '=', epoch)
          .compile(),
        1,
      ),
      deleteCodes(userId).compile(),
    ],
  };
}
