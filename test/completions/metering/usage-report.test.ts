import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { CallsQuery } from '../../../src/completions/contract/calls.ts';
import type { MeteredKeys } from '../../../src/completions/metered-keys.ts';
import { startUsageRetention } from '../../../src/completions/metering/call-log.ts';
import type { CompletionsSchema } from '../../../src/completions/storage/completions-schema.ts';
import { createObjectStore } from '../../../src/completions/storage/object-store.ts';
import { createUsageRetentionStore } from '../../../src/completions/storage/usage-store.ts';
import { callOnce, completionsDatabase, headWith, MASTER_KEY, startKeys } from '../../kit/completions/start-keys.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

interface Report {
  readonly data: {
    readonly group: string;
    readonly bucket?: string;
    readonly requests: number;
    readonly cost_usd: number;
  }[];
  readonly total: Record<string, number>;
}

/** As `GET /usage` answers. */
async function usage(keys: MeteredKeys, key: string, query: Record<string, string> = {}): Promise<Report> {
  return keys.report(await keys.access.withKey(headWith(key)), query);
}

for (const engine of engines) {
  describe(`usage on ${engine}`, () => {
    const places = databasePlaces(engine);
    const open = () => places.open<CompletionsSchema>(completionsDatabase);

    test('the log of calls is read page by page, by key, outcome, duration, request and time', async (t) => {
      const clock = createFakeClock(Date.UTC(2030, 0, 31, 12));
      const keys = startKeys(await open(), { clock });
      t.after(() => keys.stop());
      const first = await keys.register.create({ name: 'first' });
      const second = await keys.register.create({ name: 'second' });
      for (const key of [first.key, second.key, first.key]) callOnce(keys, await keys.access.withKey(headWith(key)));
      clock.stepWall(20 * 86_400_000);
      callOnce(keys, await keys.access.withKey(headWith(first.key)));
      const list = async (key: string, query: CallsQuery = {}) =>
        keys.calls.list(await keys.access.withKey(headWith(key)), query);
      const count = async (key: string, query: CallsQuery = {}) => (await list(key, query)).data.length;
      assert.equal(await count(MASTER_KEY), 1, 'the last 7 days');
      assert.equal(await count(MASTER_KEY, { from: '2030-01-01' }), 4);
      assert.equal(await count(MASTER_KEY, { from: '2030-01-01', to: '2030-01-31' }), 3);
      assert.equal(await count(MASTER_KEY, { from: '2030-01-31T13:00:00Z' }), 1);
      const all = { from: '2030-01-01' };
      assert.equal(await count(MASTER_KEY, { ...all, key: second.id }), 1);
      assert.equal(await count(first.key, all), 3);
      assert.equal(await count(first.key, { ...all, key: second.id }), 0, 'the calls of another key');
      for (const none of [
        { outcome: 'error' },
        { min_duration_ms: 13 },
        { request_id: 'req_2' },
        { api: 'x' },
      ] as const) {
        assert.equal(await count(MASTER_KEY, { ...all, ...none }), 0, JSON.stringify(none));
      }
      const some = { outcome: 'ok', min_duration_ms: 12, request_id: 'req_1', api: 'lab', model: 'lab/small' } as const;
      assert.equal(await count(MASTER_KEY, some), 4);
      const page = await list(MASTER_KEY, { ...all, limit: 3 });
      const rest = await list(MASTER_KEY, { ...all, limit: 3, before: page.data.at(-1)?.id ?? '' });
      assert.deepEqual([page.has_more, rest.has_more, rest.data.length], [true, false, 1]);
      const ids = [...page.data, ...rest.data].map(({ id }) => String(id));
      assert.deepEqual(ids, [...ids].sort().reverse());
      const [, , other] = page.data;
      assert.equal(other?.key, second.id);
      const mine = await keys.access.withKey(headWith(first.key));
      await assert.rejects(keys.calls.find(mine, other?.id ?? ''), { code: 'CALL_NOT_FOUND' });
      await assert.rejects(list(MASTER_KEY, { from: 'yesterday' }), { code: 'INVALID_REQUEST' });
    });

    test('P-28: a key sees its own usage and nothing of others; the master key sees all', async (t) => {
      const clock = createFakeClock(Date.UTC(2030, 0, 31, 12));
      const keys = startKeys(await open(), { clock });
      t.after(() => keys.stop());
      const first = await keys.register.create({ name: 'first' });
      const second = await keys.register.create({ name: 'second' });
      const call = async (key: string) => callOnce(keys, await keys.access.withKey(headWith(key)));
      await call(first.key);
      await call(second.key);
      clock.stepWall(86_400_000);
      await call(second.key);
      await call(MASTER_KEY);

      const all = await usage(keys, MASTER_KEY, { group_by: 'key' });
      assert.deepEqual(
        all.data.map(({ group, requests }) => [group, requests]),
        [
          [first.id, 1],
          [second.id, 2],
          ['master', 1],
        ],
      );
      assert.equal(all.total.requests, 4);
      assert.equal(all.total.prompt_tokens, 60);
      assert.equal(all.total.cost_usd?.toFixed(3), '0.060');

      for (const query of [{ group_by: 'key' }, { group_by: 'key', key: second.id }, { group_by: 'model' }]) {
        const own = await usage(keys, first.key, query);
        assert.equal(own.total.requests, 1, JSON.stringify(query));
        assert.ok(!JSON.stringify(own).includes(second.id));
      }
      const days = await usage(keys, second.key, { group_by: 'day' });
      assert.deepEqual(
        days.data.map(({ group, requests }) => [group, requests]),
        [
          ['2030-01-31', 1],
          ['2030-02-01', 1],
        ],
      );
      assert.equal((await usage(keys, MASTER_KEY, { key: second.id })).total.requests, 2);
      assert.equal((await usage(keys, MASTER_KEY, { group_by: 'api' })).data[0]?.group, 'lab');
      const lastDay = { from: '2030-02-01', to: '2030-02-01T13:00:00Z' };
      assert.equal((await usage(keys, MASTER_KEY, lastDay)).total.requests, 2);
      assert.equal((await usage(keys, MASTER_KEY, { from: '2029-01-01', to: '2029-12-31' })).total.requests, 0);
      await assert.rejects(usage(keys, MASTER_KEY, { from: 'monday' }), { code: 'INVALID_REQUEST' });
    });

    test('with then_by each group has a row for each day; the smallest of many groups are one, and the total stays', async (t) => {
      const clock = createFakeClock(Date.UTC(2030, 0, 31, 12));
      const keys = startKeys(await open(), { clock });
      t.after(() => keys.stop());
      const first = await keys.register.create({ name: 'first' });
      const call = async (key: string) => callOnce(keys, await keys.access.withKey(headWith(key)));
      await call(first.key);
      await call(MASTER_KEY);
      clock.stepWall(86_400_000);
      await call(first.key);
      await call(first.key);
      const rows = async (key: string, query: Record<string, string>) => {
        const { data, total } = await usage(keys, key, { then_by: 'day', ...query });
        return { rows: data.map(({ group, bucket, requests }) => [group, bucket, requests]), total: total.requests };
      };
      const byKey = await rows(MASTER_KEY, { group_by: 'key' });
      assert.deepEqual(byKey, {
        rows: [
          [first.id, '2030-01-31', 1],
          ['master', '2030-01-31', 1],
          [first.id, '2030-02-01', 2],
        ],
        total: 4,
      });
      const own = await rows(first.key, { group_by: 'key' });
      assert.deepEqual(own.rows, [
        [first.id, '2030-01-31', 1],
        [first.id, '2030-02-01', 2],
      ]);
      const byDay = await rows(MASTER_KEY, { group_by: 'day' });
      assert.deepEqual(byDay.rows[1], ['2030-02-01', undefined, 2], 'a day is not divided by days');

      for (let more = 0; more < 50; more += 1) {
        const { key } = await keys.register.create({ name: `key ${more}` });
        await call(key);
        await call(key);
      }
      const many = await rows(MASTER_KEY, { group_by: 'key' });
      const groups = new Set(many.rows.map(([group]) => group));
      assert.equal(groups.size, 51);
      assert.deepEqual([groups.has(first.id), groups.has('master')], [true, false]);
      const others = many.rows.filter(([group]) => group === 'other');
      assert.deepEqual(others.map(([, bucket]) => bucket).sort(), ['2030-01-31', '2030-02-01']);
      assert.equal(many.total, 104);
      assert.equal(
        many.rows.reduce((sum, [, , requests]) => sum + Number(requests), 0),
        104,
      );
    });

    test('requests and responses are removed after their own time; the records of their calls stay', async () => {
      const database = await open();
      const clock = createFakeClock(Date.UTC(2030, 0, 1));
      const keys = startKeys(database, { clock, settings: { master_key: MASTER_KEY, store_content: true } });
      const holder = await keys.access.withKey(headWith(MASTER_KEY));
      const content = { request: '{}', answer: '{}' };
      callOnce(keys, holder, 1, { content });
      clock.stepWall(20 * 86_400_000);
      callOnce(keys, holder, 1, { content });
      await keys.stop();
      const count = async (table: 'usage_contents' | 'usage_records') =>
        (await database.query.selectFrom(table).selectAll().execute()).length;
      assert.deepEqual([await count('usage_contents'), await count('usage_records')], [2, 2]);
      const retention = startUsageRetention({
        store: createUsageRetentionStore(database),
        objects: createObjectStore(database),
        clock,
        keepMs: 0,
        keepContentMs: 10 * 86_400_000,
        onError: (error) => assert.fail(String(error)),
      });
      await clock.advance(60_000);
      for (let wait = 0; wait < 400 && (await count('usage_contents')) > 1; wait += 1) {
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      await retention.stop();
      assert.deepEqual([await count('usage_contents'), await count('usage_records')], [1, 2]);
    });

    test('usage that is too old is removed in steps; what a key spent in all is kept', async () => {
      const database = await open();
      const day = 86_400_000;
      const start = Date.UTC(2030, 0, 1);
      const clock = createFakeClock(start);
      const keys = startKeys(database, { clock, settings: { master_key: MASTER_KEY, store_content: true } });
      const budget = { usd: 100, period: 'total' } as const;
      const { id, key } = await keys.register.create({ name: 'old', budget });
      const holder = await keys.access.withKey(headWith(key));
      for (let call = 0; call < 1100; call += 1) callOnce(keys, holder, 1);
      clock.stepWall(20 * day);
      callOnce(keys, holder, 1);
      await keys.stop();

      const steps: number[] = [];
      const store = createUsageRetentionStore(database);
      const retention = startUsageRetention({
        store: {
          ...store,
          async removeRecords(beforeId, limit) {
            const removed = await store.removeRecords(beforeId, limit);
            steps.push(removed);
            return removed;
          },
        },
        objects: createObjectStore(database),
        clock,
        keepMs: 10 * day,
        keepContentMs: 0,
        onError: (error) => assert.fail(String(error)),
      });
      await clock.advance(60_000);
      for (let wait = 0; wait < 400 && steps.length < 3; wait += 1) {
        await new Promise((resolve) => setTimeout(resolve, 5));
        await clock.advance(50);
      }
      for (let wait = 0; wait < 100; wait += 1) {
        if ((await database.query.selectFrom('usage_quarters').select('quarter').distinct().execute()).length === 1)
          break;
        await new Promise((resolve) => setTimeout(resolve, 5));
        await clock.advance(50);
      }
      await retention.stop();
      assert.deepEqual(steps, [500, 500, 100]);
      assert.equal((await database.query.selectFrom('usage_records').select('id').execute()).length, 1);
      const quarters = await database.query.selectFrom('usage_quarters').select('quarter').distinct().execute();
      assert.deepEqual(quarters, [{ quarter: Date.UTC(2030, 0, 21) / 900_000 }]);
      const spent = await database.query.selectFrom('key_spending').selectAll().execute();
      assert.equal(spent[0]?.key_id, id);
      assert.equal(spent[0]?.cost_nano_usd, 1_101_000_000);
    });
  });
}
