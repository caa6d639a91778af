import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bedrockDialect } from '../../../src/completions/dialects/bedrock/bedrock-dialect.ts';
import {
  ask,
  context,
  contextFor,
  namedEvents,
  PNG,
  readStream,
  weatherConversation,
  weatherTool,
} from './read-stream.ts';

const CLAUDE = 'anthropic.claude-sonnet-4-5-20250929-v1:0';

function encode(request: Record<string, unknown>, model = CLAUDE, stream = false) {
  const { path, body, dropped } = bedrockDialect.encodeRequest(ask(request), contextFor(model, { stream }));
  // biome-ignore lint/suspicious/noExplicitAny: tests look at any part of a body.
  return { path, dropped, body: body as any };
}

test('a conversation with parallel calls in the form of Converse', () => {
  const { path, body, dropped } = encode({
    messages: weatherConversation,
    tools: [weatherTool],
    tool_choice: 'required',
    max_tokens: 100,
    temperature: 0.5,
    stop: ['END'],
    metadata: { team: 'a' },
  });
  assert.equal(path, '/model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse');
  assert.deepEqual(dropped, []);
  assert.deepEqual(body, {
    messages: [
      { role: 'user', content: [{ text: 'Weather in Rome and Oslo?' }] },
      {
        role: 'assistant',
        content: [
          { text: 'Let me look.' },
          { toolUse: { toolUseId: 'call_1', name: 'get_weather', input: { city: 'Rome' } } },
          { toolUse: { toolUseId: 'call_2', name: 'get_weather', input: { city: 'Oslo' } } },
        ],
      },
      {
        role: 'user',
        content: [
          { toolResult: { toolUseId: 'call_1', content: [{ text: 'Sunny' }] } },
          { toolResult: { toolUseId: 'call_2', content: [{ text: 'Snow' }] } },
          { text: 'Thanks. Which is warmer?' },
        ],
      },
    ],
    system: [{ text: 'Be brief.' }],
    inferenceConfig: { maxTokens: 100, temperature: 0.5, stopSequences: ['END'] },
    toolConfig: {
      tools: [
        {
          toolSpec: {
            name: 'get_weather',
            description: 'The weather of a city.',
            inputSchema: { json: weatherTool.function.parameters },
          },
        },
      ],
      toolChoice: { any: {} },
    },
    requestMetadata: { team: 'a' },
  });
  assert.equal(encode({}, 'amazon.nova-lite-v1:0', true).path, '/model/amazon.nova-lite-v1%3A0/converse-stream');
});

test('images, documents, sound and cache points; what is on the web is named', () => {
  const cache_control = { type: 'ephemeral' };
  const { body, dropped } = encode({
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Look', cache_control },
          { type: 'image_url', image_url: { url: `data:image/jpg;base64,${PNG}` } },
          { type: 'image_url', image_url: { url: 's3://b/a.png' } },
          { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
          { type: 'file', file: { filename: 'My notes, v2.pdf', file_data: PNG } },
          { type: 'input_audio', input_audio: { data: PNG, format: 'wav' } },
        ],
      },
    ],
  });
  assert.deepEqual(body.messages[0].content, [
    { text: 'Look' },
    { cachePoint: { type: 'default' } },
    { image: { format: 'jpeg', source: { bytes: PNG } } },
    { image: { format: 'png', source: { s3Location: { uri: 's3://b/a.png' } } } },
    { document: { format: 'pdf', name: 'My-notes--v2', source: { bytes: PNG } } },
    { audio: { format: 'wav', source: { bytes: PNG } } },
  ]);
  assert.deepEqual(dropped, ['messages.content.image_url']);
});

test('tool choices: calls cannot be forbidden, and earlier calls keep their tools', () => {
  const config = (more: object) => encode({ tools: [weatherTool], ...more });
  assert.equal(config({}).body.toolConfig.toolChoice, undefined);
  assert.deepEqual(
    config({ tool_choice: { type: 'function', function: { name: 'get_weather' } } }).body.toolConfig.toolChoice,
    {
      tool: { name: 'get_weather' },
    },
  );
  assert.equal(config({ tool_choice: 'none' }).body.toolConfig, undefined);
  const late = config({ tool_choice: 'none', messages: weatherConversation });
  assert.equal(late.body.toolConfig.tools.length, 1);
  assert.deepEqual(late.dropped, ['tool_choice']);
  const lost = encode({ messages: weatherConversation }).body.toolConfig;
  assert.deepEqual(lost.tools, [{ toolSpec: { name: 'get_weather', inputSchema: { json: { type: 'object' } } } }]);
});

