import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadDialect } from '../../../src/completions/dialects/dialect-table.ts';
import { startDialectUpstreams, type TestedDialect, UPSTREAM_MODELS } from '../../kit/completions/dialect-upstreams.ts';
import { answers, completionOf, streams } from '../../kit/scripted-upstream.ts';
import { ask, contextFor, PNG, weatherTool } from './read-stream.ts';

const MODELS = {
  anthropic: 'claude-sonnet-4-5',
  bedrock: 'anthropic.claude-sonnet-4-5',
  google: 'gemini-2.5-flash',
  cohere: 'command-a',
} as const;

async function encode(name: keyof typeof MODELS, request: Record<string, unknown>) {
  const dialect = await loadDialect(name);
  const { body, dropped } = dialect.encodeRequest(ask(request), contextFor(MODELS[name]));
  // biome-ignore lint/suspicious/noExplicitAny: tests look at any part of a body.
  return { body: body as any, dropped };
}

const record = { type: 'object', additionalProperties: { type: 'number' } };
const formatOf = (schema: object, strict?: boolean) => ({
  response_format: { type: 'json_schema', json_schema: { name: 'a', schema, ...(strict !== undefined && { strict }) } },
});

test('DC-9: an open object stays open on Claude unless the caller is strict, and lost keywords are named', async () => {
  const open = await encode('anthropic', formatOf(record));
  assert.equal(open.body.output_config, undefined);
  assert.deepEqual(open.body.tools[0].input_schema, record);
  assert.deepEqual(open.dropped, []);
  const strict = await encode('anthropic', formatOf(record, true));
  assert.equal(strict.body.output_config.format.schema.additionalProperties, false);
  assert.deepEqual(strict.dropped, ['response_format.json_schema.schema.additionalProperties']);
  const bounded = { type: 'object', properties: { n: { type: 'integer', minimum: 0 } } };
  for (const name of ['anthropic', 'bedrock'] as const) {
    const { dropped } = await encode(name, formatOf(bounded, true));
    assert.deepEqual(dropped, ['response_format.json_schema.schema.minimum'], name);
  }
  const converse = await encode('bedrock', formatOf(record));
  assert.deepEqual(converse.body.toolConfig.tools[0].toolSpec.inputSchema.json, record);
});

test('DC-12: stop sequences and text of white space alone do not reach Claude, and `stop` is named', async () => {
  const messages = [
    { role: 'system', content: ' ' },
    { role: 'user', content: 'Hello' },
    { role: 'assistant', content: '\n\n' },
    {
      role: 'user',
      content: [
        { type: 'text', text: ' ' },
        { type: 'text', text: 'there' },
      ],
    },
  ];
  const claude = await encode('anthropic', { messages, stop: ['\n', 'END'] });
  assert.deepEqual(claude.body.stop_sequences, ['END']);
  assert.equal(claude.body.system, undefined);
  assert.deepEqual(claude.dropped, ['stop']);
  const said = ['Hello', 'there'];
  assert.deepEqual(claude.body.messages, [{ role: 'user', content: said.map((text) => ({ type: 'text', text })) }]);
  const converse = await encode('bedrock', { messages, stop: ' ' });
  assert.equal(converse.body.inferenceConfig, undefined);
  assert.deepEqual(converse.body.messages, [{ role: 'user', content: said.map((text) => ({ text })) }]);
  const nothing = await encode('anthropic', { messages: [{ role: 'user', content: ' ' }] });
  assert.deepEqual(nothing.body.messages, [{ role: 'user', content: [{ type: 'text', text: '.' }] }]);
});

test('DC-13: documents for Bedrock have names of their own, and text beside them', async () => {
  const file = (more: object = {}) => ({
    type: 'file',
    file: { file_data: `data:application/pdf;base64,${PNG}`, ...more },
  });
  const content = [file(), file(), file({ filename: 'document-2.pdf' })];
  const { body } = await encode('bedrock', { messages: [{ role: 'user', content }] });
  const blocks = body.messages[0].content as { document?: { name: string }; text?: string }[];
  const names = blocks.flatMap(({ document }) => (document === undefined ? [] : [document.name]));
  assert.equal(names.length, 3);
  assert.equal(new Set(names).size, 3);
  assert.ok(blocks.some(({ text }) => text !== undefined));
});

