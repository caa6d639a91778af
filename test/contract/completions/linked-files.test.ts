import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, type Behaviour, completionOf, startScriptedUpstream } from '../../kit/scripted-upstream.ts';

const upstream = await startScriptedUpstream({ after });
const files = await startScriptedUpstream({ after });
const apis = {
  bed: { dialect: 'bedrock', base_url: upstream.origin, api_key: 'bedrock-key-123' },
  claude: { dialect: 'anthropic', base_url: upstream.url, api_key: 'claude-key-123' },
  plain: { dialect: 'openai', base_url: upstream.url, api_key: 'plain-key-123' },
};
const open = await startCompletions({ after }, { settings: { apis, link_allow: ['127.0.0.1/32'] } });
const closed = await startCompletions({ after }, { settings: { apis } });

const ANSWER = {
  output: { message: { role: 'assistant', content: [{ text: 'A dot.' }] } },
  stopReason: 'end_turn',
  usage: { inputTokens: 3, outputTokens: 2, totalTokens: 5 },
};
const PIXELS = Buffer.from('iVBORw0KGgo=', 'base64');
const serves =
  (contentType: string, body: Buffer | string = PIXELS): Behaviour =>
  (response) =>
    response.writeHead(200, { 'content-type': contentType }).end(body);
const redirectsTo =
  (location: string): Behaviour =>
  (response) =>
    response.writeHead(302, { location }).end();

const askAbout = (...urls: string[]) => ({
  model: 'bed/anthropic.claude-sonnet-4-5',
  messages: [
    {
      role: 'user',
      content: [
        { type: 'text', text: 'What is it?' },
        ...urls.map((url) => ({ type: 'image_url', image_url: { url } })),
      ],
    },
  ],
});

interface Failure {
  readonly error: { readonly message: string; readonly code: string; readonly param: string };
}

async function refusalOf(url: string, service = open): Promise<Failure['error']> {
  const before = upstream.requests.length;
  const response = await service.post('/v1/chat/completions', askAbout(url));
  assert.equal(response.status, 400, url);
  const { error } = (await response.json()) as Failure;
  assert.equal(error.code, 'invalid_image_url');
  assert.equal(upstream.requests.length, before, 'nothing reaches the model');
  return error;
}

test('DC-24: an image given by URL is fetched for Bedrock, through a redirect too', async () => {
  files.script(redirectsTo('/moved.png'), serves('image/png; charset=binary'));
  upstream.script(answers(ANSWER));
  const response = await open.post('/v1/chat/completions', askAbout(`${files.origin}/a.png`));
  assert.equal(response.status, 200, await response.clone().text());
  assert.equal(response.headers.get('x-dropped-params'), null);
  const sent = upstream.requests.at(-1)?.json as { messages: { content: object[] }[] };
  assert.deepEqual(sent.messages[0]?.content[1], {
    image: { format: 'png', source: { bytes: PIXELS.toString('base64') } },
  });
});

