import { type ExpressionBuilder, sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { urgent } from '../../platform/database/statement.ts';
import type { BridgeSchema, InstanceRow, NewRow, RunnerRow, RunnerTurnRow, SessionRouteRow } from './bridge-schema.ts';

type RouteKey = Pick<SessionRouteRow, 'owner' | 'kind' | 'name'>;

/** A route as a call has added it. `usedAt` is what `claim` returned. */
export interface ClaimedRoute {
  readonly nodeId: string;
  readonly usedAt: number;
}

/** The nodes of forwarded sessions and jobs. Routes that were last used before `usedAfter` are ignored, and deleted later. */
export interface SessionRouteStore {
  find(key: RouteKey, usedAfter: number): Promise<SessionRouteRow | undefined>;
  /** The one used last, of these owners or of any. */
  findSeen(
    name: Omit<RouteKey, 'owner'>,
    owners: readonly string[] | undefined,
    usedAfter: number,
  ): Promise<SessionRouteRow | undefined>;
  /** One for each owner. */
  findOwners(name: Omit<RouteKey, 'owner'>, usedAfter: number): Promise<readonly SessionRouteRow[]>;
  /** Sessions of a thread, of these owners or of any. */
  findByThread(
    threadId: string,
    owners: readonly string[] | undefined,
    usedAfter: number,
  ): Promise<readonly SessionRouteRow[]>;
  /**
   * Adds routes; existing routes keep their node, and get a later `used_at`. Returns the `used_at` of the added routes; undefined
   * if one of them existed. Resolves when they are stored.
   */
  claim(rows: readonly SessionRouteRow[], usedAfter: number): Promise<number | undefined>;
  /** Changes the node of those routes that have the node `from` and have not been claimed or used since `claim`. */
  move(keys: readonly RouteKey[], from: ClaimedRoute, to: string): Promise<void>;
  /** Deletes those routes that have the node and have not been claimed or used since `claim`. */
  release(keys: readonly RouteKey[], from: ClaimedRoute): Promise<void>;
  /** Adds routes, or replaces them. */
  put(rows: readonly SessionRouteRow[]): Promise<void>;
  touch(key: RouteKey, now: number): Promise<void>;
  /** Deletes a few routes; returns how many. */
  deleteOld(usedBefore: number, limit: number): Promise<number>;
}

type InRoutes = ExpressionBuilder<BridgeSchema, 'session_routes'>;
const ofKey = (key: RouteKey) => (route: InRoutes) => route.and({ owner: key.owner, kind: key.kind, name: key.name });
const ofClaim = (key: RouteKey & ClaimedRoute) => (route: InRoutes) =>
  route.and([ofKey(key)(route), route.and({ node_id: key.nodeId, used_at: key.usedAt })]);

export function createSessionRouteStore(database: Database<BridgeSchema>): SessionRouteStore {
  const find = database.statement((query, given: RouteKey & { usedAfter: number }) =>
    query.selectFrom('session_routes').selectAll().where(ofKey(given)).where('used_at', '>', given.usedAfter),
  );
  const insert = (onConflict: 'keep' | 'replace') =>
    database.statement((query, given: SessionRouteRow) =>
      query
        .insertInto('session_routes')
        .values({ ...given })
        .onConflict((conflict) => {
          const same = conflict.columns(['owner', 'kind', 'name']);
          const { thread_id, node_id, used_at } = given;
          return onConflict === 'keep' ? same.doNothing() : same.doUpdateSet({ thread_id, node_id, used_at });
        }),
    );
  const add = insert('keep');
  const put = insert('replace');
  const forget = database.statement((query, given: RouteKey & { usedAfter: number }) =>
    query.deleteFrom('session_routes').where(ofKey(given)).where('used_at', '<=', given.usedAfter),
  );
  const claimAgain = database.statement((query, given: RouteKey & { now: number }) =>
    query
      .updateTable('session_routes')
      .set({ used_at: sql<number>`case when used_at < ${given.now} then ${given.now} else used_at + 1 end` })
      .where(ofKey(given))
      .returning('used_at'),
  );
  const move = database.statement((query, given: RouteKey & ClaimedRoute & { to: string }) =>
    query.updateTable('session_routes').set({ node_id: given.to }).where(ofClaim(given)),
  );
  const release = database.statement((query, given: RouteKey & ClaimedRoute) =>
    query.deleteFrom('session_routes').where(ofClaim(given)),
  );
  const touch = database.statement((query, given: RouteKey & { now: number }) =>
    query.updateTable('session_routes').set({ used_at: given.now }).where(ofKey(given)),
  );
  return {
    find: async (key, usedAfter) => (await database.readKeyed(find({ ...key, usedAfter })))[0],
    async findSeen({ kind, name }, owners, usedAfter) {
      const found = database.query.selectFrom('session_routes').selectAll().where('name', '=', name);
      const used = found.where('kind', '=', kind).where('used_at', '>', usedAfter).orderBy('used_at', 'desc').limit(1);
      return (await database.readKeyed((owners === undefined ? used : used.where('owner', 'in', owners)).compile()))[0];
    },
    findOwners({ kind, name }, usedAfter) {
      const ofAll = database.query.selectFrom('session_routes').selectAll().where('name', '=', name);
      return database.read(ofAll.where('kind', '=', kind).where('used_at', '>', usedAfter).compile());
    },
    findByThread(threadId, owners, usedAfter) {
      const all = database.query
        .selectFrom('session_routes')
        .selectAll()
        .where('thread_id', '=', threadId)
        .where('used_at', '>', usedAfter);
      return database.read((owners === undefined ? all : all.where('owner', 'in', owners)).compile());
    },
    async claim(rows, usedAfter) {
      const forgotten = rows.map((row) => forget({ ...row, usedAfter }));
      // Last: a row that another instance adds at the same time is seen by then.
      const again = rows.map((row) => claimAgain({ ...row, now: row.used_at }));
      const results = await database.write([...forgotten, ...rows.map((row) => add(row)), ...again]);
      const areNew = results.slice(rows.length, 2 * rows.length).every(({ changes }) => changes === 1);
      const [first] = (results.at(-1)?.rows ?? []) as readonly Pick<SessionRouteRow, 'used_at'>[];
      return areNew ? first?.used_at : undefined;
    },
    async move(keys, from, to) {
      await database.write(keys.map((key) => move({ ...key, ...from, to })));
    },
    async release(keys, from) {
      await database.write(keys.map((key) => release({ ...key, ...from })));
    },
    async put(rows) {
      await database.write(rows.map((row) => put(row)));
    },
    async touch(key, now) {
      await database.write([touch({ ...key, now })]);
    },
    async deleteOld(usedBefore, limit) {
      const { query } = database;
      const old = query
        .selectFrom('session_routes')
        .select(['owner', 'kind', 'name'])
        .where('used_at', '<', usedBefore)
        .orderBy('used_at')
        .limit(limit);
      const statement = query
        .deleteFrom('session_routes')
        .where(({ eb, refTuple }) =>
          eb(refTuple('owner', 'kind', 'name'), 'in', old.$asTuple('owner', 'kind', 'name')),
        );
      return (await database.write([statement.compile()]))[0].changes;
    },
  };
}

/** `read_at` is the time of reading, by the same clock as `heartbeat_at`. */
export type ListedInstance = InstanceRow & { readonly read_at: number; readonly sessions: number };

export interface StoredBeat {
  readonly at: number;
  /** The ids of the other bridges on the list. */
  readonly others: string;
  /** Whether one of them is dead; false where no other shares the database. */
  readonly hasDead: boolean;
}

/** The running bridges. On a shared database, only its clock decides which of them are alive, because their own clocks may differ. */
export interface InstanceStore {
  /**
   * Stores a heartbeat, also when another instance has deleted this one as dead. Returns the time of the heartbeat, by the clock
   * of the database where several bridges share it.
   */
  beat(
    instance: Omit<NewRow<InstanceRow>, 'report'> & { readonly report?: string },
    deadAfterMs?: number,
  ): Promise<StoredBeat>;
  remove(id: string): Promise<void>;
  /** The oldest first, each with the time of reading and the number of sessions that it runs a turn of. */
  list(): Promise<readonly ListedInstance[]>;
  /** Finds an instance with an address: the one with the id, even if its heartbeat is late; without an id, a living one with the home. */
  findReachable(
    wanted: { readonly id: string; readonly home: string },
    deadAfterMs: number,
  ): Promise<InstanceRow | undefined>;
  /** Deletes the other instances that are dead; `deadAfterMs` undefined: all others. Deletes nothing later than `judgedBy`. */
  removeOthers(own: string, deadAfterMs: number | undefined, judgedBy?: number): Promise<void>;
}

const MAX_LISTED = 200;
const DATABASE_TIME = sql<number>`(extract(epoch from clock_timestamp()) * 1000)::bigint`;

export function createInstanceStore(database: Database<BridgeSchema>): InstanceStore {
  const { query } = database;
  return {
    async beat(instance, deadAfterMs) {
      const heartbeat_at = database.engine === 'postgres' ? DATABASE_TIME : instance.heartbeat_at;
      const row = query.insertInto('instances').values({ ...instance, heartbeat_at });
      const beat = row.onConflict((conflict) =>
        conflict.column('id').doUpdateSet({ heartbeat_at, address: instance.address, report: instance.report }),
      );
      const others = query.selectFrom('instances').where('id', '!=', instance.id);
      const ids = others.select(sql<string>`string_agg(id, ',' order by id)`.as('ids'));
      const dead = others.where(sql<boolean>`not (${isAlive(deadAfterMs)})`);
      const returning = beat.returning([
        'heartbeat_at',
        ids.as('others'),
        dead.select(({ fn }) => fn.countAll<number>().as('count')).as('dead'),
      ]);
      const [{ rows }] = await database.write([urgent(returning.compile())]);
      const { heartbeat_at: at = instance.heartbeat_at, others: listed, dead: ended = 0 } = rows[0] ?? {};
      return { at: Number(at), others: listed ?? '', hasDead: deadAfterMs !== undefined && Number(ended) > 0 };
    },
    async remove(id) {
      await database.write([query.deleteFrom('instances').where('id', '=', id).compile()]);
    },
    async list() {
      const readAt = database.engine === 'postgres' ? DATABASE_TIME : sql<number>`heartbeat_at`;
      const all = query
        .selectFrom('instances')
        .selectAll()
        .select(({ selectFrom }) => [
          readAt.as('read_at'),
          selectFrom('sessions')
            .select(({ fn }) => fn.countAll<number>().as('count'))
            .whereRef('sessions.instance', '=', 'instances.id')
            .as('sessions'),
        ]);
      const rows = await database.read(all.orderBy('id').limit(MAX_LISTED).compile());
      return rows.map((row) => ({ ...row, read_at: Number(row.read_at), sessions: Number(row.sessions) }));
    },
    async findReachable({ id, home }, deadAfterMs) {
      const listed = query.selectFrom('instances').selectAll().where('address', 'like', 'http%').orderBy('id', 'desc');
      if (id !== '') return (await database.read(listed.where('id', '=', id).compile()))[0];
      const living = listed.where('home', '=', home).where(isAlive(deadAfterMs)).limit(1);
      return (await database.read(living.compile()))[0];
    },
    async removeOthers(own, deadAfterMs, judgedBy) {
      const others = query.deleteFrom('instances').where('id', '!=', own).where(isBefore(judgedBy));
      await database.write([others.where(sql<boolean>`not (${isAlive(deadAfterMs)})`).compile()]);
    },
  };
}

/** The condition that a row of `instances` is alive. Undefined: no other instance can share the store, so none is. */
export function isAlive(deadAfterMs: number | undefined) {
  if (deadAfterMs === undefined) return sql<boolean>`1 = 0`;
  return sql<boolean>`heartbeat_at >= ${DATABASE_TIME} - ${sql.lit(deadAfterMs)}`;
}

/** The condition that the clock of the database has not passed a time; always true without a time. */
export function isBefore(time = Number.POSITIVE_INFINITY) {
  if (time === Number.POSITIVE_INFINITY) return sql<boolean>`1 = 1`;
  return sql<boolean>`${DATABASE_TIME} <= ${Math.floor(time)}`;
}

/** `connected`: its bridge is alive. `turns`: the number of turns that living bridges run on it. */
export type ListedRunner = RunnerRow & { readonly connected: boolean; readonly turns: number };

/** `full`: the runner has no free slot. `gone`: the runner was removed, or serves another session. */
export type TakenPlace = { readonly process: string } | 'full' | 'gone';

/** Machines with agents, and what runs on them. */
export interface RunnerStore {
  /** Throws STORAGE_DUPLICATE for a name that is taken. */
  add(runner: Pick<RunnerRow, 'id' | 'name' | 'key_hash' | 'labels'>): Promise<void>;
  /** False: there is none of that name. */
  remove(name: string): Promise<boolean>;
  find(id: string): Promise<RunnerRow | undefined>;
  findByKey(keyHash: string): Promise<RunnerRow | undefined>;
  /** The oldest first. */
  list(): Promise<readonly ListedRunner[]>;
  /**
   * Stores that the runner is connected to this bridge. False: it was removed. With `process`, the runner serves one session, which
   * it keeps while it is the same process.
   */
  connect(
    id: string,
    connection: Pick<RunnerRow, 'instance' | 'connection' | 'slots' | 'report' | 'process'>,
  ): Promise<boolean>;
  /** False: it has another connection by now, or was removed. */
  report(id: string, connection: string, report: string): Promise<boolean>;
  disconnect(id: string, connection: string): Promise<void>;
  /**
   * Stores a turn before it is sent to its runner. On a runner for one session, the turn of a new conversation makes that
   * conversation its session. Returns the process of such a runner; empty for other runners.
   */
  take(turn: RunnerTurnRow, isNew: boolean): Promise<TakenPlace>;
  release(turnId: string): Promise<void>;
  /** Names of the turns that living bridges run on it. Those of others are deleted. */
  turnsOn(runnerId: string): Promise<ReadonlySet<string>>;
}

/** `own`: this bridge. `deadAfterMs` undefined: no other shares the store. */
export function createRunnerStore(
  database: Database<BridgeSchema>,
  own: () => string,
  deadAfterMs: number | undefined,
): RunnerStore {
  const { query } = database;
  /** Whether the bridge that a row names lives. */
  const lives = (table: 'runners' | 'runner_turns') => {
    const isOwn = sql<boolean>`${sql.ref(`${table}.instance`)} = ${own()}`;
    if (deadAfterMs === undefined) return isOwn;
    const living = sql`select 1 from instances where instances.id = ${sql.ref(`${table}.instance`)} and ${isAlive(deadAfterMs)}`;
    return sql<boolean>`(${isOwn} or exists (${living}))`;
  };
  const countOn = (runnerId: ReturnType<typeof sql>) =>
    sql<number>`(select count(*) from runner_turns where runner_turns.runner_id = ${runnerId} and ${lives('runner_turns')})`;
  const changed = async (statement: Parameters<typeof database.write>[0][number]) =>
    (await database.write([statement]))[0].changes > 0;
  return {
    async add(runner) {
      const row = { ...runner, report: '', slots: 0, instance: '', connection: '', process: '', session: '' };
      await database.write([query.insertInto('runners').values(row).compile()]);
    },
    remove: (name) => changed(query.deleteFrom('runners').where('name', '=', name).compile()),
    async find(id) {
      return (await database.readKeyed(query.selectFrom('runners').selectAll().where('id', '=', id).compile()))[0];
    },
    async findByKey(keyHash) {
      const found = query.selectFrom('runners').selectAll().where('key_hash', '=', keyHash);
      return (await database.readKeyed(found.compile()))[0];
    },
    async list() {
      const all = query
        .selectFrom('runners')
        .selectAll()
        .select([lives('runners').as('connected'), countOn(sql.ref('runners.id')).as('turns')]);
      const rows = await database.read(all.orderBy('id').limit(MAX_LISTED).compile());
      return rows.map((row) => ({ ...row, connected: Boolean(row.connected), turns: Number(row.turns) }));
    },
    connect(id, { slots: offered, process, ...connection }) {
      const session = sql<string>`case when process = ${process} then session else '' end`;
      // No slots: older instances, which do not know runners for one session, then send no turns there.
      const slots = process === '' ? offered : 0;
      const row = { ...connection, slots, process, session };
      return changed(query.updateTable('runners').set(row).where('id', '=', id).compile());
    },
    report: (id, connection, report) =>
      changed(
        query
          .updateTable('runners')
          .set({ report })
          .where('id', '=', id)
          .where('connection', '=', connection)
          .compile(),
      ),
    async disconnect(id, connection) {
      const gone = query.updateTable('runners').set({ instance: '', connection: '' }).where('id', '=', id);
      await database.write([gone.where('connection', '=', connection).compile()]);
    },
    async take({ id, runner_id, instance }, isNew) {
      // The first statement locks the runner, so that others count after this one has been noted.
      const lock = query
        .updateTable('runners')
        .set(({ ref }) => ({ slots: ref('slots') }))
        .where('id', '=', runner_id)
        .returning(['process', 'session']);
      const slots = sql`case when process = '' then slots else 1 end`;
      const isItsSession = sql<boolean>`(process = '' or session = ${id}${isNew ? sql` or session = ''` : sql``})`;
      const room = query
        .selectFrom('runners')
        .select([sql.val(id).as('id'), 'runners.id as runner_id', sql.val(instance).as('instance')])
        .where('runners.id', '=', runner_id)
        .where(sql<boolean>`${countOn(sql.ref('runners.id'))} < ${slots}`)
        .where(isItsSession);
      const note = query
        .insertInto('runner_turns')
        .columns(['id', 'runner_id', 'instance'])
        .expression(room)
        .onConflict((conflict) => conflict.column('id').doUpdateSet({ instance }));
      const isNoted = sql<boolean>`exists (select 1 from runner_turns where runner_turns.id = ${id})`;
      const keep = query
        .updateTable('runners')
        .set({ session: id })
        .where('id', '=', runner_id)
        .where('process', '!=', '')
        .where(isNoted);
      const [{ rows }, { changes }] = await database.write([lock.compile(), note.compile(), keep.compile()]);
      const [found] = rows;
      if (found !== undefined && changes > 0) return { process: found.process };
      const isOfAnother = found !== undefined && found.process !== '' && found.session !== id;
      return found === undefined || (isOfAnother && !isNew) ? 'gone' : 'full';
    },
    async release(turnId) {
      await database.write([query.deleteFrom('runner_turns').where('id', '=', turnId).compile()]);
    },
    async turnsOn(runnerId) {
      const ofRunner = query.deleteFrom('runner_turns').where('runner_id', '=', runnerId);
      await database.write([ofRunner.where(sql<boolean>`not ${lives('runner_turns')}`).compile()]);
      const rows = await database.read(
        query.selectFrom('runner_turns').select('id').where('runner_id', '=', runnerId).compile(),
      );
      return new Set(rows.map(({ id }) => id));
    },
  };
}
