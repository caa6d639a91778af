import { join } from 'node:path';
import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { tokenKey } from '../../../src/accounts/flows.ts';
import { FAMILY_LIFETIME_MS, REFRESH_LIFETIME_MS } from '../../../src/accounts/login/session-opening.ts';
import { newUserRow } from '../../../src/accounts/registration/new-user.ts';
import { accountsMigrations } from '../../../src/accounts/storage/accounts-migrations.ts';
import type { UserCountRow, UserRow } from '../../../src/accounts/storage/accounts-schema.ts';
import { DAY_MS, dayOf } from '../../../src/accounts/storage/user-store.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { openDatabase } from '../../../src/platform/database/open-database.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';

export interface Seeding {
  /** Of the data directory. */
  readonly folder: string;
  readonly users: number;
  /** The password of all of them, hashed; nobody can log in by password without. */
  readonly passwordHash?: string;
}

/** Users registered evenly over this time. */
const SPREAD_MS = 365 * DAY_MS;
const SEEN_AHEAD_MS = 3_600_000;
const ROWS_PER_TRANSACTION = 20_000;

/** Users are numbered from 0; the last one is the root user. */
export function emailOf(index: number): string {
  return `person.${index}@example.org`;
}

/** The session token of a user. */
export function sessionTokenOf(index: number): string {
  return `bench-session-${String(index).padStart(29, '0')}`;
}

/**
 * Fills a new data directory with users who each have a session and an audit entry, as they would have after logging in.
 * Through SQLite itself and without waiting for the disk: a million users take a minute instead of ten.
 */
export async function seedAccounts({ folder, users, passwordHash }: Seeding): Promise<void> {
  const file = join(folder, 'accounts.db');
  const database = await openDatabase({
    name: 'accounts',
    migrations: accountsMigrations,
    location: { engine: 'sqlite', file },
    clock: systemClock,
  });
  await database.close();
  const raw = new DatabaseSync(file);
  raw.exec('PRAGMA synchronous = OFF; PRAGMA cache_size = -262144');
  const insert = inserter(raw);
  const counts = new Map<string, UserCountRow>();
  const now = Date.now();
  let at = now;
  const makeId = createSortableIds({ now: () => at }, systemRandomness);
  raw.exec('BEGIN');
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
    insert('users', { ...user });
    if (hash !== null) insert('credentials', passwordRow(user.id, hash, at));
    count(counts, row);
    addSession(insert, makeId('ses_'), row, index, now);
    insert('audit', auditEntry(makeId('aud_'), row, at));
    if (index % ROWS_PER_TRANSACTION === 0) raw.exec('COMMIT; BEGIN');
  }
  for (const row of counts.values()) insert('user_counts', { ...row });
  raw.exec('COMMIT; PRAGMA wal_checkpoint(TRUNCATE); ANALYZE');
  raw.close();
}

/** The settings as they are by default. */
export const SESSIONS = { idle: 12 * 3_600_000, cookie_lifetime: 30 * 86_400_000, token_lifetime: 86_400_000 };

function passwordRow(userId: string, value: string, at: number): Row {
  const rest = { label: '', counter: 0, created_at: at, confirmed_at: null, last_used_at: null };
  return { id: `pwd_${userId}`, user_id: userId, kind: 'password', subject: userId, value, state: 'active', ...rest };
}

type Row = Readonly<Record<string, SQLInputValue>>;
type Insert = (table: string, row: Row) => void;

function inserter(raw: DatabaseSync): Insert {
  const statements = new Map<string, ReturnType<DatabaseSync['prepare']>>();
  return (table, row) => {
    let statement = statements.get(table);
    if (statement === undefined) {
      const columns = Object.keys(row);
      const names = columns.map((name) => `"${name}"`).join(', ');
      statement = raw.prepare(`INSERT INTO "${table}" (${names}) VALUES (${columns.map(() => '?').join(', ')})`);
      statements.set(table, statement);
    }
    statement.run(...Object.values(row));
  };
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
