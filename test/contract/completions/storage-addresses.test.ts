import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { resolveTrestle } from '../../kit/resolve-trestle.ts';
import { answers, completionOf, startScriptedUpstream } from '../../kit/scripted-upstream.ts';

const upstream = await startScriptedUpstream({ after }, answers(completionOf('Hello')));
const at = (dialect: string) => ({ dialect, base_url: upstream.url, api_key: 'key-of-an-api-1' });
const apis = {
  plain: { ...at('openai'), responses: true },
  claude: at('anthropic'),
  gem: at('google'),
  bed: { ...at('bedrock'), base_url: upstream.origin },
};
const closed = await startCompletions({ after }, { settings: { apis, files_api: 'plain' } });
const storage_allow = ['s3://acme-public/', 'gs://acme-docs/reports/', 'ms://shared/', 'fileid://shared/'];
const open = await startCompletions({ after }, { settings: { apis, files_api: 'plain', storage_allow } });

const CHAT = '/v1/chat/completions';
const user = (content: unknown) => ({ messages: [{ role: 'user', content }] });
const parts = (...content: object[]) => user(content);
const picture = (url: string) => parts({ type: 'image_url', image_url: { url } });
const gemini = (part: object) => ({ contents: [{ parts: [{ text: 'Hi' }, part] }] });
const batch = (url: string, body: object): FormData => {
  const form = new FormData();
  form.append('purpose', 'batch');
  const line = { custom_id: 'a', method: 'POST', url, body: { model: 'plain/small', ...body } };
  form.append('file', new Blob([`${JSON.stringify(line)}\n`]), 'input.jsonl');
  return form;
};

async function refusalOf(path: string, body: object, service = closed) {
  const before = upstream.requests.length;
  const form = body instanceof FormData;
  const response = form
    ? await fetch(`${service.url}${path}`, { method: 'POST', body })
    : await service.post(path, body);
  const text = await response.text();
  const isRefused = response.status === 400 && text.includes(' refers to content stored at a model API');
  assert.equal(
    isRefused ? before : upstream.requests.length,
    upstream.requests.length,
    'nothing reaches the model API',
  );
  return isRefused ? text : undefined;
}

