import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { TSchema } from 'typebox';
import { ChatRequest } from '../../../src/completions/contract/chat.ts';
import { GenerateContentRequest } from '../../../src/completions/contract/gemini.ts';
import {
  ImageRequest,
  ModerationRequest,
  RerankRequest,
  SpeechRequest,
} from '../../../src/completions/contract/media.ts';
import { CountTokensRequest, MessagesRequest } from '../../../src/completions/contract/messages.ts';
import { EmbeddingsRequest, TextRequest } from '../../../src/completions/contract/operations.ts';
import { createRequestReader } from '../../../src/completions/contract/read-request.ts';
import { ResponsesRequest } from '../../../src/completions/contract/responses.ts';
import type { AppError } from '../../../src/platform/errors/app-error.ts';
import { DIALECTS, startDialectUpstreams, UPSTREAM_MODELS } from '../../kit/completions/dialect-upstreams.ts';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, completionOf, refuses, startScriptedUpstream } from '../../kit/scripted-upstream.ts';

type Json = Record<string, unknown>;
interface Node {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Node>>;
  readonly required?: readonly string[];
  readonly items?: Node;
  readonly anyOf?: readonly Node[];
}

const { completions, script, requests } = await startDialectUpstreams({ after });
const { post } = completions;
const jsonOf = async (response: Response) => (await response.json()) as Json;
const errorOf = async (response: Response) => (await jsonOf(response)).error as Json;

const EMBEDDINGS = {
  object: 'list',
  data: [{ object: 'embedding', index: 0, embedding: [0.1] }],
  model: 'small',
  usage: { prompt_tokens: 1, total_tokens: 1 },
};
const messages = [{ role: 'user', content: 'Hello' }];

/** What an upstream answers; a recording is not JSON. */
function answerTo(path: string) {
  if (path.endsWith('/speech')) return answers('sound', 200, { 'content-type': 'audio/mpeg' });
  const answer = path.endsWith('/embeddings') ? EMBEDDINGS : completionOf('ok', { data: [], results: [] });
  return answers(answer);
}

/** Every request that has a body of JSON alone, with what it cannot do without. A row that creates something belongs here. */
const INGRESS: readonly [path: string, schema: TSchema, body: Json][] = [
  ['/chat/completions', ChatRequest, { messages }],
  ['/v1/chat/completions', ChatRequest, { messages }],
  ['/completions', TextRequest, { prompt: 'Hello' }],
  ['/v1/completions', TextRequest, { prompt: 'Hello' }],
  ['/v1/embeddings', EmbeddingsRequest, { input: 'Hello' }],
  ['/v1/images/generations', ImageRequest, { prompt: 'Hello' }],
  ['/v1/audio/speech', SpeechRequest, { input: 'Hello' }],
  ['/v1/moderations', ModerationRequest, { input: 'Hello' }],
  ['/v1/rerank', RerankRequest, { query: 'Hello', documents: ['Hello'] }],
  ['/v1/responses', ResponsesRequest, { input: 'Hello' }],
  ['/v1/messages', MessagesRequest, { messages, max_tokens: 16 }],
  ['/v1/messages/count_tokens', CountTokensRequest, { messages }],
  ['/v1/models/*', GenerateContentRequest, { contents: [{ parts: [{ text: 'Hello' }] }] }],
  ['/v1beta/models/*', GenerateContentRequest, { contents: [{ parts: [{ text: 'Hello' }] }] }],
];

test('DC-18: null for every optional field is accepted on every ingress, and asks for nothing', async () => {
  const table = completions.completions.surface.routes.filter(({ body, anyType }) => body === 'bytes' && !anyType);
  assert.deepEqual(
    table.map(({ path }) => path).sort(),
    INGRESS.map(([path]) => path).sort(),
    'a new row that takes a body needs a line in INGRESS',
  );
  for (const [path, schema, body] of INGRESS) {
    const { properties = {}, required = [] } = schema as Node;
    const optional = Object.keys(properties).filter((name) => !required.includes(name));
    const nulls = Object.fromEntries(optional.map((name) => [name, null]));
    script(answerTo(path));
    const address = path.replace('*', 'lab-openai/small:generateContent');
    const response = await post(address, { ...body, ...nulls, model: 'lab-openai/small' });
    assert.equal(response.status, 200, `${path}: ${await response.clone().text()}`);
    assert.equal(response.headers.get('x-dropped-params'), null, path);
    await response.arrayBuffer();
  }
});

