import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { EventStreamCodec } from '@smithy/eventstream-codec';
import OpenAI from 'openai';
import { packProof, unpackProofs } from '../../../src/completions/dialects/conversation.ts';
import type { DialectName } from '../../../src/completions/dialects/dialect.ts';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import fc from '../../kit/properties.ts';
import { startScriptedUpstream } from '../../kit/scripted-upstream.ts';
import { weatherTool } from './read-stream.ts';

/** What a real upstream of a dialect streams when its model thinks, speaks and calls, and what it wants back then. */
interface Scene {
  readonly dialect: DialectName;
  readonly model: string;
  readonly path: string;
  readonly header: string;
  readonly events: readonly (readonly [string, object])[];
  readonly callId: string;
  /** The assistant's turn and the tool's result, as the upstream must see them again. */
  readonly back: readonly object[];
}

const args = { city: 'Rome' };
const block = (index: number, kind: string, more: object) =>
  [`content_block_${kind}`, { type: `content_block_${kind}`, index, ...more }] as const;
const converse = (kind: string, index: number, more: object = {}) =>
  [`contentBlock${kind}`, { contentBlockIndex: index, ...more }] as const;
const gemini = (parts: object[], more: object = {}) =>
  [
    '',
    {
      candidates: [{ content: { role: 'model', parts }, index: 0, ...more }],
      modelVersion: 'gemini-3-pro',
      responseId: 'r-1',
    },
  ] as const;
const cohere = (type: string, message: object) => [type, { type, index: 0, delta: { message } }] as const;

