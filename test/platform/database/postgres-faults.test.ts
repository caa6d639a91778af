import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Database } from '../../../src/platform/database/database.ts';
import { errorCode } from '../../../src/platform/errors/app-error.ts';
import { databasePlaces } from '../../kit/database-engines.ts';
import { until } from '../../kit/until.ts';
import { item, type SampleSchema, sampleDatabase } from './sample-database.ts';

describe('faults on PostgreSQL', { timeout: 120_000 }, () => {
  const places = databasePlaces('postgres');
  const open = () => places.open<SampleSchema>(sampleDatabase);
  const insert = (database: Database<SampleSchema>, id: string) =>
    database.write([database.query.insertInto('items').values(item(id)).compile()]);
  const count = async (database: Database<SampleSchema>) =>
    (await database.query.selectFrom('items').select('id').execute()).length;
  /** Ends all connections of the database but the one that asks. */
  const terminate = (database: Database<SampleSchema>) =>
    database.read({
      sql: 'select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and usename = current_user',
      parameters: [],
    });

  test('connections that the server ended while nobody used them are replaced without an error', async () => {
    const [database, other] = [await open(), await open()];
    await Promise.all(Array.from({ length: 5 }, (_, index) => insert(database, `${index}`)));
    await terminate(other);
    assert.equal(await count(database), 5);
    await database.check();
  });

  test('a batch whose connection is ended in the middle is reported as unavailable, and the next one is stored', async () => {
    const [database, other] = [await open(), await open()];
    const { query } = database;
    const slow = { sql: 'select pg_sleep(20)', parameters: [] };
    const batch = database.write([query.insertInto('items').values(item('a')).compile(), slow]);
    const rejected = assert.rejects(batch, { code: 'STORAGE_UNAVAILABLE' });
    const asleep = {
      sql: "select 1 from pg_stat_activity where query like '%pg_sleep%' and pid <> pg_backend_pid()",
      parameters: [],
    };
    await until('the statement to sleep', async () => (await other.read(asleep)).length > 0);
    await terminate(other);
    await rejected;
    assert.equal(await count(database), 0);
    await insert(database, 'b');
    assert.equal(await count(database), 1);
  });

  test('a transaction whose connection is ended in the middle is reported as unavailable', async () => {
    const [database, other] = [await open(), await open()];
    const attempt = database.transaction(async ({ query }) => {
      await query.insertInto('items').values(item('a')).execute();
      await terminate(other);
      await query.insertInto('items').values(item('b')).execute();
    });
    await assert.rejects(attempt, { code: 'STORAGE_UNAVAILABLE' });
    assert.equal(await count(database), 0);
  });

  test('while the server is down calls fail as unavailable, and after its return they work without a restart', async () => {
    const database = await open();
    await insert(database, 'before');
    const statement = database.statement((query, given: { id: string }) =>
      query.selectFrom('items').select('id').where('id', '=', given.id),
    );
    await database.readKeyed(statement({ id: 'before' }));
    await places.postgres().pause();
    await assert.rejects(insert(database, 'meanwhile'), { code: 'STORAGE_UNAVAILABLE' });
    await assert.rejects(database.readKeyed(statement({ id: 'before' })), { code: 'STORAGE_UNAVAILABLE' });
    await assert.rejects(database.check(), { code: 'STORAGE_UNAVAILABLE' });
    await places.postgres().start();
    await database.check();
    await insert(database, 'after');
    assert.deepEqual(await database.readKeyed(statement({ id: 'before' })), [{ id: 'before' }]);
    assert.equal(await count(database), 2);
  });

  test('a restart under load loses nothing that was reported as stored', async () => {
    const database = await open();
    const stored: string[] = [];
    const errors = new Set<string>();
    let stopped = false;
    const load = Array.from({ length: 8 }, async (_, worker) => {
      for (let index = 0; !stopped; index += 1) {
        const id = `${worker}-${index}`;
        await insert(database, id).then(
          () => stored.push(id),
          (error) => errors.add(errorCode(error)),
        );
        await delay(1);
      }
    });
    for (let restart = 0; restart < 3; restart += 1) {
      const before = stored.length;
      await places.postgres().restart();
      await until('twenty more rows', () => stored.length >= before + 20);
    }
    stopped = true;
    await Promise.all(load);
    assert.deepEqual([...errors], ['STORAGE_UNAVAILABLE']);
    const rows = await database.query.selectFrom('items').select('id').execute();
    const found = new Set(rows.map(({ id }) => id));
    assert.deepEqual(
      stored.filter((id) => !found.has(id)),
      [],
    );
  });

  test('two batches that lock each other out are both stored in the end', async () => {
    const database = await open();
    const { query } = database;
    await database.write([
      query
        .insertInto('items')
        .values([item('a'), item('b')])
        .compile(),
    ]);
    const touch = (id: string, label: string) =>
      query.updateTable('items').set({ label }).where('id', '=', id).compile();
    const pause = { sql: 'select pg_sleep(0.2)', parameters: [] };
    await Promise.all([
      database.write([touch('a', '1'), pause, touch('b', '2')]),
      database.write([touch('b', '3'), pause, touch('a', '4')]),
    ]);
    const labels = await query.selectFrom('items').select('label').orderBy('id').execute();
    assert.ok(
      [
        ['1', '2'],
        ['4', '3'],
      ].some((pair) => pair.join() === labels.map(({ label }) => label).join()),
    );
  });

  test('a statement prepared before another instance changed the table still works', async () => {
    const location = places.location();
    const [database, newer] = [
      await places.open<SampleSchema>(sampleDatabase, { location }),
      await places.open<SampleSchema>(sampleDatabase, { location }),
    ];
    await insert(database, 'a');
    const all = database.statement((query) => query.selectFrom('items').selectAll());
    await database.read(all());
    await newer.query.schema.alterTable('items').addColumn('added', 'text').execute();
    assert.deepEqual(await database.read(all()), [{ ...item('a'), added: null }]);
  });

  test('a server that cannot be reached is reported as unavailable', async () => {
    const location = { engine: 'postgres', url: 'postgres://nobody:secret@127.0.0.1:1/none', schema: 'none' } as const;
    await assert.rejects(places.open(sampleDatabase, { location }), (error: Error) => {
      assert.equal(errorCode(error), 'DATABASE_UNREACHABLE');
      assert.doesNotMatch(JSON.stringify(error) + String(error.cause), /secret/);
      return true;
    });
  });

  test('a schema name that would have to be quoted is refused', async () => {
    const location = { engine: 'postgres', url: places.postgres().url, schema: 'x"; drop' } as const;
    await assert.rejects(places.open(sampleDatabase, { location }), TypeError);
  });

  test('settings in the address are kept beside the search path', async () => {
    const url = `${places.postgres().url}?options=-c%20application_name%3Dtold`;
    const location = { engine: 'postgres', url, schema: 'told' } as const;
    const database = await places.open<SampleSchema>(sampleDatabase, { location });
    const setting = {
      sql: "select current_setting('application_name') as name, current_schema() as schema",
      parameters: [],
    };
    assert.deepEqual(await database.read(setting), [{ name: 'told', schema: 'told' }]);
  });
});
