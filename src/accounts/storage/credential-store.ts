import type { Database, Transaction } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, CredentialKind, CredentialRow } from './accounts-schema.ts';
import { insertWithin } from './guarded-writes.ts';

export interface NewLink {
  readonly id: string;
  readonly userId: string;
  readonly provider: string;
  readonly providerUserId: string;
  readonly email: string;
  readonly now: number;
}

interface NewPasskey extends Pick<CredentialRow, 'id' | 'subject' | 'value' | 'label' | 'counter'> {
  readonly userId: string;
  readonly now: number;
}

/** Everything that proves who someone is: password, authenticator app, recovery codes, accounts elsewhere, passkeys. */
export interface CredentialStore {
  find(kind: CredentialKind, subject: string): Promise<CredentialRow | undefined>;
  ofUser(userId: string, kind?: CredentialKind): Promise<CredentialRow[]>;
  noteUse(kind: CredentialKind, subject: string, now: number): Runnable;

  /** Sets the password, whether or not there was one. `confirmed`: by a token that was mailed to its owner. */
  setPassword(change: { userId: string; hash: string; confirmed: boolean; now: number }): Runnable;
  /** The same password under newer parameters; changes nothing when the password was replaced since. */
  rehash(change: { userId: string; before: string; after: string }): Runnable;

  /** Stores a secret that becomes active with its first code; undoes the batch if one is active already. */
  setPendingTotp(change: { userId: string; sealed: string; now: number }): Runnable;
  /** Activates the pending secret; undoes the batch when another one is pending by now. */
  confirmTotp(change: { userId: string; sealed: string; step: number; now: number }): Runnable;
  /** Accepts the code of a time step once, on all instances: undoes the batch for a step that is not newer. */
  acceptStep(userId: string, step: number, now: number): Runnable;
  /** Removes authenticator app and recovery codes. */
  removeSecondFactor(userId: string): Runnable;

  hasRecoveryCode(userId: string, codeHash: string): Promise<boolean>;
  /** Uses a recovery code up, once. */
  takeRecoveryCode(userId: string, codeHash: string): Runnable;
  countRecoveryCodes(userId: string): Promise<number>;
  replaceRecoveryCodes(userId: string, codeHashes: readonly string[], now: number): readonly Runnable[];

  addLink(link: NewLink): Runnable;
  /** Undoes the batch when the user has `most` passkeys. */
  addPasskey(passkey: NewPasskey, most: number): readonly Runnable[];
  /** Notes a use; undoes the batch when the passkey was used or removed since it was read. */
  usePasskey(use: { subject: string; userId: string; before: number; after: number; now: number }): Runnable;
  /** Removes linked accounts and passkeys, which someone else may have added. */
  removeLinks(userId: string): Runnable;
  /**
   * Removes one credential with the statements that `decide` returns; `decide` throws to refuse. Runs in a transaction, so
   * that two concurrent removals cannot each rely on the credential that the other one removes.
   */
  remove(
    given: { readonly id: string; readonly userId: string },
    decide: (removed: CredentialRow, rest: readonly CredentialRow[]) => readonly Runnable[],
  ): Promise<CredentialRow | undefined>;
}

