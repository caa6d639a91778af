import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { nanoOfUsd } from '../../../src/completions/apis/prices.ts';
import type { UsageQuery, UsageReport } from '../../../src/completions/contract/keys.ts';
import type { CallOutcome, KeyHolder } from '../../../src/completions/keys/admission.ts';
import type { MeteredKeys } from '../../../src/completions/metered-keys.ts';
import { readZone, zoneSpans } from '../../../src/completions/metering/usage-time.ts';
import type { CompletionsSchema } from '../../../src/completions/storage/completions-schema.ts';
import { admittedNow, completionsDatabase, headWith, MASTER_KEY, startKeys } from '../../kit/completions/start-keys.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import fc from '../../kit/properties.ts';
import { holderOf, outcomeOf } from '../keys/calls.ts';

const QUARTER_MS = 900_000;
const GROUPS = ['key', 'model', 'api', 'day', 'hour', 'owner', 'team', 'tag', 'outcome'] as const;
const MASTER = holderOf(undefined, { id: 'master', isMaster: true });

function call(keys: MeteredKeys, holder: KeyHolder, outcome: Partial<CallOutcome> = {}): void {
  const request = { estimatedTokens: 1, estimatedCostNano: 1, mayCost: true };
  admittedNow(keys.admissions.admit(holder, request)).settle(outcomeOf(outcome));
}

const asMap = (data: UsageReport['data']) => Object.fromEntries(data.map(({ group, requests }) => [group, requests]));

