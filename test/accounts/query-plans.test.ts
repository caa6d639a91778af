import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { accountsMigrations } from '../../src/accounts/storage/accounts-migrations.ts';
import type { AccountsSchema } from '../../src/accounts/storage/accounts-schema.ts';
import { createAuditStore } from '../../src/accounts/storage/administration-stores.ts';
import { createCredentialStore } from '../../src/accounts/storage/credential-store.ts';
import { createSessionStore } from '../../src/accounts/storage/session-store.ts';
import { createTeamStore } from '../../src/accounts/storage/team-store.ts';
import { createAccessTokenStore } from '../../src/accounts/storage/token-stores.ts';
import { createUserAdministrationStore } from '../../src/accounts/storage/user-administration-store.ts';
import { createOwnerStore, createUserStore } from '../../src/accounts/storage/user-store.ts';
import type { Database } from '../../src/platform/database/database.ts';
import type { Runnable } from '../../src/platform/database/statement.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';

/** Everything that is asked for with each request, with a login, and by pages of administrators. */
async function askForAll(database: Database<AccountsSchema>): Promise<void> {
  const users = createUserStore(database);
  const administration = createUserAdministrationStore(database, async () => undefined);
  const teams = createTeamStore(database);
  const audit = createAuditStore(database);
  await createSessionStore(database).byToken('hash');
  await createSessionStore(database).byRefreshToken('hash');
  await users.byEmail('ann@example.org');
  await users.byId('usr_1');
  await createCredentialStore(database).find('password', 'usr_1');
  await createAccessTokenStore(database).byHash('hash');
  await createOwnerStore(database).facts('user:usr_1');
  await teams.byId('team_1');
  await teams.roleOf('team_1', 'usr_1');
  await teams.teamsOf('usr_1');
  for (const before of [undefined, 'x']) {
    await administration.list({}, before, 50);
    await administration.list({ role: 'operator' }, before, 50);
    await teams.list(before, 50);
    await audit.list({}, before, 50);
    for (const filter of [{ actor: 'usr_1' }, { subject: 'usr_1' }, { event: 'login' }, { address: '127.0.0.1' }]) {
      await audit.list(filter, before, 50);
    }
  }
  await teams.members('team_1', '', 50);
}

/** How the engine would run a statement in a large table. */
async function planOf(database: Database<AccountsSchema>, { sql, parameters }: Runnable): Promise<string> {
  return database.snapshot(async (connection) => {
    const run = (text: string) => connection.execute<Record<string, unknown>>({ sql: text, parameters: [] });
    if (connection.engine === 'sqlite') {
      const { rows } = await connection.execute<{ detail: string }>({ sql: `EXPLAIN QUERY PLAN ${sql}`, parameters });
      return rows.map(({ detail }) => detail).join('\n');
    }
    // Small tables are read whole whatever indexes they have: with both switched off, what is left has no other way.
    for (const way of ['enable_seqscan', 'enable_sort', 'enable_bitmapscan']) await run(`SET LOCAL ${way} = off`);
    const { rows } = await connection.execute<Record<string, unknown>>({ sql: `EXPLAIN ${sql}`, parameters });
    return rows.map((row) => String(Object.values(row)[0])).join('\n');
  });
}

/** How a plan says that it reads a whole table, and that it sorts all that fits before it returns some of it. */
const GROWS = {
  sqlite: { scans: /^SCAN \w+$/m, sorts: /USE TEMP B-TREE/ },
  postgres: { scans: /Seq Scan/, sorts: /Sort / },
};

/** A person is in few teams and has few subscriptions: sorting them costs the same however many people there are. */
const OF_ONE_PERSON = /"user_id" = (?:\?|\$\d)/;

for (const engine of engines) {
  describe(`accounts on ${engine}`, () => {
    const places = databasePlaces(engine);

    async function prepare() {
      const database = await places.open<AccountsSchema>({ name: 'accounts', migrations: accountsMigrations });
      const asked = new Map<string, Runnable>();
      const noting: Database<AccountsSchema> = {
        ...database,
        read(statement) {
          asked.set(statement.sql, statement);
          return database.read(statement);
        },
        readKeyed(statement) {
          asked.set(statement.sql, statement);
          return database.readKeyed(statement);
        },
      };
      return { database, noting, asked };
    }

    test('nothing that is asked for all the time costs more with more people, tokens and teams', async () => {
      const { database, noting, asked } = await prepare();
      await askForAll(noting);
      assert.ok(asked.size >= 22, `${asked.size} statements`);
      for (const [sql, statement] of asked) {
        const plan = await planOf(database, statement);
        assert.doesNotMatch(plan, GROWS[engine].scans, sql);
        if (!OF_ONE_PERSON.test(sql)) assert.doesNotMatch(plan, GROWS[engine].sorts, sql);
      }
    });

    test('a statement without an index would be seen', async () => {
      const { database } = await prepare();
      const { query } = database;
      const unindexed = query.selectFrom('users').selectAll().where('name', '=', 'Ann').compile();
      const unsorted = query.selectFrom('users').selectAll().orderBy('name').limit(5).compile();
      assert.match(await planOf(database, unindexed), GROWS[engine].scans);
      assert.match(await planOf(database, unsorted), GROWS[engine].sorts);
    });
  });
}
