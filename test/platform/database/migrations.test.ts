import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { sql } from 'kysely';
import type { DatabaseLocation } from '../../../src/platform/database/database.ts';
import { inspectDatabase } from '../../../src/platform/database/inspect-database.ts';
import type { Migration, MigrationTools } from '../../../src/platform/database/migrations.ts';
import { openEngine } from '../../../src/platform/database/open-engine.ts';
import { readTables } from '../../../src/platform/database/tables.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { type GrownSchema, grownDatabase, versionOf } from './grown-database.ts';
import type { MigrationVictim } from './migration-victim.ts';

const VICTIM = fileURLToPath(new URL('./migration-victim.ts', import.meta.url));
const ALL_IDS = grownDatabase.migrations.map(({ id }) => id);
const ENVIRONMENT = { NODE_COMPILE_CACHE: join(tmpdir(), 'node-compile-cache') };

/** Resolves with how it ended, and what it said. */
function runVictim(victim: MigrationVictim): Promise<{ signal: string; output: string }> {
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [VICTIM, JSON.stringify(victim)], { env: ENVIRONMENT }, (error, stdout, stderr) => {
      const signal = error?.signal ?? '';
      if (error !== null && signal === '') reject(new Error(stderr));
      else resolve({ signal, output: stdout.trim() });
    });
  });
}

async function inParallel<T>(items: readonly T[], limit: number, work: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items];
  const worker = async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) await work(next);
  };
  await Promise.all(Array.from({ length: limit }, worker));
}