/** Path, body, and the field in the message. */
const WAYS: readonly (readonly [string, (address: string) => object, string])[] = [
  ...['plain/small', 'claude/claude-sonnet-4-5', 'gem/gemini-2.5-flash', 'bed/amazon.nova-pro'].flatMap(
    (model): (readonly [string, (address: string) => object, string])[] => [
      [CHAT, (address) => ({ model, ...picture(address) }), 'messages.0.content.0.image_url.url'],
      [
        CHAT,
        (address) => ({ model, ...parts({ type: 'file', file: { file_id: address } }) }),
        'messages.0.content.0.file.file_id',
      ],
    ],
  ),
  [
    CHAT,
    (address) => ({ model: 'plain/small', ...parts({ type: 'image_url', image_url: address }) }),
    'messages.0.content.0.image_url',
  ],
  [
    CHAT,
    (address) => ({ model: 'plain/small', ...parts({ type: 'file', file: { file_data: address } }) }),
    'messages.0.content.0.file.file_data',
  ],
  [
    CHAT,
    (address) => ({ model: 'plain/small', ...parts({ type: 'video_url', video_url: { url: address } }) }),
    'messages.0.content.0.video_url.url',
  ],
  [
    CHAT,
    (address) => ({ model: 'plain/small', ...parts({ type: 'video', video: [address] }) }),
    'messages.0.content.0.video.0',
  ],
  [CHAT, (address) => ({ model: 'plain/small', ...user('Hi'), output_uri: address }), 'output_uri'],
  [
    '/v1/messages',
    (url) => ({
      model: 'claude/claude-sonnet-4-5',
      max_tokens: 9,
      ...parts({ type: 'image', source: { type: 'url', url } }),
    }),
    'messages.0.content.0.source.url',
  ],
  [
    '/v1/messages',
    (url) => ({
      model: 'bed/amazon.nova-pro',
      max_tokens: 9,
      ...parts({
        type: 'tool_result',
        tool_use_id: 'a',
        content: [{ type: 'document', source: { type: 'url', url } }],
      }),
    }),
    'messages.0.content.0.content.0.source.url',
  ],
  [
    '/v1/messages/count_tokens',
    (url) => ({ model: 'claude/claude-sonnet-4-5', ...parts({ type: 'image', source: { type: 'url', url } }) }),
    'messages.0.content.0.source.url',
  ],
  [
    '/v1/responses',
    (image_url) => ({ model: 'plain/small', input: [{ role: 'user', content: [{ type: 'input_image', image_url }] }] }),
    'input.0.content.0.image_url',
  ],
  [
    '/v1/responses',
    (file_url) => ({
      model: 'gem/gemini-2.5-flash',
      input: [{ role: 'user', content: [{ type: 'input_file', file_url }] }],
    }),
    'input.0.content.0.file_url',
  ],
  ...['generateContent', 'streamGenerateContent'].map(
    (name) =>
      [
        `/v1beta/models/gem/gemini-2.5-flash:${name}`,
        (fileUri: string) => gemini({ file_data: { mime_type: 'image/png', file_uri: fileUri } }),
        'contents.0.parts.1.fileData.fileUri',
      ] as const,
  ),
  [
    '/v1beta/models/bed/amazon.nova-pro:generateContent',
    (fileUri) => gemini({ fileData: { mimeType: 'image/png', fileUri } }),
    'contents.0.parts.1.fileData.fileUri',
  ],
  [
    '/v1beta/models/gem/gemini-2.5-flash:countTokens',
    (fileUri) => gemini({ fileData: { fileUri } }),
    'contents.0.parts.1.fileData.fileUri',
  ],
  ['/v1/files', (url) => batch(CHAT, picture(url)), 'messages.0.content.0.image_url.url'],
  [
    '/v1/files',
    (url) => batch('/v1/responses', { input: [{ role: 'user', content: [{ type: 'input_image', image_url: url }] }] }),
    'input.0.content.0.image_url',
  ],
  ['/v1/embeddings', (image) => ({ model: 'plain/small', input: 'Hi', image }), 'image'],
  ['/v1/completions', (image) => ({ model: 'plain/small', prompt: 'Hi', image }), 'image'],
  [
    '/v1/images/edits',
    (image_url) => ({ model: 'plain/draw', prompt: 'Hi', images: [{ image_url }] }),
    'images.0.image_url',
  ],
  [
    '/v1/moderations',
    (url) => ({ model: 'plain/mod', input: [{ type: 'image_url', image_url: { url } }] }),
    'input.0.image_url.url',
  ],
];

test('no way in takes the address of an object in storage that the operator has not allowed', async () => {
  for (const [path, body, field] of WAYS) {
    for (const address of [
      's3://acme/key.png',
      'gs://acme/a.pdf',
      'ms://abc',
      'fileid://abc',
      ' S3://acme/key.png',
      'file:///etc/passwd',
    ]) {
      const given = body(address);
      const refusal = (await refusalOf(path, given)) ?? '';
      assert.ok(refusal.includes(`${field} refers`), `${path} ${address} ${JSON.stringify(given)}: ${refusal}`);
      assert.match(refusal, /completions\.storage_allow/);
    }
  }
});

test('a request may name objects below an allowed prefix, and nothing that only looks like them', async () => {
  for (const [path, body] of WAYS) {
    for (const address of ['s3://acme-public/a/b.png', 'gs://acme-docs/reports/a.pdf']) {
      assert.equal(await refusalOf(path, body(address), open), undefined, `${path} ${JSON.stringify(body(address))}`);
    }
    for (const address of [
      's3://acme-public-2/a.png',
      's3://acme-public',
      'gs://acme-docs/reports-2/a.pdf',
      'gs://acme-docs/reports/../a.pdf',
      'gs://acme-docs/reports/%2E%2e/a.pdf',
    ]) {
      assert.ok(await refusalOf(path, body(address), open), `${path} ${address}`);
    }
  }
  const [asked] = [{ model: 'bed/amazon.nova-pro', ...picture('s3://acme-public/a.png') }];
  await open.post(CHAT, asked);
  assert.match(upstream.requests.at(-1)?.text ?? '', /"s3Location":\{"uri":"s3:\/\/acme-public\/a.png"\}/);
});

