import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Rates } from '../../../src/completions/apis/prices.ts';
import type { KeyHolder } from '../../../src/completions/keys/admission.ts';
import { createUsageMeter } from '../../../src/completions/metering/usage-meter.ts';
import { createBatchCharges } from '../../../src/completions/operations/batch-file.ts';
import type { CompletionsSchema } from '../../../src/completions/storage/completions-schema.ts';
import { createObjectStore } from '../../../src/completions/storage/object-store.ts';
import { createUsageStore, type UsageFlush } from '../../../src/completions/storage/usage-store.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import { completionsDatabase } from '../../kit/completions/start-keys.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const OWNER = 'usr_1';
const HOLDER = { id: 'key_1', owner: OWNER } as KeyHolder;
const PLAN = {
  endpoint: '/v1/chat/completions',
  model: 'small',
  upstreamModel: 'small',
  promptTokens: 100,
  answerTokens: 100,
  lines: 1,
};
const ENDED = { status: 'completed', usage: { input_tokens: 10, output_tokens: 20, total_tokens: 30 } };
/** Model APIs without a price count as free. */
const FREE = new Proxy({} as Rates, { get: () => 0 });
const CORRECTED = [[-90, -80]];

/** A program that looks after a batch; its store loses the first attempt to correct, or only the answer to it. */
function startProgram(database: Database<CompletionsSchema>, loses: 'nothing' | 'attempt' | 'answer' = 'nothing') {
  const clock = createFakeClock();
  const store = createUsageStore(database);
  let isLosing = loses !== 'nothing';
  const freed: number[] = [];
  const meter = createUsageMeter({
    clock,
    makeId: createSortableIds(clock, systemRandomness),
    onLost: (what, count) => assert.fail(`${count} ${what} lost`),
    store: {
      async add(flush: UsageFlush) {
        const fails = isLosing && flush.estimate !== undefined;
        if (!fails || loses === 'answer') await store.add(flush);
        if (fails) isLosing = false;
        if (fails) throw new AppError('STORAGE_UNAVAILABLE');
      },
    },
  });
  const charges = createBatchCharges({
    priceOf: () => ({ known: false, knowsSearch: false, rates: FREE }),
    chargesOf: () => [],
    correct: (call, estimate) => meter.correct(call, estimate, () => void freed.push(call.promptTokens)),
    flush: meter.flush,
  });
  const objects = createObjectStore(database);
  return {
    clock,
    meter,
    freed,
    async begin() {
      const detail = charges.detailOf({ holder: HOLDER, plan: PLAN, api: 'lab', requestId: 'r' });
      const batch = { id: 'batch_1', api: 'lab', kind: 'batch', owner: OWNER, created_at: clock.now(), detail };
      await objects.add([batch]);
    },
    async look() {
      const row = await objects.find('batch_1', OWNER);
      assert.ok(row);
      assert.equal(await objects.apiOf('batch_1', OWNER), row.api);
      await charges.correct({ ...row, kind: 'batch', place: row.api }, HOLDER, ENDED);
    },
  };
}

for (const engine of engines) {
  describe(`charges of batches on ${engine}`, () => {
    const places = databasePlaces(engine);

    async function open() {
      const database = await places.open<CompletionsSchema>(completionsDatabase);
      const corrections = async () => {
        const rows = await database.query.selectFrom('usage_records').selectAll().execute();
        return rows.map((row) => [Number(row.prompt_tokens), Number(row.completion_tokens)]);
      };
      return { database, corrections };
    }

    test('a program that dies before a correction is stored leaves the estimate to the next one', async () => {
      const { database, corrections } = await open();
      const died = startProgram(database, 'attempt');
      await died.begin();
      await assert.rejects(died.look(), { code: 'STORAGE_UNAVAILABLE' });
      assert.deepEqual([await corrections(), died.freed], [[], []]);
      const next = startProgram(database);
      await next.look();
      await next.look();
      assert.deepEqual([await corrections(), next.freed], [CORRECTED, [-90]]);
      // The first one was frozen only, and tries again.
      await died.clock.advance(2000);
      await died.meter.close();
      assert.deepEqual([await corrections(), died.freed], [CORRECTED, []]);
      await next.meter.close();
    });

    for (const loses of ['attempt', 'answer'] as const) {
      test(`a correction whose ${loses} was lost is stored once, and its budget hears it once`, async () => {
        const { database, corrections } = await open();
        const program = startProgram(database, loses);
        await program.begin();
        await assert.rejects(program.look(), { code: 'STORAGE_UNAVAILABLE' });
        await Promise.all([program.look(), program.look()]);
        await program.meter.close();
        assert.deepEqual([await corrections(), program.freed], [CORRECTED, [-90]]);
      });
    }

    test('of two programs that look at the same time, one corrects', async () => {
      const { database, corrections } = await open();
      const [one, two] = [startProgram(database), startProgram(database)];
      await one.begin();
      await Promise.all([one.look(), two.look()]);
      assert.deepEqual([await corrections(), [...one.freed, ...two.freed]], [CORRECTED, [-90]]);
      await one.meter.close();
      await two.meter.close();
    });
  });
}