test('structured output: by schema, or by a tool that must be called', () => {
  const schema = { type: 'object', properties: { n: { type: 'integer' } } };
  const response_format = { type: 'json_schema', json_schema: { name: 'number', schema } };
  const { textFormat } = encode({ response_format }).body.outputConfig;
  assert.equal(textFormat.type, 'json_schema');
  assert.equal(textFormat.structure.jsonSchema.name, 'number');
  assert.deepEqual(JSON.parse(textFormat.structure.jsonSchema.schema), { ...schema, additionalProperties: false });
  const nova = encode({ response_format }, 'amazon.nova-pro-v1:0').body;
  assert.equal(nova.outputConfig, undefined);
  assert.deepEqual(nova.toolConfig.toolChoice, { tool: { name: 'structured_answer' } });
});

test('reasoning effort in the field of each family', () => {
  const fields = (model: string) => encode({ reasoning_effort: 'low' }, model);
  assert.deepEqual(fields(CLAUDE).body.additionalModelRequestFields, {
    thinking: { type: 'enabled', budget_tokens: 2048 },
  });
  assert.deepEqual(fields('anthropic.claude-opus-4-6-v1').body.additionalModelRequestFields, {
    thinking: { type: 'adaptive', display: 'summarized' },
    output_config: { effort: 'low' },
  });
  assert.deepEqual(fields('openai.gpt-oss-120b-1:0').body.additionalModelRequestFields, { reasoning_effort: 'low' });
  assert.deepEqual(fields('us.amazon.nova-2-lite-v1:0').body.additionalModelRequestFields, {
    reasoningConfig: { type: 'enabled', maxReasoningEffort: 'low' },
  });
  assert.deepEqual(fields('meta.llama3-1-8b-instruct-v1:0').dropped, ['reasoning_effort']);
});

test('P-24: fields of Converse stay where they are, and fields of the model go to where those belong', () => {
  const guardrailConfig = { guardrailIdentifier: 'g', guardrailVersion: '1' };
  const { body, dropped } = encode({ guardrailConfig, top_k: 5, n: 2, user: 'u', seed: 1 });
  assert.deepEqual(body.guardrailConfig, guardrailConfig);
  assert.deepEqual(body.additionalModelRequestFields, { top_k: 5 });
  assert.deepEqual([...dropped].sort(), ['n', 'seed', 'user']);
});

const usage = { inputTokens: 10, outputTokens: 20, totalTokens: 35, cacheReadInputTokens: 3, cacheWriteInputTokens: 2 };
const ourUsage = {
  prompt_tokens: 15,
  completion_tokens: 20,
  total_tokens: 35,
  prompt_tokens_details: { cached_tokens: 3, cache_creation_tokens: 2 },
};
const calls = [
  { id: 'tooluse_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Rome"}' } },
  { id: 'tooluse_2', type: 'function', function: { name: 'now', arguments: '{}' } },
];
const whole = {
  output: {
    message: {
      role: 'assistant',
      content: [
        { reasoningContent: { reasoningText: { text: 'Hm.', signature: 'SIG' } } },
        { reasoningContent: { redactedContent: 'HIDDEN' } },
        { text: 'Let me look.' },
        { toolUse: { toolUseId: 'tooluse_1', name: 'get_weather', input: { city: 'Rome' } } },
        { toolUse: { toolUseId: 'tooluse_2', name: 'now', input: {} } },
      ],
    },
  },
  stopReason: 'tool_use',
  usage,
  metrics: { latencyMs: 5 },
};

const delta = (contentBlockIndex: number, delta: object) =>
  ['contentBlockDelta', { contentBlockIndex, delta }] as const;
