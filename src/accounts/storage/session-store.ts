import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, FoundUser, RefreshTokenRow, SessionRow } from './accounts-schema.ts';

/** A session and its user, as one keyed read finds them by a token. */
export interface FoundSession extends FoundUser {
  readonly session_id: string;
  readonly session_epoch: number;
  readonly session_created_at: number;
  readonly session_last_seen_at: number;
  readonly access_expires_at: number;
  readonly token_expires_at: number;
  readonly bearer_until: number;
}

export interface FoundRefreshToken extends RefreshTokenRow {
  readonly user_id: string;
  readonly current_generation: number;
  readonly family_expires_at: number;
  readonly session_epoch: number;
}

export interface NewSession extends Omit<SessionRow, 'generation'> {
  /** When the token ends as a cookie; as a bearer token it ends with `access_expires_at`. */
  readonly cookieExpiresAt: number;
  readonly tokenHash: string;
  readonly refreshHash: string;
}

export interface Rotation {
  readonly sessionId: string;
  readonly generation: number;
  readonly usedHash: string;
  readonly tokenHash: string;
  readonly refreshHash: string;
  readonly accessExpiresAt: number;
  readonly cookieExpiresAt: number;
  readonly refreshExpiresAt: number;
  /** Until when the session tokens of before still count. */
  readonly oldTokensEndAt: number;
  readonly replacement: string;
  readonly now: number;
}

export interface SessionStore {
  byToken(tokenHash: string): Promise<FoundSession | undefined>;
  byRefreshToken(tokenHash: string): Promise<FoundRefreshToken | undefined>;
  /** Undoes the batch when the session has ended. */
  expectLive(session: { id: string; userId: string; epoch: number; now: number }): Runnable;
  /** The first statement changes nothing, and so undoes the batch, unless the user is active and has that epoch. */
  start(session: NewSession): readonly Runnable[];
  /** The first statement undoes the batch when another call was quicker. */
  rotate(rotation: Rotation): readonly Runnable[];
  /** All sessions of a user that can still be used, newest first. */
  ofUser(userId: string, epoch: number, now: number): Promise<SessionRow[]>;
  /** Ends one session of a user. */
  end(session: { id: string; userId: string }): Runnable;
  endAllOf(userId: string): Runnable;
  endOthersOf(session: { id: string; userId: string }): Runnable;
  /** Carries one session over to the next epoch of its user, which has just begun. */
  carryOver(session: { id: string; epoch: number }): Runnable;
  /** Notes that it was used, and keeps it at least until the given time. */
  touch(session: { id: string; now: number; until: number }): Runnable;
}