test('DC-24: a document given by URL on /v1/messages reaches Bedrock, too', async () => {
  files.script(serves('application/pdf', '%PDF-1.4'));
  upstream.script(answers(ANSWER));
  const source = { type: 'url', url: `${files.origin}/a.pdf` };
  const response = await open.post('/v1/messages', {
    model: 'bed/anthropic.claude-sonnet-4-5',
    max_tokens: 10,
    messages: [{ role: 'user', content: [{ type: 'document', source, title: 'report' }] }],
  });
  assert.equal(response.status, 200, await response.clone().text());
  assert.match(JSON.stringify(upstream.requests.at(-1)?.json), /"document":\{"format":"pdf","name":"report"/);
});

test('DC-24: addresses that are not public are refused unless the operator lists them', async () => {
  const before = files.requests.length;
  for (const url of [
    `${files.origin}/a.png`,
    files.origin.replace('127.0.0.1', 'localhost'),
    'http://2130706433/a.png',
    'http://[::1]/a.png',
    'http://[::ffff:127.0.0.1]/a.png',
    'http://10.0.0.1/a.png',
    'http://169.254.169.254/latest/meta-data',
    'http://metadata.google.internal/',
    'http://0.0.0.0/',
  ]) {
    assert.match((await refusalOf(url, closed)).message, /not open/, url);
  }
  assert.equal(files.requests.length, before);
  for (const url of ['http://169.254.169.254/', 'http://10.0.0.1/']) {
    files.script(redirectsTo(url));
    assert.match((await refusalOf(`${files.origin}/redirect`)).message, /not open/, url);
  }
  files.script(redirectsTo('/again'));
  assert.match((await refusalOf(`${files.origin}/loop`)).message, /redirects too often/);
});

test('DC-24: what is too large, of another type, missing or too much is refused, and the server does not wait for it', async () => {
  const url = `${files.origin}/x`;
  files.script(serves('image/png', Buffer.alloc(6 * 1024 * 1024)));
  assert.match((await refusalOf(url)).message, /larger than 5242880 bytes/);
  files.script(serves('application/json', '{}'));
  assert.match((await refusalOf(url)).message, /content type/);
  files.script((response) => response.writeHead(404).end());
  assert.match((await refusalOf(url)).message, /answered with 404/);
  files.script((response) => response.destroy());
  assert.match((await refusalOf(url)).message, /cannot be reached/);
  assert.match((await refusalOf('http://user:secret@127.0.0.1/')).message, /credentials/);
  const many = Array.from({ length: 21 }, (_, number) => `${files.origin}/${number}`);
  assert.equal((await open.post('/v1/chat/completions', askAbout(...many))).status, 400);
});

test('DC-24: Claude and Bedrock give a JSON object as the text of the answer', async () => {
  const input = { ok: true };
  const body = { response_format: { type: 'json_object' }, messages: [{ role: 'user', content: 'JSON, please.' }] };
  const toolUse = { toolUseId: 't', name: 'structured_answer', input };
  for (const [model, answer] of [
    [
      'claude/claude-sonnet-4-5',
      {
        type: 'message',
        content: [{ type: 'tool_use', id: 't', name: 'structured_answer', input }],
        stop_reason: 'tool_use',
        usage: { input_tokens: 1, output_tokens: 1 },
      },
    ],
    [
      'bed/anthropic.claude-sonnet-4-5',
      { ...ANSWER, output: { message: { content: [{ toolUse }] } }, stopReason: 'tool_use' },
    ],
  ] as const) {
    upstream.script(answers(answer));
    const response = await open.post('/v1/chat/completions', { ...body, model });
    const { choices } = (await response.json()) as { choices: { message: object; finish_reason: string }[] };
    assert.deepEqual(choices[0]?.message, { role: 'assistant', content: '{"ok":true}' }, model);
    assert.equal(choices[0]?.finish_reason, 'stop');
    assert.equal(response.headers.get('x-dropped-params'), null);
  }
});

test('a file of the shared account is refused on every path, and an address is not one', async () => {
  const before = upstream.requests.length;
  upstream.script(answers(completionOf('ok')));
  const chat = (id: string) => ({
    model: 'plain/big',
    messages: [{ role: 'user', content: [{ type: 'file', file: { file_id: id } }] }],
  });
  const responses = {
    model: 'plain/big',
    input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'file-1' }] }],
  };
  const messages = {
    model: 'plain/big',
    max_tokens: 10,
    messages: [{ role: 'user', content: [{ type: 'document', source: { type: 'file', file_id: 'file-1' } }] }],
  };
  for (const [path, body] of [
    ['/v1/chat/completions', chat('file-1')],
    ['/chat/completions', chat('file-1')],
    ['/v1/responses', responses],
    ['/v1/messages', messages],
  ] as const) {
    const response = await open.post(path, body);
    assert.equal(response.status, 400, path);
    assert.match(await response.text(), /refers to content stored at a model API/);
  }
  assert.equal(upstream.requests.length, before);
  assert.equal((await open.post('/v1/chat/completions', chat('https://example.com/a.pdf'))).status, 200);
});