const scenes: readonly Scene[] = [
  {
    dialect: 'anthropic',
    model: 'claude-sonnet-4-5',
    path: '/base/messages',
    header: 'x-api-key',
    callId: 'toolu_1',
    events: [
      ['message_start', { type: 'message_start', message: { id: 'm', model: 'claude', usage: { input_tokens: 7 } } }],
      block(0, 'start', { content_block: { type: 'thinking', thinking: '', signature: '' } }),
      block(0, 'delta', { delta: { type: 'thinking_delta', thinking: 'Hm.' } }),
      block(0, 'delta', { delta: { type: 'signature_delta', signature: 'SIG==' } }),
      block(0, 'stop', {}),
      ['ping', { type: 'ping' }],
      block(1, 'start', { content_block: { type: 'text', text: '' } }),
      block(1, 'delta', { delta: { type: 'text_delta', text: 'Let me look.' } }),
      block(1, 'stop', {}),
      block(2, 'start', { content_block: { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: {} } }),
      block(2, 'delta', { delta: { type: 'input_json_delta', partial_json: '{"city":' } }),
      block(2, 'delta', { delta: { type: 'input_json_delta', partial_json: '"Rome"}' } }),
      block(2, 'stop', {}),
      ['message_delta', { type: 'message_delta', delta: { stop_reason: 'tool_use' }, usage: { output_tokens: 9 } }],
      ['message_stop', { type: 'message_stop' }],
    ],
    back: [
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 'Hm.', signature: 'SIG==' },
          { type: 'text', text: 'Let me look.' },
          { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: args },
        ],
      },
      {
        role: 'user',
        content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: [{ type: 'text', text: 'Sunny' }] }],
      },
    ],
  },
  {
    dialect: 'google',
    model: 'gemini-3-pro',
    path: '/base/models/gemini-3-pro:streamGenerateContent?alt=sse',
    header: 'x-goog-api-key',
    callId: 'g1',
    events: [
      gemini([{ text: 'Hm.', thought: true }]),
      gemini([{ text: 'Let me look.' }]),
      gemini([{ functionCall: { id: 'g1', name: 'get_weather', args }, thoughtSignature: 'SIG==' }]),
      [
        '',
        {
          candidates: [{ content: { parts: [{ text: '' }] }, finishReason: 'STOP', index: 0 }],
          usageMetadata: { promptTokenCount: 7, candidatesTokenCount: 5, thoughtsTokenCount: 4 },
        },
      ],
    ],
    back: [
      {
        role: 'model',
        parts: [
          { text: 'Let me look.' },
          { functionCall: { id: 'g1', name: 'get_weather', args }, thoughtSignature: 'SIG==' },
        ],
      },
      { role: 'user', parts: [{ functionResponse: { id: 'g1', name: 'get_weather', response: { output: 'Sunny' } } }] },
    ],
  },
  {
    dialect: 'bedrock',
    model: 'anthropic.claude-sonnet-4-5-v1:0',
    path: '/base/model/anthropic.claude-sonnet-4-5-v1%3A0/converse-stream',
    header: 'authorization',
    callId: 'tooluse_1',
    events: [
      ['messageStart', { role: 'assistant' }],
      converse('Delta', 0, { delta: { reasoningContent: { text: 'Hm.' } } }),
      converse('Delta', 0, { delta: { reasoningContent: { signature: 'SIG==' } } }),
      converse('Stop', 0),
      converse('Delta', 1, { delta: { text: 'Let me look.' } }),
      converse('Stop', 1),
      converse('Start', 2, { start: { toolUse: { toolUseId: 'tooluse_1', name: 'get_weather' } } }),
      converse('Delta', 2, { delta: { toolUse: { input: JSON.stringify(args) } } }),
      converse('Stop', 2),
      ['messageStop', { stopReason: 'tool_use' }],
      ['metadata', { usage: { inputTokens: 7, outputTokens: 9, totalTokens: 16 } }],
    ],
    back: [
      {
        role: 'assistant',
        content: [
          { reasoningContent: { reasoningText: { text: 'Hm.', signature: 'SIG==' } } },
          { text: 'Let me look.' },
          { toolUse: { toolUseId: 'tooluse_1', name: 'get_weather', input: args } },
        ],
      },
      { role: 'user', content: [{ toolResult: { toolUseId: 'tooluse_1', content: [{ text: 'Sunny' }] } }] },
    ],
  },
  {
    dialect: 'cohere',
    model: 'command-a-03-2025',
    path: '/base/chat',
    header: 'authorization',
    callId: 'get_weather_1',
    events: [
      ['message-start', { type: 'message-start', id: 'm', delta: { message: { role: 'assistant' } } }],
      cohere('tool-plan-delta', { tool_plan: 'Hm.' }),
      cohere('content-delta', { content: { text: 'Let me look.' } }),
      cohere('tool-call-start', {
        tool_calls: { id: 'get_weather_1', type: 'function', function: { name: 'get_weather', arguments: '' } },
      }),
      cohere('tool-call-delta', { tool_calls: { function: { arguments: JSON.stringify(args) } } }),
      ['tool-call-end', { type: 'tool-call-end', index: 0 }],
      [
        'message-end',
        {
          type: 'message-end',
          delta: { finish_reason: 'TOOL_CALL', usage: { tokens: { input_tokens: 7, output_tokens: 9 } } },
        },
      ],
    ],
    back: [
      {
        role: 'assistant',
        content: 'Let me look.',
        tool_calls: [
          { id: 'get_weather_1', type: 'function', function: { name: 'get_weather', arguments: JSON.stringify(args) } },
        ],
        tool_plan: 'Hm.',
      },
      { role: 'tool', content: 'Sunny', tool_call_id: 'get_weather_1' },
    ],
  },
];

const codec = new EventStreamCodec(
  (bytes) => Buffer.from(bytes as Uint8Array).toString('utf8'),
  (text) => Buffer.from(text, 'utf8'),
);

function frame(type: string, body: object): Uint8Array {
  const headers = { ':message-type': 'event', ':event-type': type, ':content-type': 'application/json' };
  const typed = Object.entries(headers).map(([name, value]) => [name, { type: 'string' as const, value }]);
  return codec.encode({ headers: Object.fromEntries(typed), body: Buffer.from(JSON.stringify(body)) });
}

/** Sends the stream in pieces that end where no event ends. */
async function playScene(response: ServerResponse, { dialect, events }: Scene): Promise<void> {
  const isBedrock = dialect === 'bedrock';
  response.writeHead(200, {
    'content-type': isBedrock ? 'application/vnd.amazon.eventstream' : 'text/event-stream; charset=utf-8',
  });
  const whole = Buffer.concat(
    events.map(([name, body]) =>
      isBedrock
        ? frame(name, body)
        : Buffer.from(`${name === '' ? '' : `event: ${name}\r\n`}data: ${JSON.stringify(body)}\r\n\r\n`),
    ),
  );
  for (let at = 0; at < whole.length; at += 97) {
    response.write(whole.subarray(at, at + 97));
    await new Promise((resolve) => setImmediate(resolve));
  }
  response.end();
}

