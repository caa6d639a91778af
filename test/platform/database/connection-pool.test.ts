import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { Client } from 'pg';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { openConnectionPool } from '../../../src/platform/database/postgres/connection-pool.ts';
import { openWakeUps } from '../../../src/platform/database/postgres/wake-ups.ts';
import { urgent } from '../../../src/platform/database/statement.ts';
import { databasePlaces } from '../../kit/database-engines.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';
import { item, type SampleSchema, sampleDatabase } from './sample-database.ts';

describe('one pool for several schemas', { timeout: 120_000 }, () => {
  const places = databasePlaces('postgres');

  /** Databases of as many schemas on one pool. */
  async function openAll(t: TestContext, count: number, size: number): Promise<readonly Database<SampleSchema>[]> {
    const pool = await openConnectionPool(places.postgres().url, { size });
    const databases: Database<SampleSchema>[] = [];
    t.after(async () => {
      await Promise.all(databases.map((database) => database.close()));
      await pool.close();
    });
    for (let index = 0; index < count; index += 1) {
      const location = places.location();
      assert.equal(location.engine, 'postgres');
      databases.push(await places.open<SampleSchema>(sampleDatabase, { location: { ...location, pool } }));
    }
    return databases;
  }

  const insert = (database: Database<SampleSchema>, id: string) =>
    database.write([database.query.insertInto('items').values(item(id)).compile()]);
  const idsOf = (database: Database<SampleSchema>) =>
    database.statement((query) => query.selectFrom('items').select('id').orderBy('id'));

  /** A connection of the test's own, which holds a lock until it is let go. */
  async function holdLock(t: TestContext): Promise<{ readonly client: Client; release(): Promise<unknown> }> {
    const client = new Client({ connectionString: places.postgres().url });
    await client.connect();
    t.after(() => client.end());
    await client.query('select pg_advisory_lock(77)');
    return { client, release: () => client.query('select pg_advisory_unlock(77)') };
  }
  const waitForLock = { sql: 'select pg_advisory_lock_shared(77), pg_advisory_unlock_shared(77)', parameters: [] };
  const waiters = async (client: Client) => {
    const text = "select count(*)::int as count from pg_stat_activity where wait_event = 'advisory'";
    return (await client.query<{ readonly count: number }>(text)).rows[0]?.count ?? 0;
  };

  test('what is urgent gets the next connection, before all that came sooner', async (t) => {
    const [database] = await openAll(t, 1, 1);
    assert.ok(database !== undefined);
    const { client, release } = await holdLock(t);
    const holding = database.read(waitForLock);
    await until('the only connection is taken', async () => (await waiters(client)) === 1);
    const stored: string[] = [];
    const note = (id: string) => () => void stored.push(id);
    const heartbeat = urgent(database.query.insertInto('items').values(item('heartbeat')).compile());
    const waiting = [
      insert(database, 'first').then(note('first')),
      insert(database, 'second').then(note('second')),
      database.write([heartbeat]).then(note('heartbeat')),
      database.transaction(({ run }) => run(idsOf(database)()), { isUrgent: true }).then(note('transaction')),
    ];
    await release();
    await Promise.all([holding, ...waiting]);
    assert.deepEqual(stored, ['heartbeat', 'transaction', 'first', 'second']);
  });

  test('messages of many topics are sent one after the other over their connection', async (t) => {
    const warnings: string[] = [];
    const note = ({ message }: Error) => void warnings.push(message);
    process.on('warning', note);
    t.after(() => process.off('warning', note));
    const wakeUps = await openWakeUps({ url: places.postgres().url, clock: systemClock, logger: silentLogger });
    t.after(() => wakeUps.stop());
    await until('it listens', () => wakeUps.isListening());
    const topics = Array.from({ length: 20 }, (_, index) => `topic-${index}`);
    const heard = new Set<string>();
    for (const topic of topics) wakeUps.on(topic, (subject) => void (subject === 'now' && heard.add(topic)));
    for (const topic of topics) wakeUps.send(topic, 'now');
    await until('all were heard', () => heard.size === topics.length);
    assert.deepEqual(warnings, []);
  });

  test('the same statements find the rows of their own schema, whichever connection they get', async (t) => {
    const databases = await openAll(t, 3, 2);
    for (const [index, database] of databases.entries()) await insert(database, `row-${index}`);
    const reads = databases.map((database) => idsOf(database));
    const rounds = Array.from({ length: 60 }, async (_, round) => {
      const which = round % databases.length;
      const [database, read] = [databases[which], reads[which]];
      assert.ok(database !== undefined && read !== undefined);
      assert.deepEqual(await database.read(read()), [{ id: `row-${which}` }]);
    });
    await Promise.all(rounds);
  });

  test('slow statements of one service leave a connection for each of the others', async (t) => {
    const [busy, quiet, other] = await openAll(t, 3, 4);
    assert.ok(busy !== undefined && quiet !== undefined && other !== undefined);
    const { client, release } = await holdLock(t);
    const slow = Array.from({ length: 10 }, () => busy.read(waitForLock));
    await until('two of four connections to be in use', async () => (await waiters(client)) === 2);
    await insert(quiet, 'a');
    await insert(other, 'b');
    assert.equal(await waiters(client), 2, 'the busy service has taken what was left for others');
    await release();
    await Promise.all(slow);
  });

  test('work that waits for another service while it holds a connection ends', async (t) => {
    const [one, two] = await openAll(t, 2, 2);
    assert.ok(one !== undefined && two !== undefined);
    await insert(two, 'a');
    const read = idsOf(two);
    const nested = Array.from({ length: 10 }, () =>
      one.transaction(async ({ query }) => {
        await query.selectFrom('items').select('id').execute();
        return two.read(read());
      }),
    );
    for (const rows of await Promise.all(nested)) assert.deepEqual(rows, [{ id: 'a' }]);
  });

  test('what finds no free connection within five seconds is unavailable, and the next call is served', async (t) => {
    const [database] = await openAll(t, 1, 1);
    assert.ok(database !== undefined);
    const { client, release } = await holdLock(t);
    const slow = database.read(waitForLock);
    await until('the connection to be in use', async () => (await waiters(client)) === 1);
    await assert.rejects(insert(database, 'late'), { code: 'STORAGE_UNAVAILABLE' });
    await release();
    await slow;
    await insert(database, 'next');
    assert.deepEqual(await database.read(idsOf(database)()), [{ id: 'next' }]);
  });

  test('after the loss of all connections a batch of another schema is stored without an error', async (t) => {
    const [one, two] = await openAll(t, 2, 4);
    assert.ok(one !== undefined && two !== undefined);
    await Promise.all(Array.from({ length: 6 }, (_, index) => insert(one, `${index}`)));
    await places.postgres().restart();
    // The connections that are left over were used for the other schema: each is found to be lost before anything is sent.
    await insert(two, 'a');
    assert.deepEqual(await two.read(idsOf(two)()), [{ id: 'a' }]);
  });
});
