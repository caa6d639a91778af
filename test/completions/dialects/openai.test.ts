import assert from 'node:assert/strict';
import { test } from 'node:test';
import { upstreamUrl } from '../../../src/completions/dialects/dialect.ts';
import { azureDialect, openaiDialect } from '../../../src/completions/dialects/openai/openai-dialect.ts';
import { ask, context, contextFor, dataEvents, readStream, weatherConversation, weatherTool } from './read-stream.ts';

const bodyOf = (request: Record<string, unknown>, given = context) =>
  openaiDialect.encodeRequest(ask(request), given).body as Record<string, unknown>;

test('P-24: a request goes on as it is, unknown fields included, under the name that the upstream has for the model', () => {
  const request = ask({
    messages: weatherConversation,
    tools: [weatherTool],
    tool_choice: 'auto',
    seed: 7,
    made_up: { a: [1] },
    logit_bias: { 50256: -100 },
  });
  const encoded = openaiDialect.encodeRequest(request, contextFor('small'));
  assert.equal(encoded.path, '/chat/completions');
  assert.deepEqual(encoded.dropped, []);
  assert.deepEqual(encoded.body, { ...request, model: 'small' });
  assert.equal((encoded.body as { messages: unknown }).messages, request.messages, 'messages are not copied');
});

test('P-22: a member named __proto__ passes on and changes no prototype', () => {
  const logitBias = JSON.parse('{"__proto__":{"polluted":true},"1":2}');
  const body = bodyOf({ logit_bias: logitBias });
  assert.equal(JSON.stringify(body.logit_bias), '{"1":2,"__proto__":{"polluted":true}}');
  assert.equal(({} as { polluted?: boolean }).polluted, undefined);
  const extra = JSON.parse('{"__proto__":{"polluted":true}}');
  const whole = openaiDialect.encodeRequest({ ...ask(), ...extra }, context).body;
  assert.equal((whole as { polluted?: boolean }).polluted, undefined);
});

test('fields that an API refuses are left out and named, unless they ask for nothing', () => {
  const refuses = ['logit_bias', 'n', 'presence_penalty'];
  const encoded = openaiDialect.encodeRequest(
    ask({ logit_bias: { 1: 2 }, n: 1, presence_penalty: 0, seed: 1 }),
    contextFor('m', { refuses }),
  );
  assert.deepEqual(encoded.dropped, ['logit_bias']);
  assert.deepEqual(Object.keys(encoded.body as object).sort(), ['messages', 'model', 'seed']);
});

test('the limit goes by the name that the model or the API knows', () => {
  assert.equal(bodyOf({ max_tokens: 9 }, contextFor('gpt-5-mini')).max_completion_tokens, 9);
  assert.equal(bodyOf({ max_tokens: 9 }, contextFor('o3')).max_tokens, undefined);
  assert.equal(bodyOf({ max_tokens: 9 }, contextFor('gpt-4o')).max_tokens, 9);
  const oldOnly = contextFor('llama', { refuses: ['max_completion_tokens'] });
  assert.equal(bodyOf({ max_completion_tokens: 9 }, oldOnly).max_tokens, 9);
  assert.equal(bodyOf({ max_completion_tokens: 9 }, oldOnly).max_completion_tokens, undefined);
  const encoded = openaiDialect.encodeRequest(ask({ max_completion_tokens: 9 }), oldOnly);
  assert.deepEqual(encoded.dropped, [], 'what was renamed is not lost');
});

test('messages lose our signatures, and what the API refuses of them', () => {
  const messages = [
    { role: 'developer', content: 'Rules' },
    { role: 'assistant', content: 'Hi', reasoning_content: 'Hm', reasoning_signature: 'claude:t2@0:AA;' },
  ];
  assert.deepEqual(bodyOf({ messages }).messages, [
    messages[0],
    { role: 'assistant', content: 'Hi', reasoning_content: 'Hm' },
  ]);
  const strict = contextFor('m', { refuses: ['developer', 'reasoning_content'] });
  assert.deepEqual(bodyOf({ messages }, strict).messages, [
    { role: 'system', content: 'Rules' },
    { role: 'assistant', content: 'Hi' },
  ]);
});

test('a stream is always asked for usage, where the API knows how', () => {
  const streaming = { ...context, stream: true };
  assert.deepEqual(bodyOf({ stream: true }, streaming).stream_options, { include_usage: true });
  assert.equal(bodyOf({ stream: true }, { ...streaming, noStreamOptions: true }).stream_options, undefined);
  assert.equal(bodyOf({ stream_options: { include_usage: true } }).stream_options, undefined);
});

test('Azure: both forms of URL', () => {
  const url = (baseUrl: string) => {
    const { path } = azureDialect.encodeRequest(ask(), contextFor('my deploy', { baseUrl }));
    return upstreamUrl(baseUrl, path);
  };
  assert.equal(url('https://r.openai.azure.com/openai/v1'), 'https://r.openai.azure.com/openai/v1/chat/completions');
  const classic = 'https://r.openai.azure.com/openai/deployments/my%20deploy/chat/completions?api-version=2024-10-21';
  assert.equal(url('https://r.openai.azure.com'), classic);
  assert.equal(url('https://r.openai.azure.com/openai/'), classic);
  assert.equal(
    url('https://r.openai.azure.com/openai/deployments/d?api-version=2025-01-01-preview'),
    'https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2025-01-01-preview',
  );
});

