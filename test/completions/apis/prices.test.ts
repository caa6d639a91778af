import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { apiTable } from '../../../src/completions/apis/api-table.ts';
import { createCatalogue } from '../../../src/completions/apis/catalogue.ts';
import { knownModels } from '../../../src/completions/apis/known-models.ts';
import {
  costOf,
  countTokens,
  createPrices,
  nanoOfUsd,
  priceFrom,
  type TokenCounts,
  usdOfNano,
} from '../../../src/completions/apis/prices.ts';
import { converseUsage } from '../../../src/completions/dialects/bedrock/bedrock-dialect.ts';
import { priceCall } from '../../../src/completions/keys/admission.ts';
import { createUsageAdder, usageRecord } from '../../../src/completions/metering/usage-meter.ts';
import { HELLO, startCompletions } from '../../kit/completions/start-completions.ts';
import fc from '../../kit/properties.ts';
import { answers, eventsOf, startScriptedUpstream, streams } from '../../kit/scripted-upstream.ts';
import { holderOf, outcomeOf } from '../keys/calls.ts';

const MILLION = 1_000_000;
const details = (fields: object) => ({
  prompt_tokens: MILLION,
  completion_tokens: 0,
  total_tokens: MILLION,
  ...fields,
});
const openaiAnswer = (usage: object) => ({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'hi' }, finish_reason: 'stop' }],
  usage,
});
const claudeAnswer = (usage: object) => ({
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'claude-sonnet-4-5',
  content: [{ type: 'text', text: 'hi' }],
  stop_reason: 'end_turn',
  usage: { input_tokens: 0, output_tokens: 0, ...usage },
});
const geminiAnswer = (usageMetadata: object) => ({
  candidates: [{ content: { role: 'model', parts: [{ text: 'hi' }] }, finishReason: 'STOP' }],
  usageMetadata,
});

/** What an upstream reports, and what the call then costs at the prices of the table. */
const REPORTED: readonly [what: string, api: string, model: string, answer: object, usd: number][] = [
  [
    'Anthropic, read from a cache',
    'anthropic',
    'claude-sonnet-4-5',
    claudeAnswer({ cache_read_input_tokens: MILLION }),
    0.3,
  ],
  [
    'Anthropic, written for 5 minutes',
    'anthropic',
    'claude-sonnet-4-5',
    claudeAnswer({ cache_creation_input_tokens: MILLION }),
    3.75,
  ],
  [
    'Anthropic, half of it written for an hour',
    'anthropic',
    'claude-sonnet-4-5',
    claudeAnswer({
      cache_creation_input_tokens: MILLION,
      cache_creation: { ephemeral_5m_input_tokens: MILLION / 2, ephemeral_1h_input_tokens: MILLION / 2 },
    }),
    4.875,
  ],
  [
    'OpenAI, cached',
    'openai',
    'gpt-5',
    openaiAnswer(details({ prompt_tokens_details: { cached_tokens: MILLION } })),
    0.125,
  ],
  ['OpenAI, a long prompt', 'openai', 'gpt-5.5', openaiAnswer(details({})), 10],
  [
    'DeepSeek, cached',
    'deepseek',
    'deepseek-chat',
    openaiAnswer(details({ prompt_cache_hit_tokens: MILLION })),
    0.0028,
  ],
  ['Moonshot, cached', 'moonshotai', 'kimi-k2.5', openaiAnswer(details({ cached_tokens: MILLION })), 0.1],
  [
    'Gemini, cached',
    'google',
    'gemini-2.5-flash',
    geminiAnswer({ promptTokenCount: MILLION, cachedContentTokenCount: MILLION }),
    0.03,
  ],
  [
    'Gemini, audio',
    'google',
    'gemini-2.5-flash',
    geminiAnswer({
      promptTokenCount: MILLION,
      promptTokensDetails: [{ modality: 'AUDIO', tokenCount: MILLION }],
    }),
    1,
  ],
  ['Gemini, a long prompt', 'google', 'gemini-2.5-pro', geminiAnswer({ promptTokenCount: MILLION }), 2.5],
];

for (const [what, api, model, answer, usd] of REPORTED) {
  test(`DC-4: each kind of token has its own price: ${what}`, async (t) => {
    const upstream = await startScriptedUpstream(t, answers(answer));
    const base = api === 'google' ? `${upstream.origin}/v1beta` : upstream.url;
    const { post, usage } = await startCompletions(t, {
      settings: { apis: { [api]: { base_url: base, api_key: 'k-1234567890' } } },
    });
    const response = await post('/v1/chat/completions', { ...HELLO, model: `${api}/${model}` });
    assert.equal(response.status, 200, await response.text());
    assert.equal((await usage()).total.cost_usd, usd);
  });
}

