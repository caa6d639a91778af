import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Statement } from '../../platform/database/statement.ts';
import type { BridgeSchema, SessionRow, TurnRow } from './bridge-schema.ts';
import { isAlive, isBefore } from './instance-and-route-stores.ts';

export interface EndedTurn {
  readonly id: string;
  readonly status: string;
  readonly outcome: string;
  readonly lastSeq: number;
  readonly now: number;
}

/** A turn that nobody runs any more, with what its session says. */
export interface DeadTurn {
  readonly turn: TurnRow;
  readonly session: SessionRow;
}

export interface TurnStore {
  /** A turn that waits, or one that has ended before it was stored. Changes nothing when the store knows it. */
  add(row: TurnRow): Statement;
  /** A turn that runs now, whether or not it has waited. */
  begin(row: TurnRow): Statement;
  /** Changes nothing when the turn has ended already. */
  end(ended: EndedTurn): Statement;
  /** Takes a turn away that has not ended. */
  discard(id: string): Statement;
  /** Turns of a session that were asked for with the same method and parameters, oldest first. */
  findSame(sessionKey: string, requestFingerprint: string): Promise<readonly TurnRow[]>;
  /** Turns of a session that were asked for with that key. */
  findByKey(sessionKey: string, idempotencyKey: string): Promise<readonly TurnRow[]>;
  /** The newest turn of a session. */
  latest(sessionKey: string): Promise<Pick<TurnRow, 'id' | 'method' | 'request_id'> | undefined>;
  /** Whether a session has that turn. */
  isOf(sessionKey: string, turnId: string): Promise<boolean>;
  /** What was asked in a session, oldest first: the last so many. */
  prompts(sessionKey: string, limit: number): Promise<readonly Pick<TurnRow, 'id' | 'prompt'>[]>;
  /** How a turn ended; undefined while it has not. */
  outcomeOf(id: string): Promise<Pick<TurnRow, 'outcome' | 'last_seq'> | undefined>;
  /** A turn that has not ended, with its session. */
  findOpen(id: string): Promise<DeadTurn | undefined>;
  /** Open turns of instances that are not this one and not among those that live, oldest first. */
  findDead(
    own: string,
    deadAfterMs: number | undefined,
    limit: number,
    judgedBy?: number,
  ): Promise<readonly DeadTurn[]>;
  /** Fails with STORAGE_CONFLICT when another instance has done it. */
  settleDead(dead: DeadTurn, ended: EndedTurn, update: Statement): Promise<void>;
}