for (const engine of engines) {
  describe(`groups of usage on ${engine}`, () => {
    const places = databasePlaces(engine);
    const open = () => places.open<CompletionsSchema>(completionsDatabase);

    async function start(at: number) {
      const clock = createFakeClock(at);
      const database = await open();
      const keys = startKeys(database, { clock });
      const report = (query: UsageQuery, holder = MASTER) => keys.report(holder, query);
      const groups = async (query: UsageQuery, holder = MASTER) => asMap((await report(query, holder)).data);
      return { clock, database, keys, report, groups };
    }

    test('days and hours are those of the time zone, also where clocks change or hours begin at a quarter', async (t) => {
      const { clock, keys, groups, report } = await start(Date.UTC(2030, 0, 31, 18, 10));
      t.after(() => keys.stop());
      call(keys, MASTER);
      clock.stepWall(QUARTER_MS);
      call(keys, MASTER);
      const day = (tz?: string) => groups({ group_by: 'day', ...(tz !== undefined && { tz }) });
      assert.deepEqual(await day(), { '2030-01-31': 2 });
      assert.deepEqual(await day('Asia/Kathmandu'), { '2030-01-31': 1, '2030-02-01': 1 });
      const nextDay = { from: '2030-02-01', to: '2030-02-01', tz: 'Asia/Kathmandu' };
      assert.equal((await report(nextDay)).total.requests, 1);
      assert.equal((await report({ ...nextDay, tz: 'UTC' })).total.requests, 0);
      assert.deepEqual(await groups({ group_by: 'hour', tz: 'Asia/Kathmandu' }), {
        '2030-01-31T23:00:00+05:45': 1,
        '2030-02-01T00:00:00+05:45': 1,
      });
      assert.equal((await report({ from: '2030-01-31T18:15:00Z', to: '2030-01-31T18:20:00Z' })).total.requests, 1);

      // At 06:00 UTC of 3 November 2030 the clocks of New York go back from 02:00 to 01:00.
      clock.stepWall(Date.UTC(2030, 10, 3, 5, 30) - clock.now());
      for (let hour = 0; hour < 3; hour += 1) {
        call(keys, MASTER);
        clock.stepWall(4 * QUARTER_MS);
      }
      const back = { from: '2030-11-03', to: '2030-11-03', tz: 'America/New_York' };
      const hours = await report({ ...back, group_by: 'hour' });
      assert.deepEqual(
        hours.data.map(({ group, requests }) => `${group} ${requests}`),
        ['2030-11-03T01:00:00-04:00 1', '2030-11-03T01:00:00-05:00 1', '2030-11-03T02:00:00-05:00 1'],
      );
      assert.deepEqual([hours.from, hours.to, hours.tz], ['2030-11-03', '2030-11-03', 'America/New_York']);
      assert.deepEqual(await groups({ ...back, group_by: 'day' }), { '2030-11-03': 3 });
      await assert.rejects(report({ tz: 'Berlin' }), /INVALID_REQUEST|time zone/);
    });

    test('totals equal the sum of their parts, by whatever they are grouped', async (t) => {
      const { clock, keys, report } = await start(Date.UTC(2030, 2, 29));
      t.after(() => keys.stop());
      const anyCall = fc.record({
        id: fc.constantFrom('key_1', 'key_2', 'login'),
        owner: fc.constantFrom('', 'user:usr_1', 'user:usr_2'),
        team: fc.constantFrom(undefined, 'team:t1'),
        tags: fc.constantFrom(undefined, ['a'], ['a', 'b'], ['b']),
        model: fc.constantFrom('lab/small', 'fast', 'none', 'other'),
        api: fc.constantFrom('lab', ''),
        outcome: fc.constantFrom('ok' as const, 'error' as const, 'partial' as const, 'cached' as const),
        tokens: fc.nat(100_000),
        after: fc.nat(40 * QUARTER_MS),
      });
      const expected = { requests: 0, errors: 0, tokens: 0 };
      await fc.assert(
        fc.asyncProperty(fc.array(anyCall, { minLength: 1, maxLength: 30 }), async (calls) => {
          for (const { id, owner, team, tags, tokens, after, ...outcome } of calls) {
            const holder = holderOf(undefined, { id, owner, ...(team && { team }), ...(tags && { tags }) });
            const usage = { prompt_tokens: tokens, completion_tokens: 1, total_tokens: tokens + 1 };
            call(keys, holder, { ...outcome, usage });
            expected.requests += 1;
            expected.errors += outcome.outcome === 'error' || outcome.outcome === 'partial' ? 1 : 0;
            expected.tokens += outcome.outcome === 'cached' ? 0 : tokens + 1;
            clock.stepWall(after);
          }
          for (const group_by of GROUPS) {
            for (const then_by of [undefined, ...GROUPS.filter((one) => one !== group_by)]) {
              const query = { from: '2030-03-01', tz: 'Europe/Berlin', group_by, ...(then_by && { then_by }) };
              const { data, total } = await report(query);
              const about = JSON.stringify(query);
              assert.deepEqual(sumOf(data), countsOf(total), about);
              assert.equal(total.requests, expected.requests, about);
              assert.equal(total.errors, expected.errors, about);
              assert.equal(total.prompt_tokens + total.completion_tokens, expected.tokens, about);
              assert.equal(nanoOfUsd(total.cost_usd), expected.tokens * 1_000_000, about);
              const names = data.map(({ group, bucket }) => JSON.stringify([group, bucket]));
              assert.equal(new Set(names).size, data.length, about);
              assert.ok(
                data.every(({ bucket }) => (bucket === undefined) === (then_by === undefined)),
                about,
              );
            }
          }
        }),
        { numRuns: 2 },
      );
    });

    test('the fifty groups that cost the most are told apart, and all others are added up', async (t) => {
      const { keys, report } = await start(Date.UTC(2030, 0, 31, 12));
      t.after(() => keys.stop());
      for (let number = 0; number < 60; number += 1) {
        const usage = { prompt_tokens: 100 + number, completion_tokens: 0, total_tokens: 100 + number };
        call(keys, MASTER, { model: `lab/${String(number).padStart(2, '0')}`, usage });
        call(keys, MASTER, { model: 'lab/59', usage });
      }
      const { data, total } = await report({ group_by: 'model' });
      assert.equal(data.length, 51);
      assert.deepEqual([data[0]?.group, data[49]?.group, data[50]?.group], ['lab/10', 'lab/59', 'other']);
      assert.deepEqual([data[50]?.requests, total.requests], [10, 120]);
      const days = (await report({ group_by: 'day', then_by: 'model' })).data;
      assert.deepEqual([days.length, days.at(-1)?.bucket, days.at(-1)?.requests], [51, 'other', 10]);
      const last = (await report({ group_by: 'model', then_by: 'outcome' })).data.at(-1);
      assert.deepEqual([last?.group, last?.bucket, last?.requests], ['other', 'ok', 10]);
    });

    test('sums per day from before stay readable beside the new ones', async (t) => {
      const { clock, database, keys, groups, report } = await start(Date.UTC(2030, 0, 31, 12));
      t.after(() => keys.stop());
      const counts = { requests: 2, errors: 1, prompt_tokens: 20, completion_tokens: 10, cost_nano_usd: 30_000_000 };
      const rows = [
        { scope: '', dimension: 'day', value: '' },
        { scope: '', dimension: 'model', value: 'lab/small' },
        { scope: '', dimension: 'key', value: 'key_1' },
        { scope: 'key_1', dimension: 'day', value: '' },
        { scope: 'key_1', dimension: 'model', value: 'lab/small' },
      ].flatMap((row) => ['2030-01-30', '2030-01-31'].map((day) => ({ ...row, day, ...counts })));
      // One of the four calls had an owner.
      const ofOwner = { scope: '', dimension: 'owner', day: '2030-01-31', value: 'user:usr_1' };
      rows.push({ ...ofOwner, ...counts, requests: 1, errors: 0, cost_nano_usd: 10_000_000 });
      await database.write([database.query.insertInto('usage_totals').values(rows).compile()]);
      clock.stepWall(QUARTER_MS);
      call(keys, holderOf(undefined, { id: 'key_1', owner: 'user:usr_1' }));
      assert.deepEqual(await groups({ group_by: 'model' }), { 'lab/small': 5 });
      assert.deepEqual(await groups({ group_by: 'day' }), { '2030-01-30': 2, '2030-01-31': 3 });
      assert.deepEqual(await groups({ group_by: 'owner' }), { unknown: 3, 'user:usr_1': 2 });
      assert.deepEqual(await groups({ group_by: 'outcome' }), { ok: 1, unknown: 4 });
      assert.deepEqual(await groups({ group_by: 'hour' }), {
        '2030-01-30': 2,
        '2030-01-31': 2,
        '2030-01-31T12:00:00Z': 1,
      });
      const byDay = (await report({ group_by: 'model', then_by: 'day' })).data;
      assert.deepEqual(
        byDay.map(({ group, bucket, requests }) => [group, bucket, requests]),
        [
          ['lab/small', '2030-01-30', 2],
          ['lab/small', '2030-01-31', 3],
        ],
      );
      const own = holderOf(undefined, { id: 'key_1' });
      const byTag = (await report({ group_by: 'key', then_by: 'tag' }, own)).data;
      assert.deepEqual(
        byTag.map(({ group, bucket, requests }) => [group, bucket, requests]),
        [
          ['key_1', 'none', 1],
          ['key_1', 'unknown', 4],
        ],
      );
      assert.deepEqual(await groups({ group_by: 'model' }, holderOf(undefined, { id: 'key_2' })), {});
      assert.equal((await report({ from: '2030-01-31' })).total.cost_usd, 0.045);
    });

    test('calls are marked with the tags of their key and of their own, and found by them', async (t) => {
      const { keys, groups, report } = await start(Date.UTC(2030, 0, 31, 12));
      t.after(() => keys.stop());
      const { id, key, tags } = await keys.register.create({ name: 'k', tags: ['team:blue', 'Beta', 'Beta'] });
      assert.deepEqual(tags, ['Beta', 'team:blue']);
      const enter = (given?: string) => {
        const headers = { authorization: `Bearer ${key}`, ...(given !== undefined && { 'x-tags': given }) };
        return keys.access.withKey(headWith(key, { headers }));
      };
      call(keys, await enter());
      call(keys, await enter(' nightly,team:blue ,'));
      await keys.register.change(id, { tags: [] });
      call(keys, await enter());
      call(keys, await enter('be_a'));
      assert.deepEqual(await groups({ group_by: 'tag' }), {
        'Beta,team:blue': 1,
        'Beta,nightly,team:blue': 1,
        none: 1,
        be_a: 1,
      });
      for (const [tag, count] of [
        ['team:blue', 2],
        ['Beta', 2],
        ['beta', 0],
        ['nightly', 1],
        ['be_a', 1],
        ['blue', 0],
        ['%', 0],
      ] as const) {
        assert.equal((await report({ tag })).total.requests, count, tag);
        assert.equal((await keys.calls.list(MASTER, { tag })).data.length, count, tag);
      }
      const [nightly] = (await keys.calls.list(MASTER, { tag: 'nightly' })).data;
      assert.deepEqual(nightly?.tags, ['Beta', 'nightly', 'team:blue']);
      for (const wrong of ['a b', '-a', 'x'.repeat(65), Array.from({ length: 11 }, (_, at) => `t${at}`).join()]) {
        await assert.rejects(async () => enter(wrong), { code: 'INVALID_REQUEST' }, wrong);
      }
      const master = await keys.access.withKey(headWith(MASTER_KEY));
      assert.equal((await keys.report(master, { group_by: 'hour', then_by: 'tag' })).data.length, 4);
    });
  });
}