test('an answer of another server is fixed where it differs from OpenAI’s', () => {
  const { completion } = openaiDialect.decodeResponse(
    {
      model: 'served',
      extra: 1,
      choices: [
        {
          message: {
            reasoning: 'Hm',
            content: [
              { type: 'thinking', thinking: [{ type: 'text', text: 'not used' }] },
              { type: 'text', text: 'Hi' },
            ],
            tool_calls: [{ function: { name: 'f', arguments: { a: 1 } } }],
          },
        },
      ],
      usage: { prompt_tokens: 3, completion_tokens: 4, prompt_cache_hit_tokens: 2 },
    },
    context,
  );
  assert.deepEqual(completion, {
    id: 'chatcmpl-01abc',
    object: 'chat.completion',
    created: 1_700_000_000,
    model: 'served',
    extra: 1,
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: 'Hi',
          reasoning_content: 'Hm',
          tool_calls: [{ id: 'call_01abc_0', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }],
        },
        finish_reason: 'tool_calls',
      },
    ],
    usage: {
      prompt_tokens: 3,
      completion_tokens: 4,
      total_tokens: 7,
      prompt_cache_hit_tokens: 2,
      prompt_tokens_details: { cached_tokens: 2 },
    },
  });
});

test('an error object inside a 200 is a failure, whole or streamed', () => {
  const { failure } = openaiDialect.decodeResponse({ error: { message: 'Slow down', code: 429 } }, context);
  assert.deepEqual(failure, { message: 'Slow down', code: 'rate_limit_exceeded', param: null, status: 429 });
  for (const event of [
    { error: { message: 'Broke', type: 'server_error' } },
    { choices: [{ index: 0, delta: {}, finish_reason: 'error', error: { message: 'Broke', code: 502 } }] },
    { error: 'Broke' },
  ]) {
    const answer = readStream(openaiDialect, dataEvents({ choices: [{ delta: { content: 'Hi' } }] }, event, '[DONE]'));
    assert.equal(answer.content, 'Hi');
    assert.equal(answer.failure?.message, 'Broke');
    assert.equal(answer.done, false);
  }
});

test('a stream of OpenAI’s own chunks comes out as it went in', () => {
  const head = {
    id: 'chatcmpl-9',
    object: 'chat.completion.chunk',
    created: 5,
    model: 'gpt',
    system_fingerprint: 'fp',
  };
  const chunks = [
    { ...head, choices: [{ index: 0, delta: { role: 'assistant', content: '' }, finish_reason: null }] },
    { ...head, choices: [{ index: 0, delta: { content: 'Hi' }, logprobs: null, finish_reason: null }] },
    { ...head, choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] },
  ];
  const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 };
  const answer = readStream(openaiDialect, dataEvents(...chunks, { ...head, choices: [], usage }, '[DONE]'));
  assert.deepEqual(answer.chunks.slice(0, 3), chunks);
  assert.deepEqual(answer.usage, usage);
  assert.equal(answer.done, true);
});

test('streams of other servers: reasoning, calls without numbers or ids, usage that grows', () => {
  const part = (delta: object, more: object = {}) => ({ choices: [{ delta, ...more }] });
  const answer = readStream(
    openaiDialect,
    dataEvents(
      { ...part({ reasoning: 'Hm' }), usage: { prompt_tokens: 5, completion_tokens: 1 } },
      part({ reasoning_content: ' so' }),
      part({ content: [{ type: 'thinking', thinking: '.' }] }),
      part({ tool_calls: [{ function: { name: 'f', arguments: '{"a"' } }] }),
      part({ tool_calls: [{ function: { arguments: ':1}' } }] }),
      part({ tool_calls: [{ id: 'x', function: { name: 'g', arguments: { b: 2 } } }] }),
      { ...part({}, { finish_reason: 'tool_calls' }), usage: { prompt_tokens: 5, completion_tokens: 9 } },
    ),
  );
  assert.equal(answer.reasoning, 'Hm so.');
  assert.deepEqual(answer.calls, [
    { id: 'call_01abc_0', type: 'function', function: { name: 'f', arguments: '{"a":1}' } },
    { id: 'x', type: 'function', function: { name: 'g', arguments: '{"b":2}' } },
  ]);
  assert.deepEqual(answer.finishReasons, ['tool_calls']);
  assert.equal(answer.chunks.filter(({ usage }) => usage).length, 1, 'usage comes once');
  assert.equal(answer.usage?.total_tokens, 14);
  assert.equal(answer.done, false, 'there was no end marker');
});

test('what is no JSON in a stream is a failure, and never a chunk', () => {
  const answer = readStream(openaiDialect, dataEvents('<html>'));
  assert.equal(answer.failure?.code, 'upstream_error');
  assert.deepEqual(answer.chunks, []);
});
