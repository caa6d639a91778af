import { sql } from 'kysely';
import type { Database, Transaction } from '../../platform/database/database.ts';
import { expectChanges, type Runnable, type Statement } from '../../platform/database/statement.ts';
import type {
  AccountsSchema,
  AuditRow,
  BlacklistRow,
  InvitationRow,
  PermissionMatrixRow,
  ProxyAgentRow,
  ProxyAgentStatusRow,
} from './accounts-schema.ts';
import { insertWithin } from './guarded-writes.ts';

/** The e-mail addresses that may neither register nor log in. */
export interface BlacklistStore {
  has(email: string): Promise<boolean>;
  /** Nothing happens when it is there already. */
  put(entry: BlacklistRow): Runnable;
  remove(email: string): Runnable;
  /** By address; `after` is the last one of the page before. */
  list(after: string, limit: number): Promise<BlacklistRow[]>;
}

export function createBlacklistStore(database: Database<AccountsSchema>): BlacklistStore {
  const { query } = database;
  const find = database.statement((select, given: { email: string }) =>
    select.selectFrom('blacklist').select('email').where('email', '=', given.email),
  );
  return {
    has: async (email) => (await database.readKeyed(find({ email }))).length > 0,
    put: (entry) =>
      query
        .insertInto('blacklist')
        .values(entry)
        .onConflict((conflict) => conflict.column('email').doNothing())
        .compile(),
    remove: (email) => query.deleteFrom('blacklist').where('email', '=', email).compile(),
    list: (after, limit) =>
      database.readKeyed(
        query.selectFrom('blacklist').selectAll().where('email', '>', after).orderBy('email').limit(limit).compile(),
      ),
  };
}

/** Invitations that were not accepted yet. One that has expired is never found, swept or not. */
interface InvitationStore {
  /** Undoes the batch when `most` invitations are open. */
  add(invitation: InvitationRow, most: number): readonly Runnable[];
  byId(id: string, now: number): Promise<InvitationRow | undefined>;
  byTokenHash(tokenHash: string, now: number): Promise<InvitationRow | undefined>;
  /** The newest one for an address. */
  byEmail(email: string, now: number): Promise<InvitationRow | undefined>;
  /** Newest first; `before` is the id of the last of the page before. */
  list(before: string | undefined, now: number, limit: number): Promise<InvitationRow[]>;
  /** Uses it up: undoes the batch of every caller but the first. */
  take(id: string, now: number): Runnable;
}

export function createInvitationStore(database: Database<AccountsSchema>): InvitationStore {
  const { query } = database;
  const open = (now: number) => query.selectFrom('invitations').selectAll().where('expires_at', '>', now);
  return {
    add: (invitation, most) =>
      insertWithin(database, query.insertInto('invitations').values(invitation).compile(), {
        name: 'invitations',
        rows: query.selectFrom('invitations').where('expires_at', '>', invitation.created_at),
        most,
      }),
    async byId(id, now) {
      return (await database.readKeyed(open(now).where('id', '=', id).compile()))[0];
    },
    async byTokenHash(tokenHash, now) {
      return (await database.readKeyed(open(now).where('token_hash', '=', tokenHash).compile()))[0];
    },
    async byEmail(email, now) {
      const newest = open(now).where('email', '=', email).orderBy('id', 'desc').limit(1);
      return (await database.readKeyed(newest.compile()))[0];
    },
    list(before, now, limit) {
      const all = open(now).orderBy('id', 'desc').limit(limit);
      return database.read((before === undefined ? all : all.where('id', '<', before)).compile());
    },
    take: (id, now) =>
      expectChanges(query.deleteFrom('invitations').where('id', '=', id).where('expires_at', '>', now).compile(), 1),
  };
}

const ROW_ID = 'default';

export interface PermissionStore {
  /** Undefined as long as nobody has stored one. */
  read(): Promise<PermissionMatrixRow | undefined>;
  /** Replaces version `before`; undoes the batch if another version is stored. 0: there is none yet. */
  replace(matrix: string, before: number, now: number): Runnable;
}