test('DC-23: markers of the cache on a tool, a message and a linked image reach Claude and Bedrock', async () => {
  const cache_control = { type: 'ephemeral' };
  const request = {
    tools: [{ ...weatherTool, cache_control }],
    messages: [
      { role: 'user', content: 'Hello', cache_control },
      { role: 'assistant', content: 'Hi' },
      {
        role: 'user',
        content: [{ type: 'image_url', image_url: { url: 'https://example.com/a.png' }, cache_control }],
      },
    ],
  };
  const { body, dropped } = await encode('anthropic', request);
  assert.deepEqual(body.tools[0].cache_control, cache_control);
  assert.deepEqual(body.messages[0].content[0].cache_control, cache_control);
  assert.deepEqual(body.messages[2].content[0].cache_control, cache_control);
  assert.deepEqual(dropped, []);
  const converse = await encode('bedrock', { ...request, messages: request.messages.slice(0, 2) });
  const point = { cachePoint: { type: 'default' } };
  assert.deepEqual(converse.body.toolConfig.tools[1], point);
  assert.deepEqual(converse.body.messages[0].content[1], point);
});

/** A marker on everything that can have one, as a client of the Messages API sends it. */
const MARKED = (() => {
  const cache_control = { type: 'ephemeral' };
  return {
    max_tokens: 100,
    system: [{ type: 'text', text: 'Be brief.', cache_control }],
    tools: [{ name: 'look', input_schema: { type: 'object' }, cache_control }],
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'Hello', cache_control }] },
      { role: 'assistant', content: [{ type: 'tool_use', id: 't1', name: 'look', input: {}, cache_control }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: 'Seen', cache_control }] },
      { role: 'assistant', content: [{ type: 'text', text: 'Hi', cache_control }] },
      {
        role: 'user',
        content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG }, cache_control }],
      },
    ],
  };
})();

test('DC-23: markers of the cache pass from /v1/messages to Claude and Bedrock, and are named elsewhere', async (t) => {
  const { completions, script, requests } = await startDialectUpstreams(t);
  const text = [{ type: 'text', text: 'Hi' }];
  const said: Readonly<Record<TestedDialect, object>> = {
    openai: completionOf('Hi'),
    anthropic: {
      type: 'message',
      content: text,
      stop_reason: 'end_turn',
      usage: { input_tokens: 1, output_tokens: 1 },
    },
    google: { candidates: [{ content: { parts: [{ text: 'Hi' }] }, finishReason: 'STOP' }] },
    bedrock: { output: { message: { role: 'assistant', content: [{ text: 'Hi' }] } }, stopReason: 'end_turn' },
    cohere: { id: '1', message: { role: 'assistant', content: text }, finish_reason: 'COMPLETE' },
  };
  const send = async (dialect: TestedDialect) => {
    script(answers(said[dialect]));
    const model = `lab-${dialect}/${UPSTREAM_MODELS[dialect]}`;
    const response = await completions.post('/v1/messages', { model, ...MARKED });
    assert.equal(response.status, 200, await response.text());
    return { text: JSON.stringify(requests.at(-1)?.json), dropped: response.headers.get('x-dropped-params') };
  };
  const count = (text: string, mark: string) => text.split(mark).length - 1;
  const claude = await send('anthropic');
  assert.deepEqual([count(claude.text, '"cache_control":{"type":"ephemeral"}'), claude.dropped], [7, null]);
  const bedrock = await send('bedrock');
  assert.deepEqual([count(bedrock.text, '{"cachePoint":{"type":"default"}}'), bedrock.dropped], [7, null]);
  for (const dialect of ['google', 'cohere', 'openai'] as const) {
    const { text, dropped } = await send(dialect);
    assert.equal(count(text, 'cache_control'), 0, dialect);
    assert.match(dropped ?? '', /(?:^|, )cache_control(?:,|$)/, dialect);
  }
  const demo = await completions.post('/v1/messages', { model: 'demo/echo', ...MARKED });
  assert.match(demo.headers.get('x-dropped-params') ?? '', /cache_control/);
  await demo.text();
});