test('DC-18: every optional field of every request, at any depth, takes null', () => {
  const missing: string[] = [];
  function visit(node: Node, path: string): void {
    for (const alternative of node.anyOf ?? []) visit(alternative, path);
    if (node.items !== undefined) visit(node.items, `${path}[]`);
    for (const [name, member] of Object.entries(node.properties ?? {})) {
      const takesNull = member.anyOf?.some(({ type }) => type === 'null') === true;
      const isUnknown = member.type === undefined && member.anyOf === undefined;
      if (node.required?.includes(name) !== true && !takesNull && !isUnknown) missing.push(`${path}.${name}`);
      visit(member, `${path}.${name}`);
    }
  }
  for (const [path, schema] of INGRESS) visit(schema as Node, path);
  assert.deepEqual(missing, []);
});

test('DC-18: null means the same as absent for every dialect, inside messages, parts, tools and formats too', async () => {
  const full = {
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: [{ type: 'text', text: 'Weather?' }] },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'call_1', content: 'Sunny' },
    ],
    tools: [{ type: 'function', function: { name: 'weather' } }],
    response_format: { type: 'text' },
    max_tokens: 100,
  };
  const withNulls = {
    ...full,
    messages: full.messages.map((message) => ({
      ...{ name: null, tool_calls: null, tool_call_id: null, function_call: null },
      ...{ reasoning_content: null, reasoning_signature: null },
      ...message,
      ...(Array.isArray(message.content) && {
        content: [{ type: 'text', text: 'Weather?', image_url: null, input_audio: null, file: null, refusal: null }],
      }),
    })),
    tools: [{ type: 'function', function: { name: 'weather', description: null, parameters: null, strict: null } }],
    response_format: { type: 'text', json_schema: null },
    tool_choice: null,
    stop: null,
    user: null,
  };
  for (const dialect of DIALECTS) {
    if (dialect === 'openai') continue;
    const model = `lab-${dialect}/${UPSTREAM_MODELS[dialect]}`;
    script(refuses(400, 'seen'));
    await (await post('/v1/chat/completions', { ...full, model })).text();
    const plain = requests.at(-1)?.json;
    await (await post('/v1/chat/completions', { ...withNulls, model })).text();
    assert.deepEqual(requests.at(-1)?.json, plain, dialect);
  }
});

const CUSTOM = { id: 'call_9', type: 'custom', custom: { name: 'apply_patch', input: 'a "patch"' } };
const conversation = [
  { role: 'user', content: 'Patch it.' },
  { role: 'assistant', content: null, tool_calls: [CUSTOM] },
  { role: 'tool', tool_call_id: 'call_9', content: 'done' },
];

test('DC-18: a custom tool call can be sent back, as it is to OpenAI and as a function call to the others', async () => {
  const tools = [{ type: 'custom', custom: { name: 'apply_patch' } }];
  for (const dialect of DIALECTS) {
    script(refuses(400, 'seen'));
    const model = `lab-${dialect}/${UPSTREAM_MODELS[dialect]}`;
    const response = await post('/v1/chat/completions', { model, messages: conversation, tools });
    assert.equal((await errorOf(response)).message, 'seen', dialect);
    const sent = requests.at(-1);
    const text = JSON.stringify(sent?.json);
    if (dialect === 'openai') assert.deepEqual(sent?.json, { model: 'small', messages: conversation, tools });
    else assert.ok(text.includes('apply_patch') && /a \\+"patch\\+"/.test(text) && text.includes('done'), text);
  }
});

