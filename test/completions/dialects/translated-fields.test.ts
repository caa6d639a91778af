import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadDialect } from '../../../src/completions/dialects/dialect-table.ts';
import type { AppError } from '../../../src/platform/errors/app-error.ts';
import { ask, contextFor } from './read-stream.ts';
import { through, type Upstream } from './translate-request.ts';

const FAILED = {
  messages: {
    model: 'x/y',
    max_tokens: 10,
    messages: [
      { role: 'user', content: 'Go' },
      { role: 'assistant', content: [{ type: 'tool_use', id: 'c1', name: 't', input: {} }] },
      {
        role: 'user',
        content: [
          {
            type: 'tool_result',
            tool_use_id: 'c1',
            is_error: true,
            content: [
              { type: 'text', text: 'no such file' },
              { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA' } },
            ],
          },
        ],
      },
    ],
  },
  gemini: {
    contents: [
      { role: 'user', parts: [{ text: 'Go' }] },
      { role: 'model', parts: [{ functionCall: { id: 'c1', name: 't', args: {} } }] },
      {
        role: 'user',
        parts: [
          {
            functionResponse: {
              id: 'c1',
              name: 't',
              response: { error: 'no such file' },
              parts: [{ inlineData: { mimeType: 'image/png', data: 'AA' } }],
            },
          },
        ],
      },
    ],
  },
};

test('a failed result with an image stays one where the upstream can say so, and said in words elsewhere', async () => {
  for (const ingress of ['messages', 'gemini'] as const) {
    const to = async (upstream: Upstream) => (await through(ingress, upstream, FAILED[ingress])).body;
    const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA' } };
    assert.deepEqual((await to('anthropic')).messages.at(-1).content, [
      {
        type: 'tool_result',
        tool_use_id: 'c1',
        is_error: true,
        content: [{ type: 'text', text: 'no such file' }, image],
      },
    ]);
    assert.deepEqual((await to('bedrock')).messages.at(-1).content, [
      {
        toolResult: {
          toolUseId: 'c1',
          content: [{ text: 'no such file' }, { image: { format: 'png', source: { bytes: 'AA' } } }],
          status: 'error',
        },
      },
    ]);
    assert.deepEqual((await to('google')).contents.at(-1).parts, [
      { functionResponse: { id: 'c1', name: 't', response: { error: 'no such file' } } },
      { inlineData: { mimeType: 'image/png', data: 'AA' } },
    ]);
    const url = 'data:image/png;base64,AA';
    assert.deepEqual((await to('openai')).messages.slice(2), [
      { role: 'tool', tool_call_id: 'c1', content: 'The tool failed:\n\nno such file' },
      { role: 'user', content: [{ type: 'image_url', image_url: { url } }] },
    ]);
    assert.deepEqual((await to('responses')).input.at(-1), {
      type: 'function_call_output',
      call_id: 'c1',
      output: [
        { type: 'input_text', text: 'The tool failed:' },
        { type: 'input_text', text: 'no such file' },
        { type: 'input_image', image_url: url },
      ],
    });
    assert.deepEqual((await to('cohere')).messages.slice(2), [
      { role: 'tool', content: 'The tool failed:\n\nno such file', tool_call_id: 'c1' },
      { role: 'user', content: [{ type: 'image_url', image_url: { url } }] },
    ]);
  }
});

test('top_k and a budget for thinking go under the name that the upstream has for them', async () => {
  const asked = {
    messages: {
      model: 'x/y',
      max_tokens: 20_000,
      top_k: 7,
      thinking: { type: 'enabled', budget_tokens: 5003 },
      messages: [{ role: 'user', content: 'Go' }],
    },
    gemini: {
      contents: [{ role: 'user', parts: [{ text: 'Go' }] }],
      generationConfig: { topK: 7, maxOutputTokens: 20_000, thinkingConfig: { thinkingBudget: 5003 } },
    },
  };
  for (const ingress of ['messages', 'gemini'] as const) {
    const to = (upstream: Upstream) => through(ingress, upstream, asked[ingress]);
    const { body: google } = await to('google');
    assert.deepEqual(google.generationConfig, {
      maxOutputTokens: 20_000,
      topK: 7,
      thinkingConfig: { thinkingBudget: 5003, includeThoughts: true },
    });
    assert.deepEqual(Object.keys(google), ['contents', 'generationConfig']);
    const { body: claude } = await to('anthropic');
    assert.deepEqual([claude.top_k, claude.thinking], [7, { type: 'enabled', budget_tokens: 5003 }]);
    const { body: bedrock } = await to('bedrock');
    assert.deepEqual(bedrock.additionalModelRequestFields, {
      thinking: { type: 'enabled', budget_tokens: 5003 },
      top_k: 7,
    });
    const { body: cohere } = await to('cohere');
    assert.deepEqual([cohere.k, cohere.top_k], [7, undefined]);
    const { body: openai } = await to('openai');
    assert.deepEqual([openai.top_k, openai.reasoning_effort, openai.thinking_budget], [7, 'medium', undefined]);
    const responses = await to('responses');
    assert.equal(responses.body.top_k, undefined);
    assert.ok(responses.dropped.includes('top_k'));
  }
});

test('fields of OpenAI’s own reach APIs that have the Responses API, and are dropped and named at others', async () => {
  const own = { prompt_cache_key: 'key', prompt_cache_retention: '24h' };
  const request = { model: 'x/y', input: 'Go', ...own, text: { verbosity: 'low' } };
  const { body, dropped } = await through('responses', 'openai', request, { servesResponses: true });
  assert.deepEqual(dropped, []);
  assert.deepEqual([body.prompt_cache_key, body.prompt_cache_retention, body.verbosity], ['key', '24h', 'low']);
  const elsewhere = await through('responses', 'openai', request);
  assert.deepEqual(elsewhere.dropped, ['prompt_cache_key', 'prompt_cache_retention', 'verbosity']);
  assert.deepEqual(Object.keys(elsewhere.body), ['model', 'messages']);
});

test('Gemini is asked not to think, and to think as much as it needs, as the caller said', async () => {
  for (const thinkingBudget of [0, -1]) {
    const body = {
      contents: [{ role: 'user', parts: [{ text: 'Go' }] }],
      generationConfig: { thinkingConfig: { thinkingBudget } },
    };
    const { body: google } = await through('gemini', 'google', body);
    assert.deepEqual(google.generationConfig.thinkingConfig, { thinkingBudget });
    const { body: openai } = await through('gemini', 'openai', body);
    assert.deepEqual([openai.reasoning_effort, openai.thinking_budget], [undefined, undefined]);
  }
});

const PNG = 'data:image/png;base64,AA';

test('what instructions, images and tools of a chat have beyond their text is named where it cannot be carried', async () => {
  const strictTool = { type: 'function', function: { name: 't', strict: true, parameters: { type: 'object' } } };
  const lax = { type: 'function', function: { name: 'u' } };
  const image = (detail?: string) => ({ type: 'image_url', image_url: { url: PNG, ...(detail && { detail }) } });
  const dropped = async (name: 'anthropic' | 'google' | 'bedrock' | 'cohere', model: string, request: object) => {
    const dialect = await loadDialect(name);
    return dialect.encodeRequest(ask({ ...request }), contextFor(model)).dropped;
  };
  const models = {
    anthropic: 'claude-3-5-haiku-20241022',
    google: 'gemini-2.5-flash',
    bedrock: 'anthropic.claude-3-5-haiku-20241022',
    cohere: 'command-a',
  };
  for (const [name, model] of Object.entries(models) as [keyof typeof models, string][]) {
    const of = (request: object) => dropped(name, model, request);
    const user = { role: 'user', content: 'Hello' };
    for (const role of ['system', 'developer']) {
      const system = { role, content: [{ type: 'text', text: 'Be brief.' }, image()] };
      assert.deepEqual(await of({ messages: [system, user] }), ['messages.content.image_url'], `${name} ${role}`);
    }
    const seen = (detail: string) => of({ messages: [{ role: 'user', content: [image(detail)] }] });
    assert.deepEqual(await seen('low'), name === 'cohere' ? [] : ['messages.content.image_url.detail'], name);
    assert.deepEqual(await seen('auto'), [], name);
    assert.deepEqual(await of({ messages: [user], tools: [strictTool, lax] }), ['tools.function.strict'], name);
    assert.deepEqual(await of({ messages: [user], tools: [lax] }), [], name);
  }
  const kept = { messages: [{ role: 'user', content: 'Hello' }], tools: [strictTool] };
  assert.deepEqual(await dropped('anthropic', 'claude-sonnet-4-5', kept), []);
  assert.deepEqual(await dropped('cohere', 'command-a', kept), []);
});

test('members of tools, parts and configurations that no chat completion has are named', async () => {
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA' } };
  const messages = await through('messages', 'openai', {
    model: 'x/y',
    max_tokens: 9,
    output_config: { effort: 'low', task_budget: { total: 1 } },
    tools: [{ name: 't', input_schema: { type: 'object' }, input_examples: [{}], defer_loading: false }],
    messages: [
      { role: 'user', content: 'Go' },
      { role: 'system', content: [{ type: 'text', text: 'Now.' }, image] },
    ],
  });
  const expected = ['messages.content.image_url', 'output_config.task_budget', 'tools.input_examples'];
  assert.deepEqual([...messages.dropped].sort(), expected);
  assert.deepEqual(messages.body.messages.at(-1), { role: 'system', content: 'Now.' });

  const responses = await through('responses', 'openai', {
    model: 'x/y',
    reasoning: { effort: 'low', summary: 'auto', mode: 'pro' },
    tools: [{ type: 'function', name: 't', defer_loading: true }],
    input: [
      {
        role: 'developer',
        content: [
          { type: 'input_text', text: 'Be brief.' },
          { type: 'input_image', image_url: PNG },
        ],
      },
      { role: 'user', content: 'Go' },
      { role: 'assistant', content: [{ type: 'output_text', text: 'Gone.' }, { type: 'output_sound' }] },
    ],
  });
  assert.deepEqual([...responses.dropped].sort(), [
    ...['input.content.input_image', 'input.content.output_sound', 'reasoning.mode', 'tools.defer_loading'],
  ]);
  assert.deepEqual(responses.body.messages[0], { role: 'system', content: 'Be brief.' });

  const uri = 'https://example.org/a';
  const film = { fileData: { fileUri: uri, mimeType: 'video/mp4' }, videoMetadata: { fps: 2 } };
  const asked = {
    contents: [{ role: 'user', parts: [{ text: 'Go' }, film] }],
    tools: [{ functionDeclarations: [{ name: 'a' }, { name: 'b' }] }],
    toolConfig: { functionCallingConfig: { mode: 'VALIDATED', allowedFunctionNames: ['a'] } },
  };
  const gemini = await through('gemini', 'google', asked);
  assert.deepEqual([...gemini.dropped].sort(), [
    'contents.parts.videoMetadata',
    'toolConfig.functionCallingConfig.allowedFunctionNames',
    'toolConfig.functionCallingConfig.mode',
  ]);
  assert.deepEqual(gemini.body.contents[0].parts[1], { fileData: { fileUri: uri, mimeType: 'video/mp4' } });
  const claude = await through('gemini', 'anthropic', asked);
  assert.ok(claude.dropped.includes('messages.content.file'), 'Claude reads no films');
  const untyped = (fileUri: string) => ({ contents: [{ role: 'user', parts: [{ fileData: { fileUri } }] }] });
  for (const [address, mimeType] of [
    ['https://www.youtube.com/watch?v=9hE5-98ZeCg', 'video/mp4'],
    ['https://example.org/a.webm', 'video/webm'],
    ['https://example.org/a.flac', 'audio/flac'],
    ['https://example.org/a.png?x=1', 'image/png'],
  ] as const) {
    const { body } = await through('gemini', 'google', untyped(address));
    assert.deepEqual(body.contents[0].parts, [{ fileData: { mimeType, fileUri: address } }]);
  }
  await assert.rejects(
    async () => through('gemini', 'google', untyped('https://example.org/watch')),
    (error: AppError) => error.details.param === 'contents[0].parts[0].fileData.mimeType',
  );
  const types = ['video/mpeg', 'video/mpg', 'video/avi', 'video/x-flv', 'video/wmv', 'video/3gpp', 'video/quicktime'];
  for (const mimeType of [...types, 'audio/ogg', 'audio/flac', 'audio/aac', 'audio/aiff', 'audio/wav']) {
    const file = { fileData: { mimeType, fileUri: 'gs://bucket/one' } };
    const { body } = await through('gemini', 'google', { contents: [{ role: 'user', parts: [file] }] });
    assert.deepEqual(body.contents[0].parts, [file]);
  }
});