export function createPermissionStore(database: Database<AccountsSchema>): PermissionStore {
  const read = database.statement((query) =>
    query.selectFrom('permission_matrix').selectAll().where('id', '=', ROW_ID),
  );
  return {
    read: async () => (await database.readKeyed(read()))[0],
    replace(matrix, before, now) {
      const row = { version: before + 1, matrix, updated_at: now };
      const { query } = database;
      const statement =
        before === 0
          ? query
              .insertInto('permission_matrix')
              .values({ id: ROW_ID, ...row })
              .onConflict((conflict) => conflict.column('id').doNothing())
          : query.updateTable('permission_matrix').set(row).where('id', '=', ROW_ID).where('version', '=', before);
      return expectChanges(statement.compile(), 1);
    },
  };
}

export interface AuditStore {
  add(entry: AuditRow): Statement;
  write(entry: AuditRow): Promise<void>;
  /** Newest first; `before` is the id of the last of the page before. */
  list(filter: AuditFilter, before: string | undefined, limit: number): Promise<AuditRow[]>;
}

interface AuditFilter {
  readonly actor?: string | undefined;
  /** Whom it was done to or who did it. */
  readonly about?: string | undefined;
  readonly event?: string | undefined;
  readonly subject?: string | undefined;
  readonly address?: string | undefined;
  readonly request?: string | undefined;
  /** Milliseconds; `to` itself is left out. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
}

/** Whose traces are taken out of the audit log. */
interface Traces {
  readonly id: string;
  readonly email: string;
  readonly name: string;
}

const REMOVED = '[removed]';
const PAGE = 500;

/** Leaves the id of a user where the audit log holds the address, and removes texts that contain the address or name. */
export async function pseudonymizeAudit(
  { query, run }: Transaction<AccountsSchema>,
  { id, email, name }: Traces,
): Promise<void> {
  await run(query.updateTable('audit').set({ subject: id }).where('subject', '=', email).compile());
  const own = query
    .selectFrom('audit')
    .select(['id', 'details'])
    .where((build) => build.or([build('subject', '=', id), build('actor', '=', id)]))
    .where('details', '<>', '{}')
    .orderBy('id')
    .limit(PAGE);
  const clean = (_: string, value: unknown) =>
    typeof value === 'string' && (names(value, email) || names(value, name)) ? REMOVED : value;
  for (let after = '', isLast = false; !isLast; ) {
    const { rows } = await run(own.where('id', '>', after).compile());
    for (const { id: entry, details } of rows) {
      const cleaned = JSON.stringify(JSON.parse(details), clean);
      if (cleaned === details) continue;
      await run(query.updateTable('audit').set({ details: cleaned }).where('id', '=', entry).compile());
    }
    after = rows.at(-1)?.id ?? '';
    isLast = rows.length < PAGE;
  }
}

/** Whether a text contains a name as whole words; one of signs alone, such as an emoji, counts anywhere. */
function names(text: string, name: string): boolean {
  const words = wordsOf(name);
  return words.trim() === '' ? text.includes(name) : wordsOf(text).includes(words);
}

/** The words of a text, with a space around each. */
function wordsOf(text: string): string {
  return ` ${text
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}]+/gu, ' ')
    .trim()} `;
}

export function createAuditStore(database: Database<AccountsSchema>): AuditStore {
  const add = database.statement((insert, given: AuditRow) => insert.insertInto('audit').values({ ...given }));
  return {
    add,
    async write(entry) {
      await database.write([add(entry)]);
    },
    list({ actor, about, event, subject, address, request, from, to }, before, limit) {
      let select = database.query.selectFrom('audit').selectAll().orderBy('id', 'desc').limit(limit);
      if (actor !== undefined) select = select.where('actor', '=', actor);
      if (about !== undefined) {
        select = select.where((build) => build.or([build('subject', '=', about), build('actor', '=', about)]));
      }
      if (event !== undefined) select = select.where('event', '=', event);
      if (subject !== undefined) select = select.where('subject', '=', subject);
      if (address !== undefined) select = select.where('address', '=', address);
      if (request !== undefined) select = select.where('request_id', '=', request);
      if (from !== undefined) select = select.where('at', '>=', from);
      if (to !== undefined) select = select.where('at', '<', to);
      if (before !== undefined) select = select.where('id', '<', before);
      return database.read(select.compile());
    },
  };
}

/** Agents of proxy nodes whose tokens were issued here, and what all agents report. */
export interface ProxyAgentStore {
  byTokenHash(tokenHash: string): Promise<ProxyAgentRow | undefined>;
  /** By id. */
  list(): Promise<ProxyAgentRow[]>;
  /** STORAGE_DUPLICATE when the id is taken. */
  add(agent: ProxyAgentRow): Runnable;
  /** Removes the agent and its report. The first statement removes the agent itself. */
  remove(id: string): readonly [Runnable, ...Runnable[]];
  report(status: ProxyAgentStatusRow): Runnable;
  reports(): Promise<ProxyAgentStatusRow[]>;
}

export function createProxyAgentStore(database: Database<AccountsSchema>): ProxyAgentStore {
  const { query } = database;
  const byTokenHash = database.statement((select, given: { tokenHash: string }) =>
    select.selectFrom('proxy_agents').selectAll().where('token_hash', '=', given.tokenHash),
  );
  const report = database.statement((insert, given: ProxyAgentStatusRow) => {
    const { healthy, message, users, sync_revision, xray, updated_at } = given;
    const values = { healthy, message, users, sync_revision, xray, updated_at };
    return insert
      .insertInto('proxy_agent_status')
      .values({ agent_id: given.agent_id, ...values })
      .onConflict((conflict) => conflict.column('agent_id').doUpdateSet(values));
  });
  return {
    byTokenHash: async (tokenHash) => (await database.readKeyed(byTokenHash({ tokenHash })))[0],
    list: () => database.read(query.selectFrom('proxy_agents').selectAll().orderBy('id').compile()),
    add: (agent) => query.insertInto('proxy_agents').values(agent).compile(),
    remove: (id) => [
      query.deleteFrom('proxy_agents').where('id', '=', id).compile(),
      query.deleteFrom('proxy_agent_status').where('agent_id', '=', id).compile(),
    ],
    report,
    reports: () => database.read(query.selectFrom('proxy_agent_status').selectAll().compile()),
  };
}

const CLIENTS = 'proxy_clients';

interface ProxyClientRow {
  readonly id: string;
  readonly proxy_uuid: string;
  readonly email: string;
  readonly proxy_uuid_expires_at: number | null;
}

/** The users that proxy nodes let in: active, not about to be deleted, with a verified address and a proxy UUID that has not expired. */
export interface ClientListStore {
  /** For every batch that may change the list: it invalidates cached lists. */
  touch(): Runnable;
  revision(): Promise<number>;
  page(after: string, now: number, limit: number): Promise<ProxyClientRow[]>;
}

export function createClientListStore(database: Database<AccountsSchema>): ClientListStore {
  const touch = database.statement((query) =>
    query
      .insertInto('revisions')
      .values({ id: CLIENTS, revision: 1 })
      .onConflict((conflict) => conflict.column('id').doUpdateSet({ revision: sql<number>`revisions.revision + 1` })),
  );
  const revision = database.statement((query) =>
    query.selectFrom('revisions').select('revision').where('id', '=', CLIENTS),
  );
  return {
    touch,
    revision: async () => (await database.readKeyed(revision()))[0]?.revision ?? 0,
    page: (after, now, limit) =>
      database.read(
        database.query
          .selectFrom('users')
          .select(['id', 'proxy_uuid', 'email', 'proxy_uuid_expires_at'])
          .where('id', '>', after)
          .where('active', '=', 1)
          .where('closing_at', 'is', null)
          .where('confirmed', '=', 1)
          .where((build) =>
            build.or([build('proxy_uuid_expires_at', 'is', null), build('proxy_uuid_expires_at', '>', now)]),
          )
          .where('email', 'not in', (build) => build.selectFrom('blacklist').select('email'))
          .orderBy('id')
          .limit(limit)
          .compile(),
      ),
  };
}