test('DC-18: the answer with a custom tool call keeps it, without /v1 too', async () => {
  const message = { role: 'assistant', content: null, tool_calls: [CUSTOM] };
  const answer = completionOf('', { choices: [{ index: 0, message, finish_reason: 'tool_calls' }] });
  for (const path of ['/v1/chat/completions', '/chat/completions']) {
    script(answers(answer));
    const body = await jsonOf(await post(path, { model: 'lab-openai/small', messages }));
    const [choice] = body.choices as { message: Json }[];
    assert.deepEqual(choice?.message.tool_calls, [CUSTOM], path);
  }
});

/** The messages, fields and codes of OpenAI's API. */
const REFUSALS: readonly [path: string, body: Json, message: string, param: string, code: string][] = [
  [
    '/v1/chat/completions',
    { messages, stop: ['1', '2', '3', '4', '5'] },
    "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5 instead.",
    'stop',
    'array_above_max_length',
  ],
  [
    '/v1/chat/completions',
    { messages, stop: 5 },
    "Invalid type for 'stop': expected one of a string or an array, but got an integer instead.",
    'stop',
    'invalid_type',
  ],
  [
    '/v1/chat/completions',
    { messages, temperature: 3 },
    "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead.",
    'temperature',
    'decimal_above_max_value',
  ],
  [
    '/v1/completions',
    { prompt: 'Hello', n: 0 },
    "Invalid 'n': integer below minimum value. Expected a value >= 1, but got 0 instead.",
    'n',
    'integer_below_min_value',
  ],
  [
    '/v1/chat/completions',
    { messages: [] },
    "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
    'messages',
    'empty_array',
  ],
  [
    '/v1/chat/completions',
    { messages: [{ content: 'Hello' }] },
    "Missing required parameter: 'messages[0].role'.",
    'messages[0].role',
    'missing_required_parameter',
  ],
  [
    '/v1/chat/completions',
    { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: {} }] }] },
    "Missing required parameter: 'messages[0].content[0].image_url.url'.",
    'messages[0].content[0].image_url.url',
    'missing_required_parameter',
  ],
  [
    '/v1/chat/completions',
    { messages: [{ role: 'assistant', tool_calls: [{ id: '1', type: 'shell' }] }] },
    "Invalid value: 'shell'. Supported values are: 'function' and 'custom'.",
    'messages[0].tool_calls[0].type',
    'invalid_value',
  ],
  [
    '/v1/responses',
    { input: 'Hello', tool_choice: 5 },
    "Invalid type for 'tool_choice': expected one of a string or an object, but got an integer instead.",
    'tool_choice',
    'invalid_type',
  ],
  [
    '/v1/responses',
    { input: [{ type: 'function_call', name: 'x', arguments: '{}' }] },
    "Invalid 'input[0].call_id': it must be a string.",
    'input[0].call_id',
    'invalid_parameter',
  ],
  ['/v1/embeddings', {}, "Missing required parameter: 'input'.", 'input', 'missing_required_parameter'],
];

test('DC-32: a field that does not fit is refused in the words of the API, with its code and param', async () => {
  for (const [path, body, message, param, code] of REFUSALS) {
    const response = await post(path, { ...body, model: 'demo/echo' });
    assert.equal(response.status, 400, path);
    assert.deepEqual(await errorOf(response), { message, type: 'invalid_request_error', param, code });
  }
});

test('DC-32: no field of any request is refused with words of the schema', () => {
  let refused = 0;
  for (const [path, schema, body] of INGRESS) {
    const read = createRequestReader(schema);
    for (const name of Object.keys((schema as Node).properties ?? {})) {
      for (const wrong of [{ wrong: true }, [[]], [{}], -7.5, '', true]) {
        try {
          read(Buffer.from(JSON.stringify({ model: 'demo/echo', ...body, [name]: wrong })));
        } catch (error) {
          refused += 1;
          const { message } = (error as AppError).details as { message: string };
          assert.ok(!/schema|anyOf|must match|null/.test(message), `${path} ${name}: ${message}`);
          assert.match(message, /^(?:Invalid|Missing)/, `${path} ${name}`);
        }
      }
    }
  }
  assert.ok(refused > 100);
});