test('DC-4: the tokens that Bedrock reads from a cache or writes into one have their own prices', () => {
  const price = createPrices({}, createCatalogue())('amazon-bedrock', 'anthropic.claude-sonnet-4-5-20250929-v1:0');
  const cost = (usage: object) =>
    usdOfNano(costOf(price, countTokens(converseUsage(usage as Record<string, unknown>))));
  assert.equal(cost({ inputTokens: 0, outputTokens: 0, cacheReadInputTokens: MILLION }), 0.3);
  assert.equal(cost({ inputTokens: 0, outputTokens: 0, cacheWriteInputTokens: MILLION }), 3.75);
  // No source gives Bedrock's price of an hour: it counts as five minutes do.
  const cacheDetails = [{ ttl: '1h', inputTokens: MILLION }];
  assert.equal(cost({ inputTokens: 0, outputTokens: 0, cacheWriteInputTokens: MILLION, cacheDetails }), 3.75);
});

test('DC-4: a price of the table that no source confirms is left out, and the others fit each other', () => {
  for (const api of apiTable.keys()) {
    for (const [name, { prices }] of knownModels(api)) {
      if (prices === undefined) continue;
      const what = `${api}/${name}`;
      assert.equal(prices.batch, undefined, what);
      if (api !== 'anthropic') assert.equal(prices.cacheWrite1h, undefined, what);
      assert.ok((prices.cacheRead ?? 0) <= prices.input, what);
      assert.ok((prices.cacheWrite ?? prices.input) >= prices.input, what);
      assert.ok((prices.cacheWrite1h ?? Infinity) > (prices.cacheWrite ?? 0), what);
      for (const tier of prices.tiers ?? []) assert.ok((tier.input ?? 0) > prices.input, what);
    }
  }
  const read = (api: string, name: string) => knownModels(api).get(name)?.prices?.cacheRead;
  assert.equal(read('anthropic', 'claude-3-haiku-20240307'), 3e-8);
  assert.equal(read('deepseek', 'deepseek-v4-pro'), 3.625e-9);
  assert.equal(read('zhipuai', 'glm-4.6'), undefined);
});

test('DC-4: every configured price is used, and a kind without one costs as much as the rest', () => {
  const priceOf = createPrices(
    {
      'lab/all': {
        input: 1e-6,
        output: 2e-6,
        cache_read: 1e-7,
        cache_write: 1.25e-6,
        cache_write_1h: 2e-6,
        audio_input: 5e-6,
        image_input: 3e-6,
        audio_output: 7e-6,
        reasoning: 4e-6,
        batch_input: 5e-7,
        batch_output: 1e-6,
        tiers: [
          { above: 10_000, input: 3e-6, output: 4e-6 },
          { above: 1000, input: 2e-6, output: 3e-6 },
        ] as never,
      },
      'lab/plain': { input: 1e-6, output: 2e-6 },
    },
    createCatalogue(),
  );
  const nano = (model: string, tokens: Partial<TokenCounts>) =>
    costOf(priceOf('lab', model), { prompt: 100, completion: 0, ...tokens });
  assert.equal(nano('all', {}), 100_000);
  assert.equal(nano('all', { cacheRead: 100 }), 10_000);
  assert.equal(nano('all', { cacheWrite: 100 }), 125_000);
  assert.equal(nano('all', { cacheWrite1h: 100 }), 200_000);
  assert.equal(nano('all', { audioInput: 100 }), 500_000);
  assert.equal(nano('all', { imageInput: 100 }), 300_000);
  assert.equal(nano('all', { prompt: 0, completion: 100, audioOutput: 100 }), 700_000);
  assert.equal(nano('all', { prompt: 0, completion: 100, reasoning: 100 }), 400_000);
  assert.equal(nano('all', { batch: true, completion: 100 }), 150_000);
  assert.equal(nano('all', { prompt: 1001 }), 2_002_000);
  assert.equal(nano('all', { prompt: 10_001 }), 30_003_000);
  for (const kind of ['cacheRead', 'cacheWrite', 'cacheWrite1h', 'audioInput', 'imageInput'] as const) {
    assert.equal(nano('plain', { [kind]: 100 }), 100_000, kind);
  }
});

