import { join } from 'node:path';
import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { tokenKey } from '../../../src/accounts/flows.ts';
import { FAMILY_LIFETIME_MS, REFRESH_LIFETIME_MS } from '../../../src/accounts/login/session-opening.ts';
import { newUserRow } from '../../../src/accounts/registration/new-user.ts';
import { accountsMigrations } from '../../../src/accounts/storage/accounts-migrations.ts';
import type { UserCountRow, UserRow } from '../../../src/accounts/storage/accounts-schema.ts';
import { DAY_MS, dayOf } from '../../../src/accounts/storage/user-store.ts';
import { keyDigest } from '../../../src/completions/keys/key-register.ts';
import { completionsMigrations } from '../../../src/completions/storage/completions-migrations.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import type { Migration } from '../../../src/platform/database/migrations.ts';
import { openDatabase } from '../../../src/platform/database/open-database.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';

export interface Seeding {
  /** Of the data directory. */
  readonly folder: string;
  readonly users: number;
  /** The password of all of them, hashed; nobody can log in by password without. */
  readonly passwordHash?: string;
  /** Each user also has an access token and a key, and is in a team with nine others. */
  readonly isWhole?: boolean;
}

/** Users registered evenly over this time. */
const SPREAD_MS = 365 * DAY_MS;
const SEEN_AHEAD_MS = 3_600_000;
const ROWS_PER_TRANSACTION = 20_000;
const USERS_PER_TEAM = 10;

/** Users are numbered from 0; the last one is the root user. */
export function emailOf(index: number): string {
  return `person.${index}@example.org`;
}

/** The session token of a user. */
export function sessionTokenOf(index: number): string {
  return `bench-session-${String(index).padStart(29, '0')}`;
}

/** The access token of a user. */
export function accessTokenOf(index: number): string {
  return `tpt_${String(index).padStart(43, '0')}`;
}

/** The key of a user. */
export function keyOf(index: number): string {
  return `tsk_${String(index).padStart(43, '0')}`;
}

/** The id of the team that a user is in. */
export function teamOf(index: number): string {
  return `team_${String(Math.floor(index / USERS_PER_TEAM)).padStart(26, '0')}`;
}

/**
 * Fills a new data directory with users who each have a session and an audit entry, as they would have after logging in.
 * Through SQLite itself, without a journal, and with indexes that are built at the end, so that a million users take minutes.
 * Without statistics, which the program does not collect either: with them, the engine plans for a small file otherwise than for a large one.
 */
export async function seedAccounts({ folder, users, passwordHash, isWhole = false }: Seeding): Promise<void> {
  const accounts = await openRaw(join(folder, 'accounts.db'), 'accounts', accountsMigrations);
  const completions = isWhole
    ? await openRaw(join(folder, 'completions.db'), 'completions', completionsMigrations)
    : undefined;
  const { insert } = accounts;
  const counts = new Map<string, UserCountRow>();
  const now = Date.now();
  let at = now;
  const makeId = createSortableIds({ now: () => at }, systemRandomness);
  for (let index = 0; index < users; index += 1) {
    at = Math.floor(now - SPREAD_MS * (1 - (index + 1) / users));
    const role = index === users - 1 ? 'root' : 'user';
    const row = newUserRow(
      {
        name: `person ${index}`,
        email: emailOf(index),
        emailVerified: true,
        confirmed: true,
        passwordHash: passwordHash ?? null,
        role,
        now: at,
      },
      makeId,
      systemRandomness,
    );
    const { password_hash: hash, totp_state: _, totp_issued_at: __, totp_confirmed_at: ___, ...user } = row;
    insert('users', { ...user, teams: isWhole ? 1 : 0 });
    if (hash !== null) insert('credentials', passwordRow(user.id, hash, at));
    count(counts, row);
    addSession(insert, makeId('ses_'), row, index, now);
    insert('audit', auditEntry(makeId('aud_'), row, at));
    if (completions !== undefined) {
      insert('access_tokens', tokenRow(makeId('tok_'), user.id, index, now));
      joinTeam(insert, user.id, index, at);
      completions.insert('keys', keyRow(makeId('key_'), user.id, index, at));
    }
  }
  for (const row of counts.values()) insert('user_counts', { ...row });
  accounts.close();
  completions?.close();
}

/** The settings as they are by default. */
export const SESSIONS = { idle: 12 * 3_600_000, cookie_lifetime: 30 * 86_400_000, token_lifetime: 86_400_000 };