test('a chat names nothing that model APIs keep for all callers together', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('passed')));
  const at = (dialect: string, path = '/v1') => ({ dialect, base_url: `${upstream.origin}${path}`, api_key: 'key-1' });
  const apis = {
    openai: { ...at('openai'), responses: true },
    claude: at('anthropic'),
    gem: at('google', '/v1beta'),
    mistral: at('openai'),
  };
  const lab = await startCompletions(t, { settings: { apis } });
  const uploaded = 'https://generativelanguage.googleapis.com/v1beta/files/abc';
  const asked = (content: unknown) => ({ messages: [{ role: 'user', content }] });
  for (const [model, more, param] of [
    ['openai/gpt-5-codex', { previous_response_id: 'resp_1' }, 'previous_response_id'],
    ['openai/gpt-5-codex', { conversation: { id: 'conv_1' } }, 'conversation'],
    ['openai/gpt-5-codex', { prompt: { id: 'pmpt_1' } }, 'prompt'],
    ['openai/gpt-5-codex', { background: true }, 'background'],
    [
      'openai/gpt-5-codex',
      { tools: [{ type: 'file_search', vector_store_ids: ['vs_1'] }] },
      'tools[0].vector_store_ids[0]',
    ],
    ['openai/gpt-5-codex', { tools: [{ type: 'code_interpreter', container: 'cntr_1' }] }, 'tools[0].container'],
    ['claude/claude-sonnet-4-5', { container: 'container_1' }, 'container'],
    ['claude/claude-sonnet-4-5', { container: { id: 'container_1' } }, 'container'],
    ['gem/gemini-2.5-flash', { cachedContent: 'cachedContents/1' }, 'cachedContent'],
    ['gem/gemini-2.5-flash', { cached_content: 'cachedContents/1' }, 'cached_content'],
    ['gem/gemini-2.5-flash', asked([{ type: 'image_url', image_url: { url: uploaded } }]), 'messages'],
    ['gem/gemini-2.5-flash', asked([{ type: 'file', file: { file_id: uploaded } }]), 'messages'],
    ['mistral/small', asked([{ type: 'file', file_id: 'file-1' }]), 'messages[0].content[0].file_id'],
    ['mistral/small', asked([{ type: 'file', file: { file_id: 'file-1' } }]), 'messages[0].content[0].file.file_id'],
  ] as const) {
    const response = await lab.post('/v1/chat/completions', { model, messages, ...more });
    const error = await errorOf(response);
    assert.deepEqual([response.status, error.code, error.param], [400, 'nothing_stored', param], JSON.stringify(more));
  }
  assert.equal(upstream.requests.length, 0);
});

test('members of a chat do not replace its messages at a model API of another form', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const at = (dialect: string, path = '/v1') => ({ dialect, base_url: `${upstream.origin}${path}`, api_key: 'key-1' });
  const apis = { openai: { ...at('openai'), responses: true }, gem: at('google', '/v1beta') };
  const lab = await startCompletions(t, { settings: { apis } });
  for (const [model, name, item] of [
    ['openai/gpt-5-codex', 'input', { type: 'item_reference', id: 'rs_1' }],
    ['gem/gemini-2.5-flash', 'contents', { parts: [{ fileData: { fileUri: 'files/abc' } }] }],
  ] as const) {
    upstream.script(refuses(400, 'enough'));
    const response = await lab.post('/v1/chat/completions', { model, messages, [name]: [item] });
    assert.equal(response.status, 400);
    assert.match(JSON.stringify(upstream.requests.at(-1)?.json), /Hello/);
    const strict = { headers: { 'x-strict-params': 'true' } };
    const refused = await lab.post('/v1/chat/completions', { model, messages, [name]: [item] }, strict);
    assert.deepEqual([refused.status, (await errorOf(refused)).param], [400, name]);
  }
});