test('DC-23: a marker that a dialect cannot carry is refused by name under strict', async (t) => {
  const { completions, requests } = await startDialectUpstreams(t);
  for (const model of ['lab-google/gemini-3-pro-preview', 'lab-cohere/command-a-03-2025', 'lab-openai/small']) {
    const response = await completions.post(
      '/v1/messages',
      { model, ...MARKED },
      { headers: { 'x-strict-params': 'true' } },
    );
    assert.equal(response.status, 400, model);
    assert.match(await response.text(), /cache_control/, model);
  }
  assert.equal(requests.length, 0);
});

test('DC-23: Bedrock names a lifetime of the cache that it cannot carry', async () => {
  const cache_control = { type: 'ephemeral', ttl: '1h' };
  const { dropped } = await encode('bedrock', { messages: [{ role: 'user', content: 'Hello', cache_control }] });
  assert.deepEqual(dropped, ['cache_control.ttl']);
});

test('DC-24: a JSON object is asked for through a tool on Claude and Bedrock', async () => {
  const response_format = { type: 'json_object' };
  const claude = await encode('anthropic', { response_format });
  assert.deepEqual(claude.body.tool_choice, { type: 'tool', name: 'structured_answer' });
  assert.deepEqual(claude.dropped, []);
  const converse = await encode('bedrock', { response_format });
  assert.deepEqual(converse.body.toolConfig.toolChoice, { tool: { name: 'structured_answer' } });
  assert.deepEqual(converse.dropped, []);
});

test('DC-31: the name of a message is named as dropped by every dialect that has no place for it', async () => {
  for (const name of Object.keys(MODELS) as (keyof typeof MODELS)[]) {
    const { dropped } = await encode(name, { messages: [{ role: 'user', name: 'ann', content: 'Hello' }] });
    assert.deepEqual(dropped, ['messages.name'], name);
  }
});

test('DC-30: legacy functions on Gemini are not refused for a parameter that the caller never sent', async (t) => {
  const { completions, script } = await startDialectUpstreams(t);
  script(answers({ candidates: [{ content: { parts: [{ text: 'Hi' }] }, finishReason: 'STOP' }] }));
  const response = await completions.post(
    '/v1/chat/completions',
    {
      model: 'lab-google/gemini-2.5-flash',
      messages: [{ role: 'user', content: 'Hello' }],
      functions: [{ name: 'f', parameters: { type: 'object', properties: { a: { type: 'string' } } } }],
    },
    { headers: { 'x-strict-params': 'true' } },
  );
  assert.equal(response.status, 200, await response.clone().text());
  assert.equal(response.headers.get('x-dropped-params'), null);
});

test('DC-21: Gemini’s STOP on each event ends nothing, and the last finish reason counts', async (t) => {
  const { completions, script } = await startDialectUpstreams(t);
  const event = (text: string, finishReason: string) =>
    `data: ${JSON.stringify({ candidates: [{ content: { role: 'model', parts: [{ text }] }, finishReason }] })}\r\n\r\n`;
  const model = 'lab-google/gemini-3-pro-preview';
  const messages = [{ role: 'user', content: 'Count.' }];
  for (const [last, chat, message, response] of [
    ['STOP', 'stop', 'end_turn', 'completed'],
    ['MAX_TOKENS', 'length', 'max_tokens', 'incomplete'],
  ] as const) {
    script(streams([event('one ', 'STOP'), event('two ', 'STOP'), event('three', last)]));
    const chatText = await (await completions.post('/v1/chat/completions', { model, messages, stream: true })).text();
    for (const word of ['one ', 'two ', 'three']) assert.ok(chatText.includes(`"content":"${word}"`), chatText);
    assert.deepEqual(chatText.match(/"finish_reason":"\w+"/g), [`"finish_reason":"${chat}"`]);
    assert.ok(chatText.endsWith('data: [DONE]\n\n'));
    const asMessage = { model, messages, max_tokens: 9, stream: true };
    const messageText = await (await completions.post('/v1/messages', asMessage)).text();
    for (const word of ['one ', 'two ', 'three']) assert.ok(messageText.includes(`"text":"${word}"`), messageText);
    assert.ok(messageText.includes(`"stop_reason":"${message}"`));
    const asResponse = { model, input: 'Count.', stream: true };
    const responseText = await (await completions.post('/v1/responses', asResponse)).text();
    assert.ok(responseText.includes('"text":"one two three"') && responseText.includes(`response.${response}`));
  }
});
