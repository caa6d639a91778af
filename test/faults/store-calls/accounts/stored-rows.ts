import type {
  AccountsSchema,
  CredentialKind,
  CredentialRow,
  UserRow,
} from '../../../../src/accounts/storage/accounts-schema.ts';
import type { RunningAccounts } from '../../../kit/accounts/start-accounts.ts';
import type { Stored } from '../check-steps.ts';
import { storedOf } from '../stored-of.ts';

type Store = Pick<RunningAccounts, 'database'>;

export async function userOf({ database }: Store, email: string): Promise<UserRow | undefined> {
  return database.query.selectFrom('users').selectAll().where('email', '=', email).executeTakeFirst();
}

export async function credentialOf(
  { database }: Store,
  userId: string,
  kind: CredentialKind,
): Promise<CredentialRow | undefined> {
  const select = database.query.selectFrom('credentials').selectAll().where('user_id', '=', userId);
  return select.where('kind', '=', kind).executeTakeFirst();
}

/** Ids of the sessions of a user, those that were opened last at the end. */
export async function sessionsOf({ database }: Store, userId: string): Promise<readonly string[]> {
  const rows = await database.query
    .selectFrom('sessions')
    .select('id')
    .where('user_id', '=', userId)
    .orderBy('id')
    .execute();
  return rows.map(({ id }) => id);
}

/** Whether the user has sessions that were not there before, each with what it is used with. */
export async function openedSince(accounts: Store, userId: string, before: readonly string[]): Promise<Stored> {
  const opened = (await sessionsOf(accounts, userId)).filter((id) => !before.includes(id));
  if (opened.length === 0) return 'none';
  const { query } = accounts.database;
  const tokens = await query
    .selectFrom('session_tokens')
    .select('session_id')
    .where('session_id', 'in', opened)
    .execute();
  const refresh = await query
    .selectFrom('refresh_tokens')
    .select('session_id')
    .where('session_id', 'in', opened)
    .execute();
  return storedOf(new Set(tokens.map(idOf)).size === opened.length, new Set(refresh.map(idOf)).size === opened.length);
}

export async function rowsIn({ database }: Store, table: keyof AccountsSchema): Promise<number> {
  const { count } = await database.query
    .selectFrom(table)
    .select((build) => build.fn.countAll<number>().as('count'))
    .executeTakeFirstOrThrow();
  return Number(count);
}

function idOf({ session_id }: { readonly session_id: string }): string {
  return session_id;
}