const stop = (contentBlockIndex: number) => ['contentBlockStop', { contentBlockIndex }] as const;
const streamed = namedEvents(
  ['messageStart', { role: 'assistant' }],
  delta(0, { reasoningContent: { text: 'H' } }),
  delta(0, { reasoningContent: { text: 'm.' } }),
  delta(0, { reasoningContent: { signature: 'SIG' } }),
  stop(0),
  delta(1, { reasoningContent: { redactedContent: 'HIDDEN' } }),
  stop(1),
  delta(2, { text: 'Let me ' }),
  delta(2, { text: 'look.' }),
  stop(2),
  ['contentBlockStart', { contentBlockIndex: 3, start: { toolUse: { toolUseId: 'tooluse_1', name: 'get_weather' } } }],
  delta(3, { toolUse: { input: '{"city":' } }),
  delta(3, { toolUse: { input: '"Rome"}' } }),
  stop(3),
  ['contentBlockStart', { contentBlockIndex: 4, start: { toolUse: { toolUseId: 'tooluse_2', name: 'now' } } }],
  stop(4),
  ['messageStop', { stopReason: 'tool_use' }],
  ['metadata', { usage, metrics: {} }],
);

test('a whole answer and a stream say the same', () => {
  const { completion } = bedrockDialect.decodeResponse(whole, contextFor(CLAUDE));
  const message = completion?.choices[0]?.message;
  assert.deepEqual(message, {
    role: 'assistant',
    content: 'Let me look.',
    reasoning_content: 'Hm.',
    reasoning_signature: 'claude:t3@0:SIG;claude:r@0:HIDDEN;',
    tool_calls: calls,
  });
  assert.equal(completion?.choices[0]?.finish_reason, 'tool_calls');
  assert.deepEqual(completion?.usage, ourUsage);
  const answer = readStream(bedrockDialect, streamed, contextFor(CLAUDE));
  assert.equal(answer.content, message?.content);
  assert.equal(answer.reasoning, message?.reasoning_content);
  assert.equal(answer.signature, message?.reasoning_signature);
  assert.deepEqual(answer.calls, calls);
  assert.deepEqual(answer.finishReasons, ['tool_calls']);
  assert.deepEqual(answer.usage, ourUsage);
  assert.equal(answer.done, true);
});

test('P-24: thinking and calls go back as they came', () => {
  const message = bedrockDialect.decodeResponse(whole, context).completion?.choices[0]?.message;
  const { body } = encode({ messages: [{ role: 'user', content: 'Weather?' }, message] });
  assert.deepEqual(body.messages[1].content, whole.output.message.content);
});

test('every stop reason; malformed calls are failures', () => {
  const reasons = {
    end_turn: 'stop',
    stop_sequence: 'stop',
    max_tokens: 'length',
    model_context_window_exceeded: 'length',
    guardrail_intervened: 'content_filter',
    content_filtered: 'content_filter',
    malformed_tool_use: undefined,
    malformed_model_output: undefined,
  };
  for (const [stopReason, expected] of Object.entries(reasons)) {
    const body = { ...whole, output: { message: { content: [{ text: 'Hi' }] } }, stopReason };
    const { completion, failure } = bedrockDialect.decodeResponse(body, context);
    assert.equal(completion?.choices[0]?.finish_reason, expected, stopReason);
    assert.equal(failure?.status, expected === undefined ? 502 : undefined);
    const answer = readStream(bedrockDialect, namedEvents(['messageStart', {}], ['messageStop', { stopReason }]));
    assert.equal(answer.finishReasons[0], expected);
    assert.equal(answer.failure?.status, expected === undefined ? 502 : undefined);
  }
});

test('errors: refused calls, and exceptions inside a stream', () => {
  const refused = { message: 'Input is too long for requested model.' };
  assert.equal(bedrockDialect.decodeFailure(400, refused).code, 'context_length_exceeded');
  assert.equal(bedrockDialect.decodeFailure(429, { message: 'Too many requests' }).code, 'rate_limit_exceeded');
  const failure = (event: string, body: object) => readStream(bedrockDialect, namedEvents([event, body])).failure;
  assert.deepEqual(failure('exception:throttlingException', { message: 'Slow down' }), {
    message: 'Slow down',
    code: 'rate_limit_exceeded',
    param: null,
    status: 429,
  });
  assert.equal(failure('exception:modelStreamErrorException', { message: 'x' })?.status, 502);
  assert.equal(failure('exception:validationException', { message: 'x' })?.code, 'invalid_request_error');
  assert.equal(failure('exception:serviceUnavailableException', {})?.code, 'upstream_overloaded');
  assert.equal(failure('error:InternalError', { message: 'x' })?.status, 502);
});
