import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createUsageMeter, type UsageMeter } from '../../../src/completions/metering/usage-meter.ts';
import type { CompletionsSchema } from '../../../src/completions/storage/completions-schema.ts';
import { createUsageReportStore } from '../../../src/completions/storage/usage-report-store.ts';
import { createUsageStore, type UsageFlush, type UsageStore } from '../../../src/completions/storage/usage-store.ts';
import { pause } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import { completionsDatabase } from '../../kit/completions/start-keys.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { holderOf, outcomeOf } from '../keys/calls.ts';

const everything = { from: 0, to: Number.MAX_SAFE_INTEGER };

function startMeter(store: Pick<UsageStore, 'add'>, capacity = 1000) {
  const clock = createFakeClock(Date.UTC(2030, 0, 1, 12));
  const lost: string[] = [];
  const meter = createUsageMeter({
    store,
    clock,
    makeId: createSortableIds(clock, systemRandomness),
    capacity,
    onLost: (what, count) => lost.push(`${count} ${what}`),
  });
  return { clock, meter, lost };
}

function observe(meter: UsageMeter, changes: Parameters<typeof outcomeOf>[0] = {}, key = 'key_1'): void {
  meter.observe({
    holder: holderOf(undefined, { id: key, owner: 'usr_1' }),
    outcome: outcomeOf(changes),
    promptTokens: 10,
    completionTokens: 5,
    costNano: 15_000_000,
    priceKnown: true,
    charges: [{ bucket: key, period: 'total' }],
  });
}

for (const engine of engines) {
  describe(`metering on ${engine}`, () => {
    const places = databasePlaces(engine);
    const open = () => places.open<CompletionsSchema>(completionsDatabase);

    test('P-34: each call is stored with what it used, and its sums with it', async () => {
      const database = await open();
      const store = createUsageStore(database);
      const { clock, meter } = startMeter(store);
      observe(meter);
      observe(meter, { outcome: 'partial', status: 502, attempts: 3, estimated: true, model: 'fast' });
      observe(meter, { operation: 'embeddings' }, 'key_2');
      assert.equal(meter.figures().waiting, 3);
      await clock.advance(1000);
      await meter.flush();
      const records = await database.query.selectFrom('usage_records').selectAll().orderBy('id').execute();
      assert.equal(records.length, 3);
      const { id, at, ...second } = records[1] ?? { id: '', at: 0 };
      assert.match(id, /^usg_/);
      assert.equal(at, Date.UTC(2030, 0, 1, 12));
      assert.deepEqual(second, {
        key_id: 'key_1',
        owner: 'usr_1',
        team: '',
        tags: '',
        model: 'fast',
        api: 'lab',
        upstream_model: 'small',
        operation: 'chat',
        prompt_tokens: 10,
        completion_tokens: 5,
        cost_nano_usd: 15_000_000,
        price_known: 1,
        estimated: 1,
        outcome: 'partial',
        status: 502,
        attempts: 3,
        duration_ms: 120,
        first_token_ms: 40,
        request_id: 'req_1',
        cached_tokens: 0,
        cache_write_tokens: 0,
        reasoning_tokens: 0,
        failures: '',
      });
      const reports = createUsageReportStore(database);
      const counts = { requests: 3, errors: 1, prompt_tokens: 30, completion_tokens: 15, cost_nano_usd: 45_000_000n };
      assert.deepEqual(await reports.sums(everything, []), [{ ...counts, values: [], slot: 0 }]);
      const byModel = await reports.sums(everything, [{ column: 'model' }]);
      assert.deepEqual(Object.fromEntries(byModel.map(({ values, requests }) => [values[0], requests])), {
        fast: 1,
        'lab/small': 2,
      });
      const ofSecond = await reports.sums({ ...everything, of: { column: 'key_id', value: 'key_2' } }, []);
      assert.equal(ofSecond[0]?.requests, 1);
      await meter.close();
    });

    test('sums add up over flushes, more rows than one statement takes included', async () => {
      const database = await open();
      const store = createUsageStore(database);
      const { meter } = startMeter(store);
      for (let call = 0; call < 123; call += 1) observe(meter);
      await meter.flush();
      for (let call = 0; call < 50; call += 1) observe(meter);
      await meter.close();
      const [sum] = await createUsageReportStore(database).sums(everything, []);
      assert.equal(sum?.requests, 173);
      assert.equal(sum?.cost_nano_usd, 173n * 15_000_000n);
      const { count } = await database.query
        .selectFrom('usage_records')
        .select((select) => select.fn.countAll<number>().as('count'))
        .executeTakeFirstOrThrow();
      assert.equal(Number(count), 173);
      const spent = await database.query.selectFrom('key_spending').selectAll().execute();
      assert.equal(spent.length, 1);
      assert.equal(spent[0]?.cost_nano_usd, 173 * 15_000_000);
    });

    test('sums whose storing was in doubt are not added twice', async () => {
      const database = await open();
      const store = createUsageStore(database);
      let answersLost = 2;
      const { meter } = startMeter({
        async add(flush) {
          await store.add(flush);
          answersLost -= 1;
          if (answersLost >= 0) throw new AppError('STORAGE_UNAVAILABLE');
        },
      });
      observe(meter);
      await assert.rejects(meter.flush(), { code: 'STORAGE_UNAVAILABLE' });
      assert.equal(meter.unstored('key_1', 'total'), 15_000_000);
      observe(meter);
      for (let round = 0; round < 5; round += 1) await meter.flush().catch(() => undefined);
      await meter.close();
      const [sum] = await createUsageReportStore(database).sums(everything, []);
      assert.equal(sum?.requests, 2);
      assert.equal(meter.unstored('key_1', 'total'), 0);
      assert.equal((await database.query.selectFrom('usage_records').select('id').execute()).length, 2);
    });

    test('names with characters that no database takes are stored without them', async () => {
      const database = await open();
      const store = createUsageStore(database);
      const { meter } = startMeter(store);
      observe(meter, { model: `lab/sm\0all${'x'.repeat(500)}`, durationMs: 12.7, firstTokenMs: Number.NaN });
      await meter.close();
      const [record] = await database.query.selectFrom('usage_records').selectAll().execute();
      assert.equal(record?.model.length, 199);
      assert.equal(record?.duration_ms, 13);
      assert.equal(record?.first_token_ms, 0);
    });

    test('P-29: prompts and answers are stored when they are given, with the record they belong to', async () => {
      const database = await open();
      const { meter } = startMeter(createUsageStore(database));
      observe(meter);
      observe(meter, { content: { request: '{"q":1}', answer: '{"a":"\0x"}' } });
      await meter.close();
      const contents = await database.query.selectFrom('usage_contents').selectAll().execute();
      const records = await database.query.selectFrom('usage_records').select('id').orderBy('id').execute();
      assert.deepEqual(contents, [{ record_id: records[1]?.id, request: '{"q":1}', answer: '{"a":"x"}' }]);
    });
  });
}

