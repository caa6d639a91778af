import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Statement } from '../../platform/database/statement.ts';
import type { BridgeSchema, PermissionRow, PermissionRuleRow } from './bridge-schema.ts';

export type PermissionEnd = Pick<
  PermissionRow,
  'state' | 'option_id' | 'scope' | 'reason' | 'given' | 'answered_by' | 'answered_at'
>;

export interface PermissionStore {
  insert(row: PermissionRow): Statement;
  /** Ends an open request; fails with STORAGE_CONFLICT when it has ended already. */
  end(id: string, end: PermissionEnd): Statement;
  find(id: string): Promise<PermissionRow | undefined>;
  /** Open requests, oldest first; of one owner or all, of one session or all. */
  open(owner: string | undefined, sessionKey: string | undefined, limit: number): Promise<readonly PermissionRow[]>;
  /** Requests of an owner in any state, newest first. */
  latest(owner: string | undefined, sessionKey: string | undefined, limit: number): Promise<readonly PermissionRow[]>;
  findAll(ids: readonly string[]): Promise<readonly PermissionRow[]>;
  /** Removes the values of an answer: the agent has got them. */
  taken(id: string): Promise<void>;
  /** Cancels open requests that nobody waits for, and removes values that nobody takes: their bridge has died, or their turn has ended. */
  cancelOrphans(own: string, now: number): Promise<void>;
  addRule(row: PermissionRuleRow): Statement;
  /** The rules for a question: of this session, and of the owner in this folder. */
  rulesFor(owner: string, sessionKey: string, folder: string, now: number): Promise<readonly PermissionRuleRow[]>;
  rules(owner: string | undefined, now: number, limit: number): Promise<readonly PermissionRuleRow[]>;
  findRule(id: string): Promise<PermissionRuleRow | undefined>;
  removeRule(id: string): Promise<void>;
  removeOldRules(now: number): Promise<void>;
}

export function createPermissionStore(database: Database<BridgeSchema>): PermissionStore {
  const { query } = database;
  const scoped = (owner: string | undefined, sessionKey: string | undefined) => {
    let rows = query.selectFrom('permissions').selectAll();
    if (owner !== undefined) rows = rows.where('owner', '=', owner);
    if (sessionKey !== undefined) rows = rows.where('session_key', '=', sessionKey);
    return rows;
  };
  return {
    insert: (row) => query.insertInto('permissions').values(row).compile(),
    end: (id, end) =>
      expectChanges(
        query.updateTable('permissions').set(end).where('id', '=', id).where('state', '=', 'open').compile(),
        1,
      ),
    find: async (id) =>
      (await database.readKeyed(query.selectFrom('permissions').selectAll().where('id', '=', id).compile()))[0],
    open: (owner, sessionKey, limit) =>
      database.read(
        scoped(owner, sessionKey).where('state', '=', sql.lit('open')).orderBy('id').limit(limit).compile(),
      ),
    latest: (owner, sessionKey, limit) =>
      database.read(scoped(owner, sessionKey).orderBy('id', 'desc').limit(limit).compile()),
    async findAll(ids) {
      if (ids.length === 0) return [];
      return database.readKeyed(query.selectFrom('permissions').selectAll().where('id', 'in', ids).compile());
    },
    async taken(id) {
      await database.write([query.updateTable('permissions').set({ given: '' }).where('id', '=', id).compile()]);
    },
    async cancelOrphans(own, now) {
      const running = query.selectFrom('turns').select('id').where('ended_at', 'is', null);
      // Where the store is ours alone, other bridges are dead, and their turns are ended later.
      const orphans = query
        .updateTable('permissions')
        .where((where) =>
          database.engine === 'postgres' ? where('turn_id', 'not in', running) : where('instance', '!=', own),
        );
      await database.write([
        orphans.set({ state: 'cancelled', answered_at: now }).where('state', '=', sql.lit('open')).compile(),
        orphans.set({ given: '' }).where('given', '!=', sql.lit('')).compile(),
      ]);
    },
    addRule: (row) => query.insertInto('permission_rules').values(row).compile(),
    rulesFor: (owner, sessionKey, folder, now) =>
      database.read(
        query
          .selectFrom('permission_rules')
          .selectAll()
          .where('owner', '=', owner)
          .where('expires_at', '>', now)
          .where((where) =>
            where.or([
              where('session_key', '=', sessionKey),
              where.and([where('session_key', '=', ''), where('folder', '=', folder)]),
            ]),
          )
          .compile(),
      ),
    rules(owner, now, limit) {
      const rows = query.selectFrom('permission_rules').selectAll().where('expires_at', '>', now);
      const ofOwner = owner === undefined ? rows : rows.where('owner', '=', owner);
      return database.read(ofOwner.orderBy('id', 'desc').limit(limit).compile());
    },
    findRule: async (id) =>
      (await database.readKeyed(query.selectFrom('permission_rules').selectAll().where('id', '=', id).compile()))[0],
    async removeRule(id) {
      await database.write([query.deleteFrom('permission_rules').where('id', '=', id).compile()]);
    },
    async removeOldRules(now) {
      await database.write([query.deleteFrom('permission_rules').where('expires_at', '<=', now).compile()]);
    },
  };
}