for (const engine of engines) {
  describe(`migrations on ${engine}`, () => {
    const places = databasePlaces(engine);

    /** An old version, with data. */
    async function prepare(version: number): Promise<DatabaseLocation> {
      const location = places.location();
      const database = await places.open<GrownSchema>(versionOf(version), { location });
      const insert = { sql: "insert into notes (id, text) values ('a', 'one'), ('b', 'three')", parameters: [] };
      const measure = { sql: 'update notes set size = length(text)', parameters: [] };
      await database.write(version === 1 ? [insert] : [insert, measure]);
      await database.close();
      return location;
    }
    async function checkGrown(location: DatabaseLocation): Promise<void> {
      const { query } = await places.open<GrownSchema>(grownDatabase, { location });
      assert.deepEqual(await query.selectFrom('notes').selectAll().orderBy('id').execute(), [
        { id: 'a', text: 'one', size: 3 },
        { id: 'b', text: 'three', size: 5 },
      ]);
      assert.equal((await query.selectFrom('words').selectAll().execute()).length, 2);
      const applied = await query.selectFrom('schema_migrations').select('id').orderBy('id').execute();
      assert.deepEqual(
        applied.map(({ id }) => id),
        ALL_IDS,
      );
    }
    /** A killed migration left as many tables as the recorded migrations made, no more and no fewer. */
    async function checkNothingHalfDone(location: DatabaseLocation): Promise<void> {
      const left = await openEngine(location);
      try {
        const tables = await left.snapshot(readTables);
        const applied = await left.read({ sql: 'select id from schema_migrations', parameters: [] });
        assert.equal(tables.length, applied.length - 1);
      } finally {
        await left.close();
      }
    }

    test('O-10: each old version with data is brought forward, once', async () => {
      for (const version of [1, 2]) {
        const location = await prepare(version);
        await checkGrown(location);
        await checkGrown(location);
      }
    });

    test('O-10: killed at each statement, a migration is undone or complete, and the next start completes it', async () => {
      const count = Number((await runVictim({ location: await prepare(2), killAt: 0, during: false })).output);
      assert.ok(count > 12, `${count} statements`);
      const moments = Array.from({ length: count }, (_, index) => ({ killAt: index + 1, during: index % 2 === 1 }));
      await inParallel(moments, 4, async (moment) => {
        const location = await prepare(2);
        assert.equal((await runVictim({ location, ...moment })).signal, 'SIGKILL');
        await checkNothingHalfDone(location);
        await checkGrown(location);
      });
    });

    test('instances that start at the same time migrate one after the other', async () => {
      const location = await prepare(1);
      const starts = [location, location, places.location()].map((place) =>
        runVictim({ location: place, killAt: 0, during: false }),
      );
      const signals = (await Promise.all(starts)).map(({ signal }) => signal);
      assert.deepEqual(signals, ['', '', '']);
      await checkGrown(location);
    });

    test('O-10: an older program refuses a newer schema and says what it does not know', async () => {
      const location = await prepare(1);
      await checkGrown(location);
      await assert.rejects(places.open(versionOf(1), { location }), {
        code: 'SCHEMA_TOO_NEW',
        details: { name: 'grown', ids: ['0002-size', '0003-words'] },
      });
    });

    test('an older program goes on working on a newer schema that lets it, and one that is older still is refused', async () => {
      const later: Migration = {
        id: '0004-later',
        readableSince: '0003-words',
        statements: ({ schema }) => [schema.alterTable('notes').addColumn('later', 'text')],
      };
      const newer = { name: 'grown', migrations: [...grownDatabase.migrations, later] };
      const location = await prepare(1);
      await (await places.open(newer, { location })).close();
      const older = await places.open<GrownSchema>(grownDatabase, { location });
      await older.write([{ sql: "insert into notes (id, text, size) values ('c', 'six', 3)", parameters: [] }]);
      assert.equal((await older.query.selectFrom('notes').selectAll().execute()).length, 3);
      await older.close();
      assert.deepEqual(await inspectDatabase(grownDatabase, location), {
        exists: true,
        migrations: 3,
        secretKey: undefined,
      });
      const ids = ['0003-words', '0004-later'];
      await assert.rejects(places.open(versionOf(2), { location }), {
        code: 'SCHEMA_TOO_NEW',
        details: { name: 'grown', ids },
      });
      await assert.rejects(inspectDatabase(versionOf(2), location), { code: 'SCHEMA_TOO_NEW' });
      await (await places.open(newer, { location })).close();
    });

    test('a newer schema is refused where this program has a migration that was not applied before', async () => {
      const later: Migration = { id: '0004-later', readableSince: '0001-notes', statements: () => [] };
      const branch = { name: 'grown', migrations: [...versionOf(2).migrations, later] };
      const location = await prepare(1);
      await (await places.open(branch, { location })).close();
      await assert.rejects(places.open(grownDatabase, { location }), { code: 'SCHEMA_TOO_NEW' });
    });

    test('a table of migrations from before it said who can read them gets that column', async () => {
      const location = await prepare(2);
      const old = await openEngine(location);
      await old.write([{ sql: 'alter table schema_migrations drop column readable_since', parameters: [] }]);
      await old.close();
      assert.deepEqual(await inspectDatabase(grownDatabase, location), {
        exists: true,
        migrations: 2,
        secretKey: undefined,
      });
      await checkGrown(location);
    });

    test('readableSince must name an earlier migration', async () => {
      const wrong: Migration = { id: '0004-later', readableSince: '0004-later', statements: () => [] };
      const migrations = [...grownDatabase.migrations, wrong];
      await assert.rejects(places.open({ name: 'grown', migrations }), /readableSince of migration 0004-later/);
    });

    test('a migration that was changed after it had been applied is refused', async () => {
      const location = await prepare(1);
      const changed: Migration = {
        id: '0001-notes',
        statements: ({ schema }) => [
          schema.createTable('notes').addColumn('id', 'text', (column) => column.primaryKey()),
        ],
      };
      const details = { name: 'grown', id: '0001-notes' };
      await assert.rejects(places.open({ name: 'grown', migrations: [changed] }, { location }), {
        code: 'SCHEMA_CHANGED',
        details,
      });
    });

    test('a migration that fails leaves the schema as it was', async () => {
      const location = await prepare(1);
      const failing: Migration = {
        id: '0002-failing',
        statements: ({ schema, query }) => [
          schema.createTable('more').addColumn('id', 'text', (column) => column.primaryKey()),
          sql`insert into nowhere values (1)`.compile(query),
        ],
      };
      const migrations = [...versionOf(1).migrations, failing];
      await assert.rejects(places.open({ name: 'grown', migrations }, { location }), /nowhere/);
      await checkGrown(location);
    });

    test('of several missing migrations none stays when one of them fails', async () => {
      const location = await prepare(1);
      const failing: Migration = {
        id: '9999-failing',
        statements: ({ query }) => [sql`insert into nowhere values (1)`.compile(query)],
      };
      const migrations = [...grownDatabase.migrations, failing];
      await assert.rejects(places.open({ name: 'grown', migrations }, { location }), /nowhere/);
      const left = await openEngine(location);
      const applied = await left.read({ sql: 'select id from schema_migrations', parameters: [] });
      await left.close();
      assert.equal(applied.length, versionOf(1).migrations.length);
      await checkGrown(location);
    });

    test('what would not mean the same on both engines is refused', async () => {
      const first = (statements: (tools: MigrationTools) => ReturnType<Migration['statements']>) =>
        places.open({ name: 'bad', migrations: [{ id: '0001', statements }] });
      const table = ({ schema }: MigrationTools) => schema.createTable('things');
      const column = (type: 'timestamp' | 'varchar' | 'serial') => (tools: MigrationTools) => [
        table(tools).addColumn('id', type, (builder) => builder.primaryKey()),
      ];
      for (const type of ['timestamp', 'varchar', 'serial'] as const)
        await assert.rejects(first(column(type)), /use text/);
      const counting = (tools: MigrationTools) => [
        table(tools).addColumn('id', 'integer', (builder) => builder.primaryKey().autoIncrement()),
      ];
      await assert.rejects(first(counting), /count by themselves/);
      await assert.rejects(
        first((tools) => [table(tools).addColumn('id', 'text')]),
        /no primary key/,
      );
    });

    test('migrations out of order are refused', async () => {
      const migrations = grownDatabase.migrations.toReversed();
      await assert.rejects(places.open({ name: 'grown', migrations }), /must sort after/);
    });
  });
}