export function createTurnStore(database: Database<BridgeSchema>): TurnStore {
  const insert = (onConflict: 'keep' | 'run') =>
    database.statement((query, given: TurnRow) => {
      return query
        .insertInto('turns')
        .values({ ...given })
        .onConflict((conflict) => {
          const same = conflict.column('id');
          return onConflict === 'keep'
            ? same.doNothing()
            : same
                .doUpdateSet({ status: given.status, base: given.base, attachments: given.attachments })
                // The log stores what it could not be sure of once more.
                .where('turns.ended_at', 'is', null);
        });
    });
  const add = insert('keep');
  const begin = insert('run');
  const end = database.statement((query, given: EndedTurn) =>
    query
      .updateTable('turns')
      .set({ status: given.status, outcome: given.outcome, last_seq: given.lastSeq, ended_at: given.now })
      .where('id', '=', given.id)
      .where('ended_at', 'is', null),
  );
  const discard = database.statement((query, given: { id: string }) =>
    query.deleteFrom('turns').where('id', '=', given.id).where('ended_at', 'is', null),
  );
  const findSame = database.statement((query, given: { sessionKey: string; requestFingerprint: string }) =>
    query
      .selectFrom('turns')
      .selectAll()
      .where('session_key', '=', given.sessionKey)
      .where('request_fingerprint', '=', given.requestFingerprint)
      .orderBy('id'),
  );
  const findByKey = database.statement((query, given: { sessionKey: string; idempotencyKey: string }) =>
    query
      .selectFrom('turns')
      .selectAll()
      .where('session_key', '=', given.sessionKey)
      .where('idempotency_key', '=', given.idempotencyKey)
      // As the index has it: it holds no others.
      .where('idempotency_key', '!=', sql.lit(''))
      .orderBy('id'),
  );
  return {
    add,
    begin,
    end,
    discard: (id) => discard({ id }),
    findSame: (sessionKey, requestFingerprint) => database.readKeyed(findSame({ sessionKey, requestFingerprint })),
    findByKey: (sessionKey, idempotencyKey) => database.readKeyed(findByKey({ sessionKey, idempotencyKey })),
    async isOf(sessionKey, turnId) {
      const turn = database.query.selectFrom('turns').select('id').where('id', '=', turnId);
      return (await database.readKeyed(turn.where('session_key', '=', sessionKey).compile())).length > 0;
    },
    async latest(sessionKey) {
      const newest = database.query
        .selectFrom('turns')
        .select(['id', 'method', 'request_id'])
        .where('session_key', '=', sessionKey)
        .orderBy('id', 'desc')
        .limit(1);
      return (await database.read(newest.compile()))[0];
    },
    async prompts(sessionKey, limit) {
      const newestFirst = database.query
        .selectFrom('turns')
        .select(['id', 'prompt'])
        .where('session_key', '=', sessionKey)
        .orderBy('id', 'desc')
        .limit(limit);
      return (await database.read(newestFirst.compile())).toReversed();
    },
    async outcomeOf(id) {
      const turn = database.query.selectFrom('turns').select(['outcome', 'last_seq']).where('id', '=', id);
      return (await database.readKeyed(turn.where('ended_at', 'is not', null).compile()))[0];
    },
    async findDead(own, deadAfterMs, limit, judgedBy) {
      const { query } = database;
      const alive = query.selectFrom('instances').select('id').where(isAlive(deadAfterMs));
      const turns = await database.readKeyed(
        query
          .selectFrom('turns')
          .selectAll()
          .where('ended_at', 'is', null)
          .where('instance', '!=', own)
          .where('instance', 'not in', alive)
          .where(isBefore(judgedBy))
          .orderBy('id')
          .limit(limit)
          .compile(),
      );
      const keys = [...new Set(turns.map((turn) => turn.session_key))];
      if (keys.length === 0) return [];
      const sessions = await database.readKeyed(
        query.selectFrom('sessions').selectAll().where('key', 'in', keys).compile(),
      );
      const byKey = new Map(sessions.map((session) => [session.key, session]));
      return turns.flatMap((turn) => {
        const session = byKey.get(turn.session_key);
        return session === undefined ? [] : [{ turn, session }];
      });
    },
    async findOpen(id) {
      const { query } = database;
      const open = query.selectFrom('turns').selectAll().where('id', '=', id).where('ended_at', 'is', null);
      const [turn] = await database.readKeyed(open.compile());
      if (turn === undefined) return undefined;
      const itsSession = query.selectFrom('sessions').selectAll().where('key', '=', turn.session_key);
      const [session] = await database.readKeyed(itsSession.compile());
      return session && { turn, session };
    },
    async settleDead({ turn, session }, ended, update) {
      const { query } = database;
      const release = query
        .updateTable('sessions')
        .set({ instance: '', reserved_seq: ended.lastSeq, epoch: sql<number>`epoch + 1`, updated_at: ended.now })
        .where('key', '=', session.key)
        .where('reserved_seq', '=', session.reserved_seq)
        .where('instance', 'in', ['', turn.instance])
        .compile();
      const summary = query
        .updateTable('session_summaries')
        .set({ last_turn: turn.id, last_status: ended.status, last_code: 'TURN_INTERRUPTED', doing: '' })
        .set(({ eb }) => ({ turns: eb('turns', '+', 1), last_seq: ended.lastSeq, updated_at: ended.now }))
        .where('session_key', '=', session.key)
        .compile();
      await database.write([expectChanges(end(ended), 1), expectChanges(release, 1), update, summary]);
    },
  };
}