export function createCredentialStore(database: Database<AccountsSchema>): CredentialStore {
  const { query } = database;
  const find = database.statement((select, given: { kind: string; subject: string }) =>
    select.selectFrom('credentials').selectAll().where('kind', '=', given.kind).where('subject', '=', given.subject),
  );
  const noteUse = database.statement((update, given: { kind: string; subject: string; now: number }) =>
    update
      .updateTable('credentials')
      .set({ last_used_at: given.now })
      .where('kind', '=', given.kind)
      .where('subject', '=', given.subject),
  );
  const deleteOf = (userId: string) => query.deleteFrom('credentials').where('user_id', '=', userId);
  const recoveryCodes = (userId: string) =>
    query.selectFrom('credentials').where('user_id', '=', userId).where('kind', '=', 'recovery_code');

  return {
    find: async (kind, subject) => (await database.readKeyed(find({ kind, subject })))[0],
    ofUser(userId, kind) {
      const select = query.selectFrom('credentials').selectAll().where('user_id', '=', userId).orderBy('created_at');
      return database.readKeyed((kind === undefined ? select : select.where('kind', '=', kind)).compile());
    },
    noteUse: (kind, subject, now) => noteUse({ kind, subject, now }),

    setPassword({ userId, hash, confirmed, now }) {
      const confirmed_at = confirmed ? now : null;
      return query
        .insertInto('credentials')
        .values({ ...blank('password', `pwd_${userId}`, userId, now), subject: userId, value: hash, confirmed_at })
        .onConflict((conflict) =>
          conflict
            .columns(['kind', 'subject'])
            .doUpdateSet({ value: hash, created_at: now, confirmed_at, last_used_at: null }),
        )
        .compile();
    },
    rehash: ({ userId, before, after }) =>
      query
        .updateTable('credentials')
        .set({ value: after })
        .where('kind', '=', 'password')
        .where('subject', '=', userId)
        .where('value', '=', before)
        .compile(),

    setPendingTotp: ({ userId, sealed, now }) =>
      expectChanges(
        query
          .insertInto('credentials')
          .values({ ...blank('totp', `totp_${userId}`, userId, now), subject: userId, value: sealed, state: 'pending' })
          .onConflict((conflict) =>
            conflict
              .columns(['kind', 'subject'])
              .doUpdateSet({ value: sealed, created_at: now })
              .where('credentials.state', '=', 'pending'),
          )
          .compile(),
        1,
      ),
    confirmTotp: ({ userId, sealed, step, now }) =>
      expectChanges(
        query
          .updateTable('credentials')
          .set({ state: 'active', counter: step, confirmed_at: now, last_used_at: now })
          .where('kind', '=', 'totp')
          .where('subject', '=', userId)
          .where('value', '=', sealed)
          .where('state', '=', 'pending')
          .compile(),
        1,
      ),
    acceptStep: (userId, step, now) =>
      expectChanges(
        query
          .updateTable('credentials')
          .set({ counter: step, last_used_at: now })
          .where('kind', '=', 'totp')
          .where('subject', '=', userId)
          .where('state', '=', 'active')
          .where('counter', '<', step)
          .compile(),
        1,
      ),
    removeSecondFactor: (userId) => deleteOf(userId).where('kind', 'in', ['totp', 'recovery_code']).compile(),

    async hasRecoveryCode(userId, codeHash) {
      const found = recoveryCodes(userId).select('id').where('subject', '=', codeHash);
      return (await database.readKeyed(found.compile())).length > 0;
    },
    takeRecoveryCode: (userId, codeHash) =>
      expectChanges(deleteOf(userId).where('kind', '=', 'recovery_code').where('subject', '=', codeHash).compile(), 1),
    async countRecoveryCodes(userId) {
      const count = recoveryCodes(userId).select((build) => build.fn.countAll<number>().as('count'));
      return Number((await database.readKeyed(count.compile()))[0]?.count ?? 0);
    },
    replaceRecoveryCodes: (userId, codeHashes, now) => [
      deleteOf(userId).where('kind', '=', 'recovery_code').compile(),
      query
        .insertInto('credentials')
        .values(codeHashes.map((hash) => ({ ...blank('recovery_code', `rec_${hash}`, userId, now), subject: hash })))
        .compile(),
    ],

    addLink: ({ id, userId, provider, providerUserId, email, now }) =>
      query
        .insertInto('credentials')
        .values({ ...blank('oauth', id, userId, now), subject: linkSubject(provider, providerUserId), label: email })
        .compile(),
    addPasskey({ userId, now, id, ...passkey }, most) {
      const row = { ...blank('passkey', id, userId, now), ...passkey };
      return insertWithin(database, query.insertInto('credentials').values(row).compile(), {
        name: `passkeys of ${userId}`,
        rows: query.selectFrom('credentials').where('user_id', '=', userId).where('kind', '=', 'passkey'),
        most,
      });
    },
    usePasskey: ({ subject, userId, before, after, now }) =>
      expectChanges(
        query
          .updateTable('credentials')
          .set({ counter: after, last_used_at: now })
          .where('kind', '=', 'passkey')
          .where('subject', '=', subject)
          .where('user_id', '=', userId)
          .where('counter', '=', before)
          .compile(),
        1,
      ),
    removeLinks: (userId) => deleteOf(userId).where('kind', 'in', ['oauth', 'passkey']).compile(),
    remove: ({ id, userId }, decide) =>
      database.transaction(async (transaction: Transaction<AccountsSchema>) => {
        const owned = query.selectFrom('credentials').selectAll().where('user_id', '=', userId);
        const { rows } = await transaction.run(owned.compile());
        const removed = rows.find((row) => row.id === id);
        if (removed === undefined) return undefined;
        const also = decide(
          removed,
          rows.filter((row) => row !== removed),
        );
        await transaction.run(deleteOf(userId).where('id', '=', id).compile());
        for (const statement of also) await transaction.run(statement);
        return removed;
      }),
  };
}

/** A provider's namespace has no space in it, so the first one ends it. */
export function linkSubject(provider: string, providerUserId: string): string {
  return `${provider} ${providerUserId}`;
}

function blank(kind: CredentialKind, id: string, userId: string, now: number): CredentialRow {
  const empty = { value: '', state: 'active', label: '', counter: 0, confirmed_at: null, last_used_at: null };
  return { id, user_id: userId, kind, subject: '', created_at: now, ...empty };
}
