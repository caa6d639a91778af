import assert from 'node:assert/strict';
import { mkdtemp, readFile, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { startCallExports } from '../../../src/completions/metering/call-exports.ts';
import { usageRecord } from '../../../src/completions/metering/usage-meter.ts';
import { completionsMigrations } from '../../../src/completions/storage/completions-migrations.ts';
import type { CompletionsSchema } from '../../../src/completions/storage/completions-schema.ts';
import { createExportStore } from '../../../src/completions/storage/export-store.ts';
import { createUsageStore } from '../../../src/completions/storage/usage-store.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { HELLO, settingsOf, startCompletions } from '../../kit/completions/start-completions.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { answers, refuses, startScriptedUpstream } from '../../kit/scripted-upstream.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a receiver reads them
type Json = any;

const idsOf = (requests: readonly { readonly json: Json }[]): string[] =>
  requests.flatMap(({ json }) => json.calls.map(({ id }: Json) => id));

test('records of calls reach a webhook in batches and a file in lines; what failed comes again', async (t) => {
  const hook = await startScriptedUpstream(t, refuses(500), answers({}));
  const folder = await mkdtemp(join(tmpdir(), 'trestle-exports-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const path = join(folder, 'calls.jsonl');
  const exporting = [
    { name: 'lake', kind: 'webhook', url: `${hook.origin}/calls`, token: 'lake-token-1', interval: '100ms' },
    { name: 'disk', kind: 'file', path, interval: '100ms', content: true },
  ];
  const { post, log } = await startCompletions(t, { settings: { exports: exporting, store_content: true } });
  const ask = (content: string) =>
    post('/v1/chat/completions', { ...HELLO, model: 'demo/echo', messages: [{ role: 'user', content }] });
  await ask('first');
  await until('the webhook has it', () => hook.requests.length >= 2);
  const [failed, again] = hook.requests;
  assert.equal(again?.headers['idempotency-key'], failed?.headers['idempotency-key'], 'the same batch');
  assert.equal(again?.headers.authorization, 'Bearer lake-token-1');
  assert.equal(again?.text, failed?.text);
  const [call] = (again?.json as Json)?.calls ?? [];
  assert.deepEqual(
    [call.object, call.model, call.outcome, call.content, call.failed_attempts],
    ['usage.call', 'demo/echo', 'ok', null, []],
  );
  assert.match(log(), /calls were not exported; they are tried again/);

  const lines = async (file = path): Promise<Json[]> =>
    (await readFile(file, 'utf8').catch(() => ''))
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line));
  await until('the file has it', async () => (await lines()).length === 1);
  const [line] = await lines();
  assert.equal(line.id, call.id);
  assert.match(line.content.request, /first/);
  assert.equal((await stat(path)).mode & 0o777, 0o600);

  await rename(path, `${path}.1`);
  await ask('second');
  await until('a new file has the second', async () => (await lines()).length === 1);
  assert.match((await lines())[0].content.request, /second/);
  assert.equal((await lines(`${path}.1`)).length, 1, 'the file that was moved away gets nothing more');
});

for (const engine of engines) {
  const { open, location } = databasePlaces(engine);
  test(`two instances on ${engine} export each call, and go on after the last one`, async (t) => {
    const hook = await startScriptedUpstream(t, answers({}));
    const service = { name: 'completions', migrations: completionsMigrations };
    const database = await open<CompletionsSchema>(service, { location: location(engine) });
    t.after(() => database.close());
    const settings = settingsOf({
      exports: [{ name: 'lake', kind: 'webhook', url: hook.origin, interval: '100ms' }],
    }).exports;
    const store = createExportStore(database);
    const options = { settings, store, lagMs: 0, logger: silentLogger };
    const begin = () => startCallExports({ ...options, clock: { ...systemClock, now: () => 1_000_000 } });
    const usage = createUsageStore(database);
    let count = 0;
    const record = () => {
      count += 1;
      const id = `usg_7${String(count).padStart(6, '0')}`;
      return usageRecord(
        {
          holder: { id: 'key_1', owner: '', isMaster: false, mayUse: () => true, buckets: [] },
          outcome: {
            ...{ model: 'm', api: 'a', upstreamModel: 'm', usage: undefined, estimated: false, outcome: 'ok' as const },
            ...{ status: 200, attempts: 1, durationMs: 1, firstTokenMs: 1, requestId: 'r' },
          },
          ...{ promptTokens: 0, completionTokens: 0, costNano: 0, priceKnown: true },
        },
        id,
        2_000_000,
      );
    };
    const add = (number: number) =>
      usage.add({
        id: `flu_${count}`,
        quarters: [],
        spending: [],
        records: Array.from({ length: number }, record),
        contents: [],
      });
    const [one, two] = [begin(), begin()];
    await add(1200);
    await until('all are there', () => idsOf(hook.requests).length >= 1200);
    await one.stop();
    await two.stop();
    const first = idsOf(hook.requests);
    assert.deepEqual(first, [...new Set(first)].sort(), 'each once and in order, because one instance works at a time');
    assert.deepEqual(
      hook.requests.map(({ json }) => (json as Json).calls.length),
      [500, 500, 200],
    );
    await add(3);
    const three = begin();
    await until('the rest is there', () => idsOf(hook.requests).length >= 1203);
    await three.stop();
    assert.equal(idsOf(hook.requests).length, 1203, 'none comes again after a clean stop');
  });
}

test('exports without their place, or with one name, are refused with the field', () => {
  for (const [given, field] of [
    [[{ name: 'a', kind: 'file' }], '[0].path'],
    [[{ name: 'a', kind: 'webhook' }], '[0].url'],
    [
      [
        { name: 'a', kind: 'file', path: '/tmp/a' },
        { name: 'a', kind: 'file', path: '/tmp/b' },
      ],
      '[1].name',
    ],
  ] as const) {
    assert.throws(
      () => settingsOf({ exports: given }),
      (error: Error) => error.message.includes(`completions.exports${field}`),
    );
  }
});
