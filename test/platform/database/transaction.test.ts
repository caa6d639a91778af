import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Clock } from '../../../src/platform/clock/clock.ts';
import { errorCode } from '../../../src/platform/errors/app-error.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { item, type SampleSchema, sampleDatabase } from './sample-database.ts';

/** A clock whose only timer goes off when the test says so. */
function createAlarm(): Clock & { ring(): void } {
  let alarm: (() => void) | undefined;
  return {
    now: () => 0,
    monotonic: () => 0,
    after(_, action) {
      alarm = action;
      return () => undefined;
    },
    ring: () => alarm?.(),
  };
}

for (const engine of engines) {
  describe(`transactions on ${engine}`, () => {
    const places = databasePlaces(engine);
    const open = () => places.open<SampleSchema>(sampleDatabase);

    test('a transaction is stored as a whole when its work is done', async () => {
      const database = await open();
      const result = await database.transaction(async ({ query, run }) => {
        await query
          .insertInto('items')
          .values(item('a', { amount: 1 }))
          .execute();
        const { rows } = await run(query.selectFrom('items').selectAll().compile());
        const { changes } = await run(query.updateTable('items').set({ amount: 2 }).compile());
        return { read: rows.map(({ id }) => id), changes };
      });
      assert.deepEqual(result, { read: ['a'], changes: 1 });
      assert.deepEqual(await database.query.selectFrom('items').select('amount').execute(), [{ amount: 2 }]);
    });

    test('a transaction whose work throws leaves nothing behind', async () => {
      const database = await open();
      const failure = new Error('changed my mind');
      const attempt = database.transaction(async ({ query }) => {
        await query.insertInto('items').values(item('a')).execute();
        throw failure;
      });
      await assert.rejects(attempt, failure);
      assert.deepEqual(await database.query.selectFrom('items').selectAll().execute(), []);
    });

    test('a statement that fails ends its transaction, even when the work goes on', async () => {
      const database = await open();
      await database.query.insertInto('items').values(item('a')).execute();
      const attempt = database.transaction(async ({ query }) => {
        await query.insertInto('items').values(item('b')).execute();
        const duplicate = query.insertInto('items').values(item('a')).execute();
        await duplicate.catch(() => undefined);
        return 'fine';
      });
      await assert.rejects(attempt, { code: 'STORAGE_DUPLICATE' });
      assert.deepEqual(await database.query.selectFrom('items').select('id').execute(), [{ id: 'a' }]);
    });

    test('transactions that read and then write do not lose an update', async () => {
      const database = await open();
      await database.query
        .insertInto('items')
        .values(item('a', { amount: 0 }))
        .execute();
      const increment = () =>
        database.transaction(async ({ query }) => {
          const { amount } = await query.selectFrom('items').select('amount').executeTakeFirstOrThrow();
          await query
            .updateTable('items')
            .set({ amount: Number(amount) + 1 })
            .execute();
        });
      const outcomes = await Promise.allSettled(Array.from({ length: 8 }, increment));
      const stored = outcomes.filter(({ status }) => status === 'fulfilled').length;
      for (const outcome of outcomes) {
        if (outcome.status === 'rejected') assert.equal(errorCode(outcome.reason), 'STORAGE_CONFLICT');
      }
      assert.ok(stored >= 1);
      assert.deepEqual(await database.query.selectFrom('items').select('amount').execute(), [{ amount: stored }]);
    });

    test('batches that come during a transaction are stored, on SQLite after it', async () => {
      const database = await open();
      const insert = (id: string) => database.query.insertInto('items').values(item(id)).compile();
      const order: string[] = [];
      const gate = Promise.withResolvers<void>();
      const begun = Promise.withResolvers<void>();
      const transaction = database.transaction(async ({ query }) => {
        await query.insertInto('items').values(item('first')).execute();
        begun.resolve();
        await gate.promise;
        order.push('transaction');
      });
      await begun.promise;
      const batches = ['a', 'b', 'c'].map((id) => database.write([insert(id)]));
      const stored = Promise.all(batches).then(() => order.push('batches'));
      await database.check();
      gate.resolve();
      await Promise.all([transaction, stored]);
      if (engine === 'sqlite') assert.deepEqual(order, ['transaction', 'batches']);
      assert.equal((await database.query.selectFrom('items').select('id').execute()).length, 4);
    });

    test('a transaction that takes too long is undone, and what it tries afterwards is refused', async () => {
      const clock = createAlarm();
      const database = await places.open<SampleSchema>(sampleDatabase, { clock });
      const gate = Promise.withResolvers<void>();
      const begun = Promise.withResolvers<void>();
      const late = Promise.withResolvers<unknown>();
      const transaction = database.transaction(
        async ({ query }) => {
          await query.insertInto('items').values(item('a')).execute();
          begun.resolve();
          await gate.promise;
          query.insertInto('items').values(item('b')).execute().then(late.resolve, late.resolve);
        },
        { timeoutMs: 10_000 },
      );
      await begun.promise;
      clock.ring();
      await assert.rejects(transaction, { code: 'CALL_TIMEOUT', details: { timeoutMs: 10_000 } });
      gate.resolve();
      assert.equal(errorCode(await late.promise), 'CALL_TIMEOUT');
      await database.query.insertInto('items').values(item('c')).execute();
      assert.deepEqual(await database.query.selectFrom('items').select('id').execute(), [{ id: 'c' }]);
    });

    test('a snapshot does not see what is stored after it began, and changes nothing', async () => {
      const database = await open();
      const insert = (id: string) => database.query.insertInto('items').values(item(id)).execute();
      const all = { sql: 'select id from items', parameters: [] };
      await insert('a');
      await database.snapshot(async (connection) => {
        assert.equal((await connection.execute(all)).changes, 1);
        await insert('b');
        assert.equal((await connection.execute(all)).changes, 1);
        assert.equal((await database.read(all)).length, 2);
        await assert.rejects(connection.execute({ sql: 'delete from items', parameters: [] }));
      });
      await insert('c');
      assert.equal((await database.read(all)).length, 3);
    });

    test('a transaction of the query builder itself is refused', async () => {
      const database = await open();
      const attempt = database.query.transaction().execute(async () => undefined);
      await assert.rejects(attempt, /database\.transaction/);
    });

    test('closing stores what was submitted and refuses what comes later', async () => {
      const location = places.location();
      const database = await places.open<SampleSchema>(sampleDatabase, { location });
      const insert = (id: string) => database.write([database.query.insertInto('items').values(item(id)).compile()]);
      const submitted = [insert('a'), insert('b')];
      const closed = database.close();
      await assert.rejects(insert('c'), { code: 'SHUTTING_DOWN' });
      await assert.rejects(database.check(), { code: 'SHUTTING_DOWN' });
      await Promise.all([...submitted, closed]);
      const again = await places.open<SampleSchema>(sampleDatabase, { location });
      assert.equal((await again.query.selectFrom('items').select('id').execute()).length, 2);
      await again.check();
    });
  });
}
