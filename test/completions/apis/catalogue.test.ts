import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { createCatalogue, readCatalogue } from '../../../src/completions/apis/catalogue.ts';
import { createCatalogueUpdates } from '../../../src/completions/apis/catalogue-updates.ts';
import { knownModels, MODELS_DATE } from '../../../src/completions/apis/known-models.ts';
import { costOf, createPrices } from '../../../src/completions/apis/prices.ts';
import type { CompletionsSchema } from '../../../src/completions/storage/completions-schema.ts';
import { createCatalogueStore } from '../../../src/completions/storage/object-store.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import { completionsDatabase, createListLogger, type LoggedLine } from '../../kit/completions/start-keys.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { until } from '../../kit/until.ts';

const DATE = '2030-01-31';
const MODEL = {
  name: 'New',
  attachment: true,
  tool_call: true,
  structured_output: true,
  reasoning: false,
  temperature: true,
  release_date: '2030-01',
  last_updated: '2030-01-15',
  knowledge: '2029-06',
  modalities: { input: ['text', 'image'], output: ['text'] },
  limit: { context: 400_000, output: 0 },
  cost: {
    input: 0.1,
    output: 0.4,
    cache_read: 0.025,
    cache_write: 0.125,
    cache_write_1h: 0.2,
    reasoning: 0.6,
    input_audio: 1,
    output_audio: 2,
    input_image: 3,
    batch: { input: 0.05, output: 0.2 },
    context_over_200k: { input: 0.2, output: 0.8 },
  },
  provider: { shape: 'responses' },
};
const textOf = (models: object, api = 'openai') => JSON.stringify({ [api]: { id: api, name: 'x', models } });

test('a catalogue in the form of models.dev says all that is known of a model, prices of every kind included', () => {
  const catalogue = createCatalogue();
  assert.equal(catalogue.date(), MODELS_DATE);
  catalogue.use(readCatalogue(textOf({ new: MODEL }), DATE));
  assert.equal(catalogue.date(), DATE);
  assert.deepEqual(catalogue.modelsOf('openai').get('new'), {
    api: 'openai',
    id: 'new',
    contextWindow: 400_000,
    prices: {
      input: 1e-7,
      output: 4e-7,
      cacheRead: 2.5e-8,
      cacheWrite: 1.25e-7,
      cacheWrite1h: 2e-7,
      reasoning: 6e-7,
      audioInput: 1e-6,
      audioOutput: 2e-6,
      imageInput: 3e-6,
      batch: { input: 5e-8, output: 2e-7 },
      tiers: [{ above: 200_000, input: 2e-7, output: 8e-7 }],
    },
    inputModalities: ['text', 'image'],
    outputModalities: ['text'],
    tools: true,
    structuredOutput: true,
    reasoning: false,
    temperature: true,
    released: '2030-01',
    updated: '2030-01-15',
    knowledge: '2029-06',
    operation: 'responses',
  });
  const price = createPrices({}, catalogue)('openai', 'new');
  assert.equal(costOf(price, { prompt: 1_000_000, completion: 0 }), 200_000_000, 'the tier of long prompts');
  assert.equal(costOf(price, { prompt: 10_000, completion: 10_000, reasoning: 10_000 }), 7_000_000);
});

test('what only the built-in table knows stays, and its prices as long as the others are the same', () => {
  const [id, known] = [...knownModels('anthropic')].find(([, model]) => model.prices?.cacheWrite1h) ?? assert.fail();
  const input = Number(((known.prices?.input ?? 0) * 1e6).toFixed(6));
  const output = Number(((known.prices?.output ?? 0) * 1e6).toFixed(6));
  const catalogue = createCatalogue();
  const pricesWith = (cost: object) => {
    catalogue.use(readCatalogue(textOf({ [id]: { cost } }, 'anthropic'), DATE));
    return catalogue.modelsOf('anthropic').get(id)?.prices;
  };
  assert.equal(pricesWith({ input, output })?.cacheWrite1h, known.prices?.cacheWrite1h);
  assert.equal(pricesWith({ input: input * 2, output })?.cacheWrite1h, undefined);
  assert.equal(catalogue.modelsOf('anthropic').get(id)?.contextWindow, known.contextWindow);
  assert.equal(catalogue.modelsOf('anthropic').size, knownModels('anthropic').size, 'the other models stay');
  assert.equal(catalogue.modelsOf('openai'), knownModels('openai'), 'the other APIs stay');
});

test('an update says what the API of a model takes, and the built-in table keeps the rest', () => {
  const takes = { sampling: 0, max_temperature: 1, claude: true, json_schema: true, json_with_tools: false };
  const models = {
    'house-model': { takes: { ...takes, needs_proofs: true } },
    'claude-opus-4-8': { takes: { sampling: 2 } },
  };
  const catalogue = createCatalogue();
  catalogue.use(readCatalogue(JSON.stringify({ anthropic: { models } }), '2030-01-01'));
  const known = catalogue.modelsOf('anthropic');
  const { api: _, id: __, ...facts } = known.get('house-model') ?? {};
  assert.deepEqual(facts, {
    ...{ sampling: 0, maxTemperature: 1, isClaude: true, jsonSchema: true, jsonWithTools: false },
    needsProofs: true,
  });
  const { sampling, structuredOutput } = known.get('claude-opus-4-8') ?? {};
  assert.deepEqual([sampling, structuredOutput], [2, true]);
  const wrong = JSON.stringify({ anthropic: { models: { a: { takes: { sampling: 3 } } } } });
  assert.throws(() => readCatalogue(wrong, '2030-01-01'), /INVALID_CATALOG/);
});