function passwordRow(userId: string, value: string, at: number): Row {
  const rest = { label: '', counter: 0, created_at: at, confirmed_at: null, last_used_at: null };
  return { id: `pwd_${userId}`, user_id: userId, kind: 'password', subject: userId, value, state: 'active', ...rest };
}

type Row = Readonly<Record<string, SQLInputValue>>;
type Insert = (table: string, row: Row) => void;

/** A database of the newest form, for inserts that nothing waits for. */
async function openRaw(file: string, name: string, migrations: readonly Migration[]) {
  const database = await openDatabase({
    name,
    migrations,
    location: { engine: 'sqlite', file },
    clock: systemClock,
  });
  await database.close();
  const raw = new DatabaseSync(file);
  raw.exec(
    'PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -524288; PRAGMA temp_store = MEMORY',
  );
  const indexes = raw.prepare("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").all();
  for (const { name } of indexes) raw.exec(`DROP INDEX "${name}"`);
  raw.exec('BEGIN');
  const statements = new Map<string, ReturnType<DatabaseSync['prepare']>>();
  let rows = 0;
  const insert: Insert = (table, row) => {
    let statement = statements.get(table);
    if (statement === undefined) {
      const columns = Object.keys(row);
      const names = columns.map((column) => `"${column}"`).join(', ');
      statement = raw.prepare(`INSERT INTO "${table}" (${names}) VALUES (${columns.map(() => '?').join(', ')})`);
      statements.set(table, statement);
    }
    statement.run(...Object.values(row));
    rows += 1;
    if (rows % ROWS_PER_TRANSACTION === 0) raw.exec('COMMIT; BEGIN');
  };
  const close = () => {
    raw.exec('COMMIT');
    for (const { sql } of indexes) raw.exec(String(sql));
    raw.close();
  };
  return { insert, close };
}

function tokenRow(id: string, userId: string, index: number, now: number): Row {
  const token = accessTokenOf(index);
  const what = { owner: `user:${userId}`, name: 'bench', scopes: '["completions"]', team: '' };
  const times = { created_at: now, expires_at: now + 90 * DAY_MS, last_used_at: now };
  return { id, token_hash: tokenKey(token), hint: token.slice(0, 8), ...what, ...times };
}

function keyRow(id: string, userId: string, index: number, at: number): Row {
  const key = keyOf(index);
  const limits = { requests_per_minute: null, tokens_per_minute: null, budget_usd: null, budget_period: null };
  const what = { owner: `user:${userId}`, team: '', name: 'bench', digest: keyDigest(key), hint: key.slice(0, 8) };
  return { id, ...what, models: '[]', ...limits, expires_at: null, created_at: at };
}

function joinTeam(insert: Insert, userId: string, index: number, at: number): void {
  const id = teamOf(index);
  const isFirst = index % USERS_PER_TEAM === 0;
  if (isFirst) insert('teams', { id, name: id, name_key: id, plan: '', budget: '', created_at: at, updated_at: at });
  insert('team_members', { team_id: id, user_id: userId, role: isFirst ? 'owner' : 'member', created_at: at });
}

function addSession(insert: Insert, id: string, user: UserRow, index: number, now: number): void {
  insert('sessions', {
    id,
    user_id: user.id,
    epoch: user.access_epoch,
    generation: 0,
    created_at: now,
    // However long the seeding takes, nobody's use is due to be noted while something is measured.
    last_seen_at: now + SEEN_AHEAD_MS,
    access_expires_at: now + SESSIONS.token_lifetime,
    expires_at: now + REFRESH_LIFETIME_MS,
    family_expires_at: now + FAMILY_LIFETIME_MS,
    address: '127.0.0.1',
    user_agent: 'bench',
  });
  const token_hash = tokenKey(sessionTokenOf(index));
  insert('session_tokens', {
    token_hash,
    session_id: id,
    expires_at: now + SESSIONS.cookie_lifetime,
    bearer_until: now + SESSIONS.token_lifetime,
  });
}

function auditEntry(id: string, user: UserRow, at: number): Row {
  const details = JSON.stringify({ how: 'password' });
  const who = { actor: user.id, subject: user.id, address: '127.0.0.1', request_id: 'bench' };
  return { id, at, event: 'login', ...who, details };
}

function count(counts: Map<string, UserCountRow>, { created_at, role }: UserRow): void {
  const day = dayOf(created_at);
  const { total = 0 } = counts.get(`${day} ${role}`) ?? {};
  counts.set(`${day} ${role}`, { day, role, total: total + 1, active: total + 1, subscribed: 0 });
}
