import assert from 'node:assert/strict';
import { test } from 'node:test';
import { apiTable } from '../../../src/completions/apis/api-table.ts';
import { createCatalogue } from '../../../src/completions/apis/catalogue.ts';
import { knownModels, MODELS_DATE, parseModels } from '../../../src/completions/apis/known-models.ts';
import { costOf, createPrices, usdOfRate } from '../../../src/completions/apis/prices.ts';

test('the table has at least 150 model APIs, sorted, each with an id of its own', () => {
  assert.ok(apiTable.size >= 190, String(apiTable.size));
  const ids = [...apiTable.keys()];
  assert.deepEqual(ids, [...ids].sort());
  for (const [id, api] of apiTable) {
    assert.equal(api.id, id);
    assert.match(id, /^[a-z0-9][a-z0-9.-]{0,63}$/);
    assert.ok(api.name.length > 0);
  }
});

test('each row has a base URL without a final slash, and a key variable unless it needs none', () => {
  for (const { id, baseUrl, keyVariables, local } of apiTable.values()) {
    const filled = baseUrl.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
      name.includes('BASE') ? 'https://host' : 'value',
    );
    const url = new URL(filled);
    assert.ok(!filled.endsWith('/'), id);
    assert.equal(url.search + url.hash + url.username, '', id);
    // What is not on this machine is reached over TLS alone: the key travels with every request.
    if (local !== true) assert.equal(url.protocol, 'https:', id);
    assert.ok(keyVariables.length > 0, id);
    for (const name of keyVariables) assert.match(name, /^[A-Z0-9_]+$/, id);
  }
});

test('no base URL has an operation path in it', () => {
  for (const { id, baseUrl } of apiTable.values()) {
    assert.doesNotMatch(baseUrl, /\/(?:chat\/completions|messages|completions|models)$/, id);
  }
});

test('known models belong to rows of the table, and their lines are whole', () => {
  assert.match(MODELS_DATE, /^\d{4}-\d{2}-\d{2}$/);
  let count = 0;
  for (const id of apiTable.keys()) {
    for (const [name, model] of knownModels(id)) {
      count += 1;
      assert.equal(model.api, id);
      assert.equal(model.id, name);
      assert.ok(Number.isInteger(model.contextWindow ?? 1) && (model.contextWindow ?? 1) > 0, name);
      assert.ok(Number.isInteger(model.maxOutputTokens ?? 1), name);
      const { batch, tiers = [], ...own } = model.prices ?? {};
      for (const { above: _, ...prices } of [own, batch ?? {}, ...tiers] as { above?: number }[]) {
        for (const [kind, price] of Object.entries(prices) as [string, number][]) {
          assert.ok(price >= 0 && price < (kind === 'perSearch' ? 0.1 : 0.01), `${id}/${name} ${kind} ${price}`);
          // Whole pico-USD: nothing is lost when money is added.
          assert.ok(Math.abs(price * 1e12 - Math.round(price * 1e12)) < 1e-3, `${id}/${name} ${price}`);
        }
      }
      for (const modality of model.inputModalities ?? []) {
        assert.match(modality, /^(?:text|image|audio|video|pdf)$/);
      }
    }
  }
  assert.equal(count, 785);
});

test('a line gives sizes, prices per token and inputs; a dash what is not known', () => {
  assert.deepEqual(parseModels('lab', '\nsmall 128000 4096 1.2 4.8 text,image\nodd - - - - -\n'), [
    {
      api: 'lab',
      id: 'small',
      contextWindow: 128_000,
      maxOutputTokens: 4096,
      prices: { input: 0.0000012, output: 0.0000048 },
      inputModalities: ['text', 'image'],
    },
    { api: 'lab', id: 'odd' },
  ]);
});

test('a configured price wins over the table; an unknown one counts as 0 and is flagged', () => {
  const priceOf = createPrices(
    { 'openai/gpt-4o': { input: 1, output: 2 }, 'lab/small': { input: 0.5, output: 0.25 } },
    createCatalogue(),
  );
  const shown = (api: string, model: string) => {
    const { known, rates } = priceOf(api, model);
    return { input: usdOfRate(rates.input), output: usdOfRate(rates.output), known };
  };
  assert.deepEqual(shown('openai', 'gpt-4o'), { input: 1, output: 2, known: true });
  assert.equal(costOf(priceOf('lab', 'small'), { prompt: 2, completion: 4 }), 2e9);
  assert.deepEqual(shown('deepseek', 'deepseek-chat'), { input: 1.4e-7, output: 2.8e-7, known: true });
  assert.deepEqual(shown('lab', 'large'), { input: 0, output: 0, known: false });
  assert.deepEqual(shown('__proto__', 'constructor'), { input: 0, output: 0, known: false });
  assert.deepEqual(shown('demo', 'echo?delay=1'), { input: 0, output: 0, known: true });
});