for (const scene of scenes) {
  test(`P-24: ${scene.dialect}: a call with its reasoning comes to the openai package and goes back whole`, async (t) => {
    const upstream = await startScriptedUpstream(t, (response) => playScene(response, scene));
    const { url } = await startCompletions(t, {
      settings: {
        apis: { far: { dialect: scene.dialect, base_url: `${upstream.origin}/base`, api_key: 'far-key-93c1' } },
      },
    });
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'unused', maxRetries: 0 });
    const question = { role: 'user', content: 'Weather in Rome?' } as const;
    const tools = [weatherTool] as OpenAI.ChatCompletionTool[];
    const model = `far/${scene.model}`;
    const { data, response } = await client.chat.completions
      .create({
        model,
        messages: [question],
        tools,
        stream: true,
        stream_options: { include_usage: true },
        logit_bias: { 1: 1 },
      })
      .withResponse();
    assert.equal(response.headers.get('x-dropped-params'), 'logit_bias');
    const said = { content: '', reasoning_content: '', reasoning_signature: '', arguments: '', id: '', name: '' };
    const ends: unknown[] = [];
    for await (const { choices, usage } of data) {
      const delta = (choices[0]?.delta ?? {}) as Record<string, string> & OpenAI.ChatCompletionChunk.Choice.Delta;
      const call = delta.tool_calls?.[0];
      said.content += delta.content ?? '';
      said.reasoning_content += delta.reasoning_content ?? '';
      said.reasoning_signature += delta.reasoning_signature ?? '';
      said.id += call?.id ?? '';
      said.name += call?.function?.name ?? '';
      said.arguments += call?.function?.arguments ?? '';
      if (choices[0]?.finish_reason) ends.push(choices[0].finish_reason);
      if (usage) ends.push(usage.total_tokens);
    }
    assert.deepEqual(ends, ['tool_calls', 16]);
    assert.equal(said.content, 'Let me look.');
    assert.equal(said.reasoning_content, 'Hm.');
    assert.deepEqual([said.id, said.name, JSON.parse(said.arguments)], [scene.callId, 'get_weather', args]);

    const assistant = {
      role: 'assistant',
      content: said.content,
      reasoning_content: said.reasoning_content,
      ...(said.reasoning_signature !== '' && { reasoning_signature: said.reasoning_signature }),
      tool_calls: [{ id: said.id, type: 'function', function: { name: said.name, arguments: said.arguments } }],
    } as OpenAI.ChatCompletionAssistantMessageParam;
    const result = { role: 'tool', tool_call_id: said.id, content: 'Sunny' } as const;
    const again = await client.chat.completions.create({
      model,
      messages: [question, assistant, result],
      tools,
      stream: true,
    });
    for await (const _ of again);

    const [first, second] = upstream.requests;
    assert.equal(first?.path, scene.path);
    assert.match(String(first?.headers[scene.header]), /far-key-93c1$/);
    assert.ok(!first?.path.includes('far-key'));
    const turns = (second?.json.messages ?? second?.json.contents) as unknown[];
    assert.deepEqual(turns.slice(1), scene.back);
  });
}

test('proofs come back as they were, whatever they hold, however many are joined', () => {
  const proof = fc.oneof(fc.base64String({ minLength: 4 }), fc.string({ minLength: 1 }));
  fc.assert(
    fc.property(fc.array(proof), (proofs) => {
      const packed = proofs.map((text, index) => packProof('claude', `t${index}@0`, text)).join('');
      const read = unpackProofs('claude', packed).map((found) => found.proof);
      assert.deepEqual(read, proofs);
      assert.deepEqual(unpackProofs('google', packed), []);
    }),
  );
});

test('a text that is not packed is one proof without a mark', () => {
  assert.deepEqual(unpackProofs('claude', 'ErUBCkYIBR=='), [{ mark: '', proof: 'ErUBCkYIBR==' }]);
  assert.deepEqual(unpackProofs('claude', ''), []);
});