function countsOf({ requests, errors, prompt_tokens, completion_tokens, cost_usd }: UsageReport['total']) {
  return { requests, errors, prompt_tokens, completion_tokens, nano: nanoOfUsd(cost_usd) };
}

function sumOf(parts: readonly UsageReport['total'][]) {
  const sum = { requests: 0, errors: 0, prompt_tokens: 0, completion_tokens: 0, nano: 0 };
  for (const part of parts.map(countsOf)) {
    for (const name of Object.keys(sum) as (keyof typeof sum)[]) sum[name] += part[name];
  }
  return sum;
}

test('a range is split where clocks change, and nowhere else', () => {
  const from = Date.UTC(2030, 0, 1) / QUARTER_MS;
  const to = Date.UTC(2031, 0, 1) / QUARTER_MS;
  assert.deepEqual(zoneSpans(readZone('UTC'), from, to), [{ from, to, offset: 0 }]);
  const [march, october] = [Date.UTC(2030, 2, 31, 1) / QUARTER_MS, Date.UTC(2030, 9, 27, 1) / QUARTER_MS];
  assert.deepEqual(zoneSpans(readZone('Europe/Berlin'), from, to), [
    { from, to: march, offset: 4 },
    { from: march, to: october, offset: 8 },
    { from: october, to, offset: 4 },
  ]);
  assert.deepEqual(zoneSpans(readZone('Asia/Kathmandu'), from, from + 1), [{ from, to: from + 1, offset: 23 }]);
});
