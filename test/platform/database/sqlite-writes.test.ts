import assert from 'node:assert/strict';
import { stat } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { describe, test } from 'node:test';
import type { Database } from '../../../src/platform/database/database.ts';
import type { SqliteLimits } from '../../../src/platform/database/sqlite/sqlite-engine.ts';
import { errorCode } from '../../../src/platform/errors/app-error.ts';
import { databasePlaces } from '../../kit/database-engines.ts';
import { item, type SampleSchema, sampleDatabase } from './sample-database.ts';

describe('writes on SQLite', () => {
  const places = databasePlaces('sqlite');

  async function open(limits: Partial<SqliteLimits> = {}): Promise<{ database: Database<SampleSchema>; file: string }> {
    const location = places.location();
    assert.ok(location.engine === 'sqlite');
    return { database: await places.open<SampleSchema>(sampleDatabase, { location, limits }), file: location.file };
  }
  function inserter({ statement, write }: Database<SampleSchema>) {
    const insert = statement((query, given: { id: string; label: string | null; parent: string | null }) =>
      query.insertInto('items').values(item(given.id, { label: given.label, parent: given.parent })),
    );
    return (id: string, values: { label?: string; parent?: string } = {}) =>
      write([insert({ id, label: values.label ?? null, parent: values.parent ?? null })]);
  }
  /** Until the returned function is called, no commit comes through. */
  function blockCommits(file: string): () => void {
    const other = new DatabaseSync(file);
    other.exec('BEGIN IMMEDIATE');
    return () => other.close();
  }

  test('batches that come at the same time share a commit', async () => {
    const { database } = await open();
    const insert = inserter(database);
    const before = database.statistics();
    await Promise.all(Array.from({ length: 64 }, (_, index) => insert(`${index}`)));
    const after = database.statistics();
    assert.equal(after.batches - before.batches, 64);
    assert.ok(after.commits - before.commits <= 4, `${after.commits - before.commits} commits`);
    assert.equal(after.queued, 0);
  });

  test('one batch that fails among 64 is undone as a whole and does not fail its neighbours', async () => {
    const { database } = await open();
    const insert = database.statement((query, given: { id: string }) =>
      query.insertInto('items').values(item(given.id)),
    );
    await database.write([insert({ id: 'taken' })]);
    const batches = Array.from({ length: 64 }, (_, index) => {
      const second = index === 31 ? 'taken' : `${index} second`;
      return database.write([insert({ id: `${index} first` }), insert({ id: second })]);
    });
    const outcomes = await Promise.allSettled(batches);
    const failed = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [errorCode(outcome.reason)] : []));
    assert.deepEqual(failed, ['STORAGE_DUPLICATE']);
    const ids = (await database.query.selectFrom('items').select('id').execute()).map(({ id }) => id);
    assert.equal(ids.length, 1 + 63 * 2);
    assert.equal(ids.includes('31 first'), false);
  });

  test('a batch that would fail the commit of all is stored alone, and fails alone', async () => {
    const { database } = await open();
    const insert = inserter(database);
    // This reference is only checked at the end of a transaction.
    const attempts = ['a', 'b', 'c'].map((id) => insert(id, id === 'b' ? { parent: 'nobody' } : {}));
    const outcomes = await Promise.allSettled(attempts);
    assert.deepEqual(
      outcomes.map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled'],
    );
    const rows = await database.query.selectFrom('items').select('id').orderBy('id').execute();
    assert.deepEqual(rows, [{ id: 'a' }, { id: 'c' }]);
    await insert('d');
  });

  test('integers beyond 2^53 in one batch of a round are exact, and its neighbours are stored once', async () => {
    const { database } = await open();
    const put = database.statement((query, given: { id: string; amount: number | bigint }) =>
      query
        .insertInto('items')
        .values(item(given.id, { amount: given.amount }))
        .returning(['id', 'amount']),
    );
    const large = 2n ** 60n + 1n;
    const results = await Promise.all(
      ['a', 'b', 'c'].map((id) => database.write([put({ id, amount: id === 'b' ? large : 1 })])),
    );
    const rows = results.map(([{ rows: returned }]) => returned[0]?.amount);
    assert.deepEqual(rows, [1, large, 1]);
  });

  test('a commit that waits does not stop the event loop, nor keyed reads', async () => {
    const { database, file } = await open();
    const insert = inserter(database);
    await insert('a');
    const unblock = blockCommits(file);
    let stored = false;
    const write = insert('b').then(() => {
      stored = true;
    });
    const all = database.statement((query) => query.selectFrom('items').select('id'));
    for (let turn = 0; turn < 50; turn += 1) {
      await new Promise(setImmediate);
      assert.deepEqual(await database.readKeyed(all()), [{ id: 'a' }]);
      assert.deepEqual(await database.read(all()), [{ id: 'a' }]);
    }
    assert.equal(stored, false);
    unblock();
    await write;
    assert.equal((await database.readKeyed(all())).length, 2);
  });

  test('a long read delays neither commits nor keyed reads', async () => {
    const { database } = await open();
    const insert = inserter(database);
    const sql =
      'with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000000) select count(*) c from n';
    const order: string[] = [];
    const long = database.read({ sql, parameters: [] }).then((rows) => {
      order.push('long');
      assert.deepEqual(rows, [{ c: 3_000_000 }]);
    });
    await insert('a');
    order.push('commit');
    await database.readKeyed({ sql: 'select 1', parameters: [] });
    order.push('keyed');
    await long;
    assert.deepEqual(order, ['commit', 'keyed', 'long']);
  });

  test('a full queue refuses immediately, and takes more when there is room', async () => {
    const { database, file } = await open({ queuedBatches: 3 });
    const insert = inserter(database);
    const unblock = blockCommits(file);
    const waiting = ['a', 'b', 'c'].map((id) => insert(id));
    await assert.rejects(insert('d'), { code: 'OVERLOADED' });
    assert.equal(database.statistics().queued, 3);
    unblock();
    await Promise.all(waiting);
    await insert('d');
    assert.equal((await database.query.selectFrom('items').select('id').execute()).length, 4);
  });

  test('the queue is bounded by size too, but one large batch alone is let through', async () => {
    const { database, file } = await open({ queuedSize: 1000 });
    const insert = inserter(database);
    await insert('large', { label: 'x'.repeat(5000) });
    const unblock = blockCommits(file);
    const waiting = insert('a', { label: 'y'.repeat(900) });
    await assert.rejects(insert('b', { label: 'z'.repeat(200) }), { code: 'OVERLOADED' });
    const small = insert('c', { label: 'z' });
    unblock();
    await Promise.all([waiting, small]);
  });

  test('reads that wait are bounded', async () => {
    const { database } = await open({ queuedReads: 2 });
    const read = () => database.read({ sql: 'select 1 as one', parameters: [] });
    const waiting = [read(), read()];
    await assert.rejects(read(), { code: 'OVERLOADED' });
    await Promise.all(waiting);
    assert.deepEqual(await read(), [{ one: 1 }]);
  });

  test('a part of a larger buffer is stored as that part', async () => {
    const { database } = await open();
    const whole = Buffer.from('before|content|after');
    const row = item('a', { content: whole.subarray(7, 14) });
    await database.query.insertInto('items').values(row).execute();
    const [found] = await database.query.selectFrom('items').select('content').execute();
    assert.equal(Buffer.from(found?.content ?? []).toString(), 'content');
  });

  test('the log beside the file stays small under load, and is gone after closing', async () => {
    const { database, file } = await open();
    const insert = inserter(database);
    const label = 'x'.repeat(4000);
    for (let round = 0; round < 50; round += 1) {
      await Promise.all(
        Array.from({ length: 100 }, (_, index) => insert(`${round}-${index}`, { label: `${round}-${index}${label}` })),
      );
    }
    const log = await stat(`${file}-wal`);
    assert.ok(log.size < 17 * 1024 * 1024, `${log.size} bytes`);
    await database.close();
    await assert.rejects(stat(`${file}-wal`), { code: 'ENOENT' });
    assert.equal((await stat(file)).mode & 0o777, 0o600);
  });

  test('databases of one process do not disturb each other when one closes', async () => {
    const [first, second] = [await open(), await open()];
    await Promise.all([inserter(first.database)('a'), inserter(second.database)('b')]);
    await first.database.close();
    await inserter(second.database)('c');
    assert.equal((await second.database.query.selectFrom('items').select('id').execute()).length, 2);
    assert.equal(first.database.statistics().batches, 1);
  });

  test('what is stored is on the disk, and references are kept', async () => {
    const { database } = await open();
    const settings = { journal_mode: 'wal', synchronous: 2, foreign_keys: 1, trusted_schema: 0, temp_store: 2 };
    await database.transaction(async ({ run }) => {
      for (const [name, value] of Object.entries(settings)) {
        const { rows } = await run({ sql: `PRAGMA ${name}`, parameters: [] });
        assert.deepEqual(rows, [{ [name]: value }]);
      }
    });
  });

  test('a file that is no database is refused', async () => {
    const { writeFile } = await import('node:fs/promises');
    const location = places.location();
    assert.ok(location.engine === 'sqlite');
    await writeFile(location.file, 'this is not a database, but long enough to be taken for one'.repeat(20));
    await assert.rejects(places.open(sampleDatabase, { location }), { code: 'STORAGE_UNAVAILABLE' });
  });
});