test('files of Qwen that a message names in its text are refused too', async () => {
  const system = (content: unknown) => ({
    model: 'plain/qwen-long',
    messages: [{ role: 'system', content }, ...user('Summarise').messages],
  });
  for (const content of [
    'fileid://file-fe-1',
    'Read fileid://file-fe-1',
    [{ type: 'text', text: 'fileid://file-fe-1,fileid://file-fe-2' }],
  ]) {
    assert.ok(await refusalOf(CHAT, system(content)), JSON.stringify(content));
  }
  assert.ok(await refusalOf(CHAT, system('fileid://shared/a,fileid://file-fe-2'), open));
  assert.equal(await refusalOf(CHAT, system('fileid://shared/a,fileid://shared/b'), open), undefined);
});

test('texts, tools and addresses of the web pass as before', async () => {
  const text = 's3://acme/key.png is where it lies';
  const schema = { type: 'object', $id: 'tag://acme', properties: { uri: { default: 's3://acme/key.png' } } };
  const call = { id: 'a', type: 'function', function: { name: 'f', arguments: 's3://acme/key.png' } };
  for (const [path, body] of [
    [CHAT, { model: 'plain/small', ...user(text) }],
    [CHAT, { model: 'plain/small', ...parts({ type: 'text', text }) }],
    [CHAT, { model: 'gem/gemini-2.5-flash', ...picture('https://www.youtube.com/watch?v=1') }],
    [CHAT, { model: 'plain/small', ...picture('data:image/png;base64,iVBORw0KGgo=') }],
    [
      CHAT,
      {
        model: 'plain/small',
        tools: [{ type: 'function', function: { name: 'f', description: text, parameters: schema } }],
        messages: [
          { role: 'user', content: 'Hi' },
          { role: 'assistant', tool_calls: [call] },
          { role: 'tool', tool_call_id: 'a', content: text },
        ],
      },
    ],
    [
      '/v1/messages',
      {
        model: 'claude/claude-sonnet-4-5',
        max_tokens: 9,
        tools: [{ name: 'f', input_schema: schema }],
        messages: [
          { role: 'user', content: text },
          {
            role: 'assistant',
            content: [{ type: 'tool_use', id: 'a', name: 'f', input: { uri: 's3://acme/key.png' } }],
          },
          {
            role: 'user',
            content: [
              {
                type: 'tool_result',
                tool_use_id: 'a',
                content: [
                  { type: 'search_result', source: 's3://acme/a', title: text, content: [{ type: 'text', text }] },
                ],
              },
            ],
          },
        ],
      },
    ],
    ['/v1/responses', { model: 'plain/small', input: text }],
    ['/v1/embeddings', { model: 'plain/small', input: [text, 's3://acme/key.png'] }],
    [
      '/v1beta/models/gem/gemini-2.5-flash:generateContent',
      gemini({ fileData: { fileUri: 'https://www.youtube.com/watch?v=1' } }),
    ],
    [
      '/v1beta/models/gem/gemini-2.5-flash:generateContent',
      gemini({ functionCall: { name: 'f', args: { uri: 's3://acme/key.png' } } }),
    ],
  ] as const) {
    const before = upstream.requests.length;
    assert.equal(await refusalOf(path, body), undefined, path);
    assert.ok(upstream.requests.length > before, `${path} ${JSON.stringify(body)}`);
  }
});

test('a prefix names a scheme and a bucket, and ends with a slash', () => {
  const problemsOf = (...list: string[]) =>
    resolveTrestle(JSON.stringify({ completions: { storage_allow: list } })).problems;
  assert.deepEqual(problemsOf(...storage_allow, 's3://sales-sheets/misses/'), []);
  for (const wrong of [
    's3://acme',
    's3://',
    's3:///',
    'gs://acme/reports',
    'https://acme.example/',
    'data://a/',
    'acme/',
    '',
  ]) {
    const problems = problemsOf(wrong);
    assert.equal(problems.length, 1, wrong);
    assert.match(JSON.stringify(problems), /slash at the end, such as s3:\/\/acme-public\//);
  }
});
