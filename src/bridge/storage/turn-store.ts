import { type Kysely, sql } from 'kysely';
import type { Database, Transaction } from '../../platform/database/database.ts';
import { expectChanges, type Runnable, type Statement } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { BridgeSchema, SessionRow, TurnRow } from './bridge-schema.ts';
import { isAlive, isBefore } from './instance-and-route-stores.ts';

export interface EndedTurn {
  readonly id: string;
  readonly status: string;
  readonly outcome: string;
  readonly lastSeq: number;
  readonly now: number;
}

/** A turn that no bridge runs any more, with its session. */
export interface DeadTurn {
  readonly turn: TurnRow;
  readonly session: SessionRow;
}

/** Selects the turns that no bridge runs any more. */
export interface DeadTurnSearch {
  /** This instance: its own turns live. */
  readonly own: string;
  /** Instances without a heartbeat for this long have ended; undefined: all others have. */
  readonly deadAfterMs: number | undefined;
  /** By the clock of the database: a later search finds nothing. */
  readonly judgedBy: number;
  readonly limit: number;
}

/** How dead turns end, and what stores the update that says so for each of them. */
export interface DeadTurnEnds {
  readonly ends: readonly (Omit<EndedTurn, 'status' | 'now'> & DeadTurn)[];
  readonly updates: readonly Statement[];
  readonly now: number;
}

export interface TurnStore {
  /** A turn that waits, or one that has ended before it was stored. Changes nothing when the store knows it. */
  add(row: TurnRow): Statement;
  /** A turn that runs now, whether or not it has waited. */
  begin(row: TurnRow): Statement;
  /** Changes nothing when the turn has ended already. */
  end(ended: EndedTurn): Statement;
  /** Deletes a turn that has not ended. */
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
  /** Ends a turn that nobody runs any more. Fails with STORAGE_CONFLICT when another instance has done it. */
  settleOpen(open: DeadTurn, ended: EndedTurn, update: Statement): Promise<void>;
  /**
   * Ends as failed, in one transaction, the oldest of the turns that nobody runs any more; answers which. They are
   * found and ended in a few statements, however many they are. `end` may be called more than once. Fails with
   * STORAGE_CONFLICT when other instances do the same.
   */
  settleDead(search: DeadTurnSearch, end: (dead: readonly DeadTurn[]) => DeadTurnEnds): Promise<DeadTurnEnds['ends']>;
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
    async findOpen(id) {
      const { query } = database;
      const open = query.selectFrom('turns').selectAll().where('id', '=', id).where('ended_at', 'is', null);
      const [turn] = await database.readKeyed(open.compile());
      if (turn === undefined) return undefined;
      const itsSession = query.selectFrom('sessions').selectAll().where('key', '=', turn.session_key);
      const [session] = await database.readKeyed(itsSession.compile());
      return session && { turn, session };
    },
    async settleOpen({ turn, session }, ended, update) {
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
    settleDead: (search, end) =>
      database.transaction(
        async ({ query, run }) => {
          const dead = await findDead(query, run, search);
          const { ends, updates, now } = end(dead);
          if (ends.length === 0) return ends;
          const given = { query, run, now };
          // Sessions first, as in every batch about sessions: an owner that is alive must notice that its session was taken.
          await releaseSessions(given, ends);
          await endTurns(given, ends);
          for (const update of updates) await run(update);
          return ends;
        },
        // The transaction is short, and all followers of the dead instance's sessions wait for it.
        { isUrgent: true },
      ),
  };
}

type Run = Transaction<BridgeSchema>['run'];

/** Open turns of instances that are not this one and not among those that live, oldest first, unless another one has their session. */
async function findDead(
  query: Kysely<BridgeSchema>,
  run: Run,
  { own, deadAfterMs, judgedBy, limit }: DeadTurnSearch,
): Promise<readonly DeadTurn[]> {
  const alive = query.selectFrom('instances').select('id').where(isAlive(deadAfterMs));
  const { rows: turns } = await run(
    query
      .selectFrom('turns')
      .innerJoin('sessions', 'sessions.key', 'turns.session_key')
      .selectAll('turns')
      .where('turns.ended_at', 'is', null)
      .where('turns.instance', '!=', own)
      .where('turns.instance', 'not in', alive)
      .where(({ eb, ref }) => eb('sessions.instance', 'in', [sql.lit(''), ref('turns.instance')]))
      .where(isBefore(judgedBy))
      .orderBy('turns.id')
      .limit(limit)
      .compile(),
  );
  const keys = [...new Set(turns.map((turn) => turn.session_key))];
  if (keys.length === 0) return [];
  const { rows: sessions } = await run(query.selectFrom('sessions').selectAll().where('key', 'in', keys).compile());
  const byKey = new Map(sessions.map((session) => [session.key, session]));
  return turns.flatMap((turn) => {
    const session = byKey.get(turn.session_key);
    return session === undefined ? [] : [{ turn, session }];
  });
}

interface Ending {
  readonly query: Kysely<BridgeSchema>;
  readonly run: Run;
  readonly now: number;
}

/** Sessions, and what is shown of them, as the last of their turns leaves them. */
async function releaseSessions({ query, run, now }: Ending, ends: DeadTurnEnds['ends']): Promise<void> {
  const bySession = Map.groupBy(ends, ({ session }) => session.key);
  const rows = [...bySession].map(([key, ofSession]) => {
    const last = ofSession.at(-1);
    const { epoch = 0 } = last?.session ?? {};
    return sql`(${text(key)}, ${whole(epoch)}, ${whole(ofSession.length)}, ${text(last?.id ?? '')}, ${whole(last?.lastSeq ?? 0)})`;
  });
  const given = sql`with given (key, epoch, turns, last_turn, last_seq) as (values ${sql.join(rows)})`;
  const release = sql`${given} update sessions
    set instance = '', reserved_seq = given.last_seq, epoch = sessions.epoch + given.turns, updated_at = ${now}
    from given where sessions.key = given.key and sessions.epoch = given.epoch`;
  await changeAll(run, release.compile(query), rows.length);
  const summarize = sql`${given} update session_summaries
    set last_turn = given.last_turn, last_status = 'failed', last_code = 'TURN_INTERRUPTED', doing = '',
      turns = session_summaries.turns + given.turns, last_seq = given.last_seq, updated_at = ${now}
    from given where session_summaries.session_key = given.key`;
  await run(summarize.compile(query));
}

async function endTurns({ query, run, now }: Ending, ends: DeadTurnEnds['ends']): Promise<void> {
  const rows = ends.map(({ id, outcome, lastSeq }) => sql`(${text(id)}, ${text(outcome)}, ${whole(lastSeq)})`);
  const end = sql`with given (id, outcome, last_seq) as (values ${sql.join(rows)}) update turns
    set status = 'failed', outcome = given.outcome, last_seq = given.last_seq, ended_at = ${now}
    from given where turns.id = given.id and turns.ended_at is null`;
  await changeAll(run, end.compile(query), rows.length);
}

async function changeAll(run: Run, statement: Runnable, expected: number): Promise<void> {
  const { changes } = await run(statement);
  if (changes !== expected) throw new AppError('STORAGE_CONFLICT', { expected, changes });
}

/** PostgreSQL takes a parameter in a list of values for text unless it is cast. */
function text(value: string) {
  return sql`cast(${value} as text)`;
}

function whole(value: number) {
  return sql`cast(${value} as bigint)`;
}