describe('DC-8: reasoning that is only part of the total is metered', () => {
  const usage = {
    prompt_tokens: 12,
    completion_tokens: 1,
    total_tokens: 303,
    completion_tokens_details: { reasoning_tokens: 290 },
  };
  const event = `data: ${JSON.stringify({ ...openaiAnswer(usage), object: 'chat.completion.chunk', choices: [] })}\n\n`;
  const [done = '', ...rest] = eventsOf(['hi'], { usage: false }).toReversed();
  const stream = [...rest.toReversed(), event, done];
  const cases = [
    ['as bytes', '/v1/chat/completions', {}, answers(openaiAnswer(usage))],
    ['as a stream of bytes', '/v1/chat/completions', { stream: true }, streams(stream)],
    ['translated', '/chat/completions', {}, answers(openaiAnswer(usage))],
    ['as messages', '/v1/messages', { max_tokens: 5, stream: true }, streams(stream)],
  ] as const;
  for (const [what, path, extra, answer] of cases) {
    test(`DC-8: 291 tokens of xAI are metered ${what}`, async (t) => {
      const upstream = await startScriptedUpstream(t, answer);
      const { post, usage: metered } = await startCompletions(t, {
        settings: { apis: { xai: { base_url: upstream.url, api_key: 'k-1234567890' } } },
      });
      const response = await post(path, { ...HELLO, model: 'xai/grok-4.3', ...extra });
      assert.equal(response.status, 200);
      await response.text();
      const { total } = await metered();
      assert.deepEqual([total.prompt_tokens, total.completion_tokens], [12, 291]);
    });
  }
});

test('DC-28: prices of /v1/models are written without floating-point noise', async (t) => {
  const { url } = await startCompletions(t, {
    environment: { OPENAI_API_KEY: 'k-1', GROQ_API_KEY: 'k-2', ANTHROPIC_API_KEY: 'k-3', GEMINI_API_KEY: 'k-4' },
  });
  const text = await (await fetch(`${url}/v1/models`)).text();
  const written = [...text.matchAll(/"(?:input|output|cache_\w+|audio_\w+)":([\d.e-]+)/g)].map(
    ([, digits]) => digits ?? '',
  );
  assert.ok(written.length > 300, String(written.length));
  for (const digits of written) assert.match(digits, /^\d(?:\.\d{1,5})?(?:e-\d+)?$|^0(?:\.\d{1,10})?$/);
});

const anyTokens = fc.record({
  prompt_tokens: fc.nat(3_000_000),
  completion_tokens: fc.nat(200_000),
  total_tokens: fc.constant(0),
  prompt_tokens_details: fc.record({ cached_tokens: fc.nat(100_000), cache_creation_tokens: fc.nat(100_000) }),
});
const anyPrice = fc
  .tuple(fc.nat(700_000_000), fc.nat(700_000_000), fc.nat(70_000_000))
  .map(([input, output, read]) => priceFrom({ input: input / 1e12, output: output / 1e12, cacheRead: read / 1e12 }));

test('DC-28: totals equal the sum of their parts, whatever was spent and in whatever order', () => {
  const call = fc.record({
    key: fc.constantFrom('a', 'b', 'c'),
    model: fc.constantFrom('x', 'y'),
    usage: anyTokens,
    price: anyPrice,
  });
  fc.assert(
    fc.property(fc.array(call, { minLength: 1, maxLength: 60 }), (calls) => {
      const adder = createUsageAdder();
      let exact = 0n;
      const costs: number[] = [];
      for (const { key, model, usage, price } of calls) {
        const settled = priceCall(holderOf(undefined, { id: key }), outcomeOf({ usage, model }), () => price);
        assert.ok(Number.isSafeInteger(settled.costNano));
        exact += BigInt(settled.costNano);
        costs.push(settled.costNano);
        adder.add(usageRecord(settled, 'usg_1', 0), [{ bucket: key, period: 'total' }]);
      }
      const { quarters, spending } = adder.take();
      assert.equal(new Set(quarters.map(({ id }) => id)).size, quarters.length);
      assert.equal(
        quarters.reduce((sum, row) => sum + BigInt(row.cost_nano_usd), 0n),
        exact,
      );
      // A client that adds up what it reads as USD comes to the same amount.
      assert.equal(
        quarters.reduce((sum, row) => sum + nanoOfUsd(usdOfNano(row.cost_nano_usd)), 0),
        Number(exact),
      );
      assert.equal(
        spending.reduce((sum, row) => sum + BigInt(row.cost_nano_usd), 0n),
        exact,
      );
      assert.equal(
        costs.toReversed().reduce((sum, cost) => sum + BigInt(cost), 0n),
        exact,
      );
    }),
  );
});

test('DC-28: what a call costs is the exact product, rounded once', () => {
  fc.assert(
    fc.property(anyTokens, anyPrice, (usage, price) => {
      const tokens = countTokens(usage);
      const kinds = [
        [Math.min(tokens.cacheRead ?? 0, tokens.prompt), price.rates.cacheRead],
        [Math.max(0, tokens.prompt - (tokens.cacheRead ?? 0)), price.rates.input],
        [tokens.completion, price.rates.output],
      ] as const;
      // Writing into a cache has the price of the rest here.
      const pico = kinds.reduce((sum, [count, rate]) => sum + BigInt(count) * BigInt(rate), 0n);
      assert.equal(BigInt(costOf(price, tokens)), (pico + 500n) / 1000n);
    }),
  );
});
