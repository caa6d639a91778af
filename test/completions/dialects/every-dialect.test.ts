import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ChatRequest } from '../../../src/completions/contract/chat.ts';
import type { DialectName } from '../../../src/completions/dialects/dialect.ts';
import { loadDialect, loadedDialect } from '../../../src/completions/dialects/dialect-table.ts';
import { ask, contextFor, PNG, weatherConversation, weatherTool } from './read-stream.ts';

/** A model of each dialect that can do everything that the dialect can. */
const MODELS: Readonly<Record<DialectName, string>> = {
  openai: 'gpt-4o',
  azure: 'gpt-4o',
  anthropic: 'claude-sonnet-4-5',
  google: 'gemini-2.5-flash',
  'google-vertex': 'gemini-2.5-flash',
  bedrock: 'anthropic.claude-sonnet-4-5-20250929-v1:0',
  cohere: 'command-a-03-2025',
};
const NAMES = Object.keys(MODELS) as DialectName[];
const FOREIGN = NAMES.filter((name) => name !== 'openai' && name !== 'azure');

async function encode(name: DialectName, request: ChatRequest) {
  const dialect = await loadDialect(name);
  const encoded = dialect.encodeRequest(request, contextFor(MODELS[name]));
  return { ...encoded, text: JSON.stringify(encoded.body) };
}

test('a dialect is loaded with its first use, and known from then on', async () => {
  for (const name of NAMES) {
    const dialect = await loadDialect(name);
    assert.equal(dialect.name, name);
    assert.equal(loadedDialect(name), dialect);
    assert.equal(dialect.framing, name === 'bedrock' ? 'event-stream' : 'sse');
  }
});

test('everything that was said reaches every upstream, in order', async () => {
  for (const name of NAMES) {
    const { text } = await encode(name, ask({ messages: weatherConversation, tools: [weatherTool] }));
    const said = [
      'Weather in Rome and Oslo?',
      'Let me look.',
      'get_weather',
      'Rome',
      'Oslo',
      'Sunny',
      'Snow',
      'Which is warmer?',
    ];
    let at = text.indexOf('"contents"') === -1 ? text.indexOf('"messages"') : text.indexOf('"contents"');
    for (const words of said) {
      const found = text.indexOf(words, at);
      assert.notEqual(found, -1, `${name}: ${words}`);
      if (words !== 'get_weather') at = found;
    }
    assert.ok(text.includes('Be brief.'), name);
  }
});

test('a question never gets lost: developer messages, tools, images, limits and stops are taken by all', async () => {
  const request = ask({
    messages: [
      { role: 'developer', content: 'Rules apply' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'What is it?' },
          { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } },
        ],
      },
    ],
    tools: [weatherTool],
    tool_choice: 'required',
    max_tokens: 77,
    stop: ['HALT'],
    temperature: 0.25,
  });
  for (const name of NAMES) {
    const { text, dropped } = await encode(name, request);
    assert.deepEqual(dropped, [], name);
    for (const words of ['Rules apply', 'What is it?', PNG, 'get_weather', '77', 'HALT', '0.25']) {
      assert.ok(text.includes(words), `${name}: ${words}`);
    }
  }
});

test('P-24: what an upstream cannot take is named once, and what asks for nothing is not named', async () => {
  const nothing = ask({
    n: 1,
    presence_penalty: 0,
    frequency_penalty: 0,
    logit_bias: {},
    logprobs: false,
    parallel_tool_calls: true,
    tool_choice: 'auto',
    response_format: { type: 'text' },
    user: null,
    seed: null,
    store: false,
    stream_options: { include_usage: true },
  });
  for (const name of FOREIGN) {
    assert.deepEqual((await encode(name, nothing)).dropped, [], name);
    const { dropped, text } = await encode(
      name,
      ask({ logit_bias: { 1: 2 }, logprobs: true, top_logprobs: 2, store: true }),
    );
    assert.deepEqual([...dropped].sort(), ['logit_bias', 'logprobs', 'store', 'top_logprobs'], name);
    assert.ok(!text.includes('logit_bias'), name);
  }
  for (const name of FOREIGN.filter((foreign) => !foreign.startsWith('google'))) {
    assert.deepEqual((await encode(name, ask({ n: 3 }))).dropped, ['n'], name);
  }
});

test('P-24: fields that nobody knows travel on to every upstream', async () => {
  for (const name of NAMES) {
    assert.ok((await encode(name, ask({ made_up: 'mark-17' }))).text.includes('mark-17'), name);
  }
});

test('P-22: members named __proto__ change no prototype on their way', async () => {
  const hostile = JSON.parse(
    '{"__proto__":{"polluted":1},"logit_bias":{"__proto__":{"polluted":1}},"metadata":{"__proto__":"x"},' +
      '"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object","properties":{"__proto__":{"type":"string"}},' +
      '"$defs":{"__proto__":{"type":"object"}}}}},"tools":[{"type":"function","function":{"name":"f","parameters":' +
      '{"type":"object","properties":{"__proto__":{"$ref":"#/$defs/__proto__"}}}}}],' +
      '"messages":[{"role":"user","content":"Hi"},{"role":"assistant","tool_calls":[{"id":"__proto__","type":"function",' +
      '"function":{"name":"constructor","arguments":"{\\"__proto__\\":{\\"polluted\\":1}}"}}]},{"role":"tool","tool_call_id":"__proto__","content":"x"}]}',
  );
  for (const name of NAMES) {
    const { body } = await encode(name, { model: 'm', ...hostile });
    assert.equal((body as { polluted?: unknown }).polluted, undefined, name);
    assert.equal(({} as { polluted?: unknown }).polluted, undefined, name);
  }
});

test('the caller’s request is not changed', async () => {
  const request = ask({
    messages: [
      ...weatherConversation,
      { role: 'assistant', content: 'Rome. ', reasoning_content: 'x', reasoning_signature: 'y' },
    ],
    tools: [weatherTool],
    response_format: { type: 'json_schema', json_schema: { schema: { type: 'object' } } },
    reasoning_effort: 'low',
  });
  const before = structuredClone(request);
  for (const name of NAMES) {
    await encode(name, request);
    assert.deepEqual(request, before, name);
  }
});

test('arguments that are no JSON object are kept, and never break a request', async () => {
  for (const text of ['', '   ', '[1,2]', '"text"', '{"a":', 'null', '{'.repeat(10_000)]) {
    const call = { id: 'c', type: 'function', function: { name: 'f', arguments: text } };
    for (const name of FOREIGN) {
      const { body } = await encode(
        name,
        ask({
          messages: [
            { role: 'user', content: 'Go' },
            { role: 'assistant', tool_calls: [call] },
          ],
        }),
      );
      assert.ok(JSON.stringify(body).length > 0);
    }
  }
});

test('a failure is reported in one shape, whatever the body is', async () => {
  const bodies = [
    '',
    'plain text',
    null,
    7,
    [],
    {},
    { error: null },
    { error: 'text' },
    { detail: [{ msg: 'wrong' }] },
  ];
  for (const name of NAMES) {
    const dialect = await loadDialect(name);
    for (const body of bodies) {
      const failure = dialect.decodeFailure(500, body);
      assert.equal(failure.status, 500);
      assert.ok(failure.message.length > 0);
      assert.equal(failure.code, 'upstream_error');
    }
    assert.equal(dialect.decodeFailure(400, { error: { message: 'x'.repeat(100_000) } }).message.length, 8000);
  }
});
