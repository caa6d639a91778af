import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { expectChanges } from '../../../src/platform/database/statement.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import fc from '../../kit/properties.ts';
import { item, type SampleSchema, sampleDatabase } from './sample-database.ts';

for (const engine of engines) {
  describe(`a store on ${engine}`, () => {
    const places = databasePlaces(engine);
    const open = () => places.open<SampleSchema>(sampleDatabase);

    test('a row comes back as it was stored, whichever way it is read', async () => {
      const database = await open();
      const row = item('a', { label: 'ä 🙂', amount: 7, ratio: 0.1, content: new Uint8Array([0, 1, 255]) });
      await database.write([database.query.insertInto('items').values(row).compile()]);
      const find = database.statement((query, given: { id: string }) =>
        query.selectFrom('items').selectAll().where('id', '=', given.id),
      );
      assert.deepEqual(await database.readKeyed(find({ id: 'a' })), [row]);
      assert.deepEqual(await database.read(find({ id: 'a' })), [row]);
      assert.deepEqual(await database.query.selectFrom('items').selectAll().execute(), [row]);
      assert.deepEqual(await database.readKeyed(find({ id: 'b' })), []);
      const ids = database.query.selectFrom('items').select('id').compile();
      assert.deepEqual(await database.readKeyed(ids), [{ id: 'a' }]);
    });

    test('a statement takes a whole row, and refuses a later one with other members', async () => {
      const database = await open();
      const put = database.statement((query, given: ReturnType<typeof item>) =>
        query.insertInto('items').values({ ...given }),
      );
      const rows = [item('a', { label: 'first' }), item('b', { label: 'second', amount: 2 })];
      await database.write(rows.map((row) => put(row)));
      assert.deepEqual(await database.query.selectFrom('items').selectAll().orderBy('id').execute(), rows);
      assert.throws(() => put({ ...item('c'), more: 1 } as never), /other members than the first one/);
      const { label: _, ...less } = item('d');
      assert.throws(() => put(less as never), /other members than the first one/);
    });

    test('any values survive being stored', async () => {
      const database = await open();
      const put = database.statement((query, given: { id: string; label: string; amount: bigint; ratio: number }) =>
        query
          .insertInto('items')
          .values(item(given.id, { label: given.label, amount: given.amount, ratio: given.ratio }))
          .returningAll(),
      );
      const text = fc.string({ unit: 'binary' }).filter((value) => !value.includes('\0') && value.isWellFormed());
      const integer = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
      const double = fc.double({ noNaN: true, noDefaultInfinity: true }).filter((value) => !Object.is(value, -0));
      let id = 0;
      await fc.assert(
        fc.asyncProperty(text, integer, double, async (label, amount, ratio) => {
          id += 1;
          const [result] = await database.write([put({ id: `${id}`, label: `${id}${label}`, amount, ratio })]);
          const [row] = result.rows;
          assert.equal(row?.label, `${id}${label}`);
          assert.equal(BigInt(row?.amount ?? 0), amount);
          assert.equal(row?.ratio, ratio);
        }),
        { numRuns: 60 },
      );
    });

    test('integers beyond 2^53 are exact, smaller ones are numbers', async () => {
      const database = await open();
      const { query } = database;
      const put = database.statement((builder, given: { id: string; amount: number | bigint }) =>
        builder
          .insertInto('items')
          .values(item(given.id, { amount: given.amount }))
          .returning('amount'),
      );
      const all = database.statement((builder) => builder.selectFrom('items').select('amount').orderBy('amount'));
      const stored = async (id: string, amount: number | bigint) => (await database.write([put({ id, amount })]))[0];
      const largest = 2n ** 63n - 1n;
      assert.deepEqual((await stored('a', 5n)).rows, [{ amount: 5 }]);
      assert.deepEqual((await stored('b', largest)).rows, [{ amount: largest }]);
      assert.deepEqual((await stored('c', 2 ** 53 - 1)).rows, [{ amount: 2 ** 53 - 1 }]);
      const expected = [{ amount: 5 }, { amount: 2 ** 53 - 1 }, { amount: largest }];
      assert.deepEqual(await database.readKeyed(all()), expected);
      assert.deepEqual(await database.read(all()), expected);
      const [count] = await query.selectFrom('items').select(query.fn.countAll().as('n')).execute();
      assert.deepEqual(count, { n: 3 });
    });

    test('flags are stored as 1 and 0, and an integer column refuses a text', async () => {
      const database = await open();
      const insert = (id: string, amount: unknown) =>
        database.write([
          database.query
            .insertInto('items')
            .values(item(id, { amount: amount as number }))
            .compile(),
        ]);
      await insert('a', true);
      await insert('b', false);
      const rows = await database.query.selectFrom('items').select('amount').orderBy('id').execute();
      assert.deepEqual(rows, [{ amount: 1 }, { amount: 0 }]);
      await assert.rejects(insert('c', 'many'));
    });

    test('what the engines would store differently is refused', async () => {
      const database = await open();
      const insert = (values: object) =>
        database.write([database.query.insertInto('items').values(item('x', values)).compile()]);
      await assert.rejects(insert({ label: 'a\0b' }), { code: 'INVALID_REQUEST' });
      for (const amount of [Number.NaN, Number.POSITIVE_INFINITY, 2n ** 63n, new Date(), { a: 1 }]) {
        await assert.rejects(insert({ amount }), (error) => error instanceof TypeError || error instanceof RangeError);
      }
      assert.deepEqual(await database.query.selectFrom('items').selectAll().execute(), []);
    });

    test('a batch is stored as a whole, with the rows and changes of each statement', async () => {
      const database = await open();
      const { query } = database;
      const results = await database.write([
        query
          .insertInto('items')
          .values([item('a'), item('b')])
          .compile(),
        query.updateTable('items').set({ label: 'first' }).where('id', '=', 'a').returning(['id', 'label']).compile(),
        query.deleteFrom('items').where('id', '=', 'nobody').compile(),
        query.selectFrom('items').select('id').orderBy('id', 'desc').compile(),
      ]);
      assert.deepEqual(results, [
        { rows: [], changes: 2 },
        { rows: [{ id: 'a', label: 'first' }], changes: 1 },
        { rows: [], changes: 0 },
        { rows: [{ id: 'b' }, { id: 'a' }], changes: 2 },
      ]);
      assert.deepEqual(await database.write([]), []);
    });

    test('a batch with a statement that fails leaves nothing behind', async () => {
      const database = await open();
      const { query } = database;
      const insert = (id: string) => query.insertInto('items').values(item(id)).compile();
      await database.write([insert('a')]);
      await assert.rejects(database.write([insert('b'), insert('a'), insert('c')]), {
        code: 'STORAGE_DUPLICATE',
        details: { table: 'items', columns: ['id'] },
      });
      const orphan = query.insertInto('entries').values({ item: 'x', place: 1, body: '' }).compile();
      await assert.rejects(database.write([insert('d'), orphan]));
      assert.deepEqual(await query.selectFrom('items').select('id').execute(), [{ id: 'a' }]);
    });

    test('a duplicate names the columns of its index', async () => {
      const database = await open();
      const insert = (id: string) =>
        database.write([
          database.query
            .insertInto('items')
            .values(item(id, { label: 'same' }))
            .compile(),
        ]);
      await insert('a');
      await assert.rejects(insert('b'), { details: { table: 'items', columns: ['label'] } });
    });

    test('a statement that changes another number of rows than expected undoes its batch', async () => {
      const database = await open();
      const { query } = database;
      const rename = database.statement((builder, given: { from: string; to: string }) =>
        builder.updateTable('items').set({ label: given.to }).where('label', '=', given.from),
      );
      await database.write([
        query
          .insertInto('items')
          .values(item('a', { label: 'old' }))
          .compile(),
      ]);
      await database.write([expectChanges(rename({ from: 'old', to: 'new' }), 1)]);
      const insert = query.insertInto('items').values(item('b')).compile();
      await assert.rejects(database.write([insert, expectChanges(rename({ from: 'old', to: 'newer' }), 1)]), {
        code: 'STORAGE_CONFLICT',
        details: { statement: 1, expected: 1, changes: 0 },
      });
      await assert.rejects(database.write([expectChanges(rename({ from: 'old', to: 'x' }), 1)]), {
        code: 'STORAGE_CONFLICT',
      });
      assert.deepEqual(await query.selectFrom('items').select(['id', 'label']).execute(), [{ id: 'a', label: 'new' }]);

      const refusals = { conflict: 'NOT_FOUND', duplicate: 'FORBIDDEN', details: { id: 'a' } } as const;
      const lost = database.write([expectChanges(rename({ from: 'old', to: 'x' }), 1)], refusals);
      await assert.rejects(lost, { code: 'NOT_FOUND', details: { id: 'a' } });
      const twice = query.insertInto('items').values(item('a')).compile();
      await assert.rejects(database.write([twice], refusals), { code: 'FORBIDDEN', details: { id: 'a' } });
      await assert.rejects(database.write([twice], { conflict: 'NOT_FOUND' }), { code: 'STORAGE_DUPLICATE' });
    });

    test('text sorts by its bytes', async () => {
      const database = await open();
      const ids = ['a', 'B', 'ä', '_', 'Z', 'aa', '-'];
      await database.query
        .insertInto('items')
        .values(ids.map((id) => item(id)))
        .execute();
      const rows = await database.query.selectFrom('items').select('id').orderBy('id').execute();
      const expected = ids.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
      const found = rows.map(({ id }) => id);
      assert.deepEqual(found, expected);
    });

    test('a statement takes its parameters in every place that takes a value', async () => {
      const database = await open();
      await database.query
        .insertInto('items')
        .values(['a', 'b', 'c'].map((id) => item(id)))
        .execute();
      const page = database.statement((query, given: { after: string; many: number }) =>
        query.selectFrom('items').select('id').where('id', '>', given.after).orderBy('id').limit(given.many),
      );
      assert.deepEqual(await database.readKeyed(page({ after: 'a', many: 1 })), [{ id: 'b' }]);
      assert.deepEqual(await database.read(page({ after: 'a', many: 5 })), [{ id: 'b' }, { id: 'c' }]);
      // @ts-expect-error: a parameter is missing
      await assert.rejects(database.readKeyed(page({ after: 'a' })), TypeError);
      const spread = database.statement((query, given: { id: string }) =>
        query
          .insertInto('items')
          .values({ ...item(''), ...given })
          .returningAll(),
      );
      const [stored] = await database.write([spread({ id: 'd' })]);
      assert.deepEqual(stored.rows, [item('', { id: 'd' })]);
      assert.throws(() => spread({ id: 'e', label: 'more' } as never), TypeError);
    });

    test('what is wrong in our own SQL is not dressed up as a problem of the storage', async () => {
      const database = await open();
      const wrong = { sql: 'select 1 from nowhere', parameters: [] };
      const attempts = [() => database.read(wrong), () => database.readKeyed(wrong), () => database.write([wrong])];
      for (const attempt of attempts) {
        await assert.rejects(attempt, (error: Error) => error.name !== 'AppError' && /nowhere/.test(error.message));
      }
    });
  });
}