export function createSessionStore(database: Database<AccountsSchema>): SessionStore {
  const { query } = database;
  const byToken = database.statement((select, given: { tokenHash: string }) =>
    select
      .selectFrom('session_tokens')
      .innerJoin('sessions', 'sessions.id', 'session_tokens.session_id')
      .innerJoin('users', 'users.id', 'sessions.user_id')
      .leftJoin('credentials as totp', (join) =>
        join.onRef('totp.subject', '=', 'users.id').on('totp.kind', '=', 'totp'),
      )
      .selectAll('users')
      .select([
        'totp.state as totp_state',
        'totp.created_at as totp_issued_at',
        'totp.confirmed_at as totp_confirmed_at',
        'sessions.id as session_id',
        'sessions.epoch as session_epoch',
        'sessions.created_at as session_created_at',
        'sessions.last_seen_at as session_last_seen_at',
        'sessions.access_expires_at as access_expires_at',
        'session_tokens.expires_at as token_expires_at',
        'session_tokens.bearer_until as bearer_until',
      ])
      .where('session_tokens.token_hash', '=', given.tokenHash),
  );
  const byRefreshToken = database.statement((select, given: { tokenHash: string }) =>
    select
      .selectFrom('refresh_tokens')
      .innerJoin('sessions', 'sessions.id', 'refresh_tokens.session_id')
      .selectAll('refresh_tokens')
      .select([
        'sessions.user_id as user_id',
        'sessions.generation as current_generation',
        'sessions.family_expires_at as family_expires_at',
        'sessions.epoch as session_epoch',
      ])
      .where('refresh_tokens.token_hash', '=', given.tokenHash),
  );
  const insertSession = database.statement((insert, given: Omit<SessionRow, 'generation'>) =>
    insert
      .insertInto('sessions')
      .columns([
        'id',
        'user_id',
        'epoch',
        'generation',
        'created_at',
        'last_seen_at',
        'access_expires_at',
        'expires_at',
        'family_expires_at',
        'address',
        'user_agent',
      ])
      .expression((build) =>
        build
          .selectFrom('users')
          .select([
            sql<string>`cast(${given.id} as text)`.as('new_id'),
            'users.id as user_id',
            'users.access_epoch as epoch',
            sql<number>`0`.as('generation'),
            integer(given.created_at).as('new_created_at'),
            integer(given.last_seen_at).as('new_last_seen_at'),
            integer(given.access_expires_at).as('new_access_expires_at'),
            integer(given.expires_at).as('new_expires_at'),
            integer(given.family_expires_at).as('new_family_expires_at'),
            sql<string>`cast(${given.address} as text)`.as('new_address'),
            sql<string>`cast(${given.user_agent} as text)`.as('new_user_agent'),
          ])
          .where('users.id', '=', given.user_id)
          .where('users.access_epoch', '=', given.epoch)
          .where('users.active', '=', 1),
      ),
  );
  const insertToken = database.statement(
    (insert, given: { tokenHash: string; sessionId: string; expiresAt: number; bearerUntil: number }) =>
      insert.insertInto('session_tokens').values({
        token_hash: given.tokenHash,
        session_id: given.sessionId,
        expires_at: given.expiresAt,
        bearer_until: given.bearerUntil,
      }),
  );
  const insertRefreshToken = database.statement(
    (insert, given: { tokenHash: string; sessionId: string; generation: number; expiresAt: number }) =>
      insert.insertInto('refresh_tokens').values({
        token_hash: given.tokenHash,
        session_id: given.sessionId,
        generation: given.generation,
        expires_at: given.expiresAt,
        used_at: null,
        replacement: null,
      }),
  );
  const touch = database.statement((update, given: { id: string; now: number; until: number }) =>
    update
      .updateTable('sessions')
      .set({
        last_seen_at: given.now,
        expires_at: sql<number>`case when expires_at < ${integer(given.until)} then ${integer(given.until)} else expires_at end`,
      })
      .where('id', '=', given.id)
      .where('last_seen_at', '<', given.now),
  );

  return {
    byToken: async (tokenHash) => (await database.readKeyed(byToken({ tokenHash })))[0],
    byRefreshToken: async (tokenHash) => (await database.readKeyed(byRefreshToken({ tokenHash })))[0],
    expectLive: ({ id, userId, epoch, now }) =>
      expectChanges(
        query
          .selectFrom('sessions')
          .select('id')
          .where('id', '=', id)
          .where('user_id', '=', userId)
          .where('epoch', '=', epoch)
          .where('expires_at', '>', now)
          .compile(),
        1,
      ),
    start: ({ tokenHash, refreshHash, cookieExpiresAt, ...session }) => [
      expectChanges(insertSession(session), 1),
      insertToken({
        tokenHash,
        sessionId: session.id,
        expiresAt: Math.max(cookieExpiresAt, session.access_expires_at),
        bearerUntil: session.access_expires_at,
      }),
      insertRefreshToken({
        tokenHash: refreshHash,
        sessionId: session.id,
        generation: 0,
        expiresAt: session.expires_at,
      }),
    ],
    rotate(rotation) {
      const { sessionId, generation, now, oldTokensEndAt } = rotation;
      const advance = query
        .updateTable('sessions')
        .set({
          generation: generation + 1,
          last_seen_at: now,
          access_expires_at: rotation.accessExpiresAt,
          expires_at: rotation.refreshExpiresAt,
        })
        .where('id', '=', sessionId)
        .where('generation', '=', generation);
      const use = query
        .updateTable('refresh_tokens')
        .set({ used_at: now, replacement: rotation.replacement })
        .where('token_hash', '=', rotation.usedHash);
      const endOldTokens = query
        .updateTable('session_tokens')
        .set({ expires_at: oldTokensEndAt })
        .where('session_id', '=', sessionId)
        .where('expires_at', '>', oldTokensEndAt);
      return [
        expectChanges(advance.compile(), 1),
        expectChanges(use.compile(), 1),
        endOldTokens.compile(),
        insertToken({
          tokenHash: rotation.tokenHash,
          sessionId,
          expiresAt: Math.max(rotation.cookieExpiresAt, rotation.accessExpiresAt),
          bearerUntil: rotation.accessExpiresAt,
        }),
        insertRefreshToken({
          tokenHash: rotation.refreshHash,
          sessionId,
          generation: generation + 1,
          expiresAt: rotation.refreshExpiresAt,
        }),
      ];
    },
    ofUser: (userId, epoch, now) =>
      database.readKeyed(
        query
          .selectFrom('sessions')
          .selectAll()
          .where('user_id', '=', userId)
          .where('epoch', '=', epoch)
          .where('expires_at', '>', now)
          .orderBy('id', 'desc')
          .limit(LISTED)
          .compile(),
      ),
    end: ({ id, userId }) => query.deleteFrom('sessions').where('id', '=', id).where('user_id', '=', userId).compile(),
    endAllOf: (userId) => query.deleteFrom('sessions').where('user_id', '=', userId).compile(),
    endOthersOf: ({ id, userId }) =>
      query.deleteFrom('sessions').where('user_id', '=', userId).where('id', '<>', id).compile(),
    carryOver: ({ id, epoch }) =>
      query
        .updateTable('sessions')
        .set({ epoch: epoch + 1 })
        .where('id', '=', id)
        .where('epoch', '=', epoch)
        .compile(),
    touch,
  };
}

/** Far more than anyone has; the list of one user stays a small answer. */
const LISTED = 500;

/** PostgreSQL takes a bare parameter in a select list for text. */
function integer(value: number) {
  return sql<number>`cast(${value} as bigint)`;
}

export interface DeviceStore {
  has(userId: string, deviceHash: string): Promise<boolean>;
  remember(device: { userId: string; deviceHash: string; now: number }): Runnable;
  forgetAllOf(userId: string): Runnable;
}

export function createDeviceStore(database: Database<AccountsSchema>): DeviceStore {
  const { query } = database;
  const find = database.statement((select, given: { userId: string; deviceHash: string }) =>
    select
      .selectFrom('devices')
      .select('user_id')
      .where('user_id', '=', given.userId)
      .where('device_hash', '=', given.deviceHash),
  );
  const remember = database.statement((insert, given: { userId: string; deviceHash: string; now: number }) =>
    insert
      .insertInto('devices')
      .values({
        user_id: given.userId,
        device_hash: given.deviceHash,
        created_at: given.now,
        last_seen_at: given.now,
      })
      .onConflict((conflict) => conflict.columns(['user_id', 'device_hash']).doUpdateSet({ last_seen_at: given.now })),
  );
  return {
    has: async (userId, deviceHash) => (await database.readKeyed(find({ userId, deviceHash }))).length > 0,
    remember,
    forgetAllOf: (userId) => query.deleteFrom('devices').where('user_id', '=', userId).compile(),
  };
}