test('a catalogue that is not valid is refused with the value that is wrong', () => {
  for (const [text, reason] of [
    ['<html>', /not JSON/],
    ['[]', /object/],
    ['{}', /no models/],
    [textOf({}), /no models/],
    ['{"openai":{}}', /models/],
    [textOf({ a: { cost: { input: -1, output: 1 } } }), /input/],
    [textOf({ a: { cost: { input: 1 } } }), /output/],
    [textOf({ a: { cost: { input: 1e9, output: 1 } } }), /input/],
    [textOf({ a: { limit: { context: 'large' } } }), /context/],
    [textOf({ a: { tool_call: 'yes' } }), /tool_call/],
    [textOf({ a: { release_date: 'soon' } }), /release_date/],
  ] as const) {
    assert.throws(
      () => readCatalogue(text, DATE),
      ({ code, details }: { code: string; details: { reason: string } }) => {
        assert.equal(code, 'INVALID_CATALOG');
        assert.match(details.reason, reason);
        return true;
      },
      text,
    );
  }
});

for (const engine of engines) {
  describe(`updates of the catalogue on ${engine}`, () => {
    const places = databasePlaces(engine);

    async function start(url = '') {
      const database = await places.open<CompletionsSchema>(completionsDatabase);
      const lines: LoggedLine[] = [];
      const clock = createFakeClock(Date.UTC(2030, 0, 31));
      const begin = () => {
        const catalogue = createCatalogue();
        const updates = createCatalogueUpdates({
          catalogue,
          store: createCatalogueStore(database),
          url,
          clock,
          makeId: createSortableIds(clock, systemRandomness),
          logger: createListLogger(lines),
        });
        return { ...updates, context: () => catalogue.modelsOf('openai').get('new')?.contextWindow };
      };
      return { database, lines, clock, begin };
    }
    const sized = (context: number) => textOf({ new: { limit: { context } } });

    test('an update from a file counts immediately and after a restart; a wrong one changes nothing', async () => {
      const { database, clock, lines, begin } = await start();
      const file = join(places.folder(), 'models.json');
      const first = begin();
      await first.load();
      assert.equal(first.context(), undefined);
      await writeFile(file, sized(1000));
      const done = await first.update(file);
      assert.deepEqual({ ...done, version: '' }, { version: '', source: file, date: DATE, models: 1, changed: true });
      assert.equal(first.context(), 1000);
      assert.deepEqual(await first.update(file), { ...done, changed: false });
      await writeFile(file, '{"openai":');
      await assert.rejects(first.update(file), { code: 'INVALID_CATALOG' });
      await assert.rejects(first.update(join(places.folder(), 'none.json')), { code: 'CATALOG_UNREACHABLE' });
      assert.equal(first.context(), 1000);

      const second = begin();
      await second.load();
      assert.equal(second.context(), 1000, 'it was stored');
      for (const size of [2000, 3000, 4000]) {
        await clock.advance(1000);
        await writeFile(file, sized(size));
        await second.update(file);
      }
      const stored = database.query.selectFrom('catalogues').selectAll().orderBy('id');
      const rows = await stored.execute();
      assert.deepEqual(
        rows.map(({ body }) => body),
        [2000, 3000, 4000].map(sized),
        'three are kept',
      );

      const newest = rows.at(-1)?.id ?? '';
      await database.query.updateTable('catalogues').set({ body: '{' }).where('id', '=', newest).execute();
      const third = begin();
      await third.load();
      assert.equal(third.context(), 3000, 'the last good one');
      assert.ok(lines.some(({ message }) => message === 'a stored catalogue of models cannot be read'));
    });

    test('the configured address is read soon after the start and every day; without it the last one counts', async (t) => {
      let answer: { status: number; body: string } = { status: 200, body: sized(5000) };
      let asked = 0;
      const server = createServer((_request, response) => {
        asked += 1;
        response.writeHead(answer.status, { 'content-type': 'application/json' }).end(answer.body);
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      t.after(() => server.close());
      const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/api.json`;
      const { clock, lines, begin } = await start(address);
      const updates = begin();
      t.after(() => updates.stop());
      await clock.advance(5000);
      await until('the first update', () => updates.context() === 5000);
      await until('its line', () => lines.some(({ message }) => message === 'the catalogue of models was updated'));
      answer = { status: 503, body: sized(6000) };
      await clock.advance(86_400_000);
      const failed = () => lines.some(({ message }) => message.startsWith('the catalogue of models was not updated'));
      await until('the failure', failed);
      assert.equal(updates.context(), 5000);
      assert.equal(asked, 2);
      answer = { status: 200, body: sized(6000) };
      const { source, changed } = await updates.update(`${address}?token=secret`);
      assert.deepEqual([source, changed, updates.context()], [address, true, 6000], 'a token is not shown');
      await updates.stop();
    });
  });
}
