import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadDialect } from '../../../src/completions/dialects/dialect-table.ts';
import { answers } from '../../fakes/scripted-upstream.ts';
import { startDialectUpstreams } from '../dialect-upstreams.ts';
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