test('under overload records are dropped and counted, and the sums stay right', async () => {
  const flushes: UsageFlush[] = [];
  const gate = Promise.withResolvers<void>();
  const { clock, meter, lost } = startMeter(
    {
      async add(flush) {
        await gate.promise;
        flushes.push(flush);
      },
    },
    10,
  );
  for (let call = 0; call < 25; call += 1) observe(meter);
  await clock.advance(1000);
  for (let call = 0; call < 5; call += 1) observe(meter);
  assert.deepEqual(meter.figures(), { waiting: 10, dropped: 20 });
  assert.equal(lost.length, 20);
  gate.resolve();
  await meter.close();
  const quarters = flushes.flatMap(({ quarters }) => quarters);
  assert.equal(
    quarters.reduce((sum, { requests }) => sum + requests, 0),
    30,
  );
  assert.equal(flushes.flatMap(({ records }) => records).length, 10);
});

test('while the store is away calls go on, and what they used is stored when it is back', async () => {
  let away = true;
  const flushes: UsageFlush[] = [];
  const { clock, meter } = startMeter({
    async add(flush) {
      if (away) throw new AppError('STORAGE_UNAVAILABLE');
      flushes.push(flush);
    },
  });
  observe(meter);
  await clock.advance(10_000);
  observe(meter);
  away = false;
  await clock.advance(200_000);
  const requests = flushes.flatMap(({ quarters }) => quarters);
  assert.equal(
    requests.reduce((sum, row) => sum + row.requests, 0),
    2,
  );
  assert.equal(new Set(flushes.map(({ id }) => id)).size, flushes.length);
  await meter.close();
});

test('a busy service stores its calls in large batches', async () => {
  const flushes: UsageFlush[] = [];
  const { clock, meter } = startMeter({
    async add(flush) {
      await pause(clock, 5);
      flushes.push(flush);
    },
  });
  for (let ms = 0; ms < 1000; ms += 1) {
    observe(meter);
    observe(meter);
    await clock.advance(1);
  }
  assert.ok(flushes.length <= 4, `2000 calls took ${flushes.length} commits`);
  await Promise.all([meter.close(), clock.advance(10)]);
  assert.equal(flushes.flatMap(({ records }) => records).length, 2000);
});
