import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { HELLO, labAt, startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, diesAfter, refuses, startScriptedUpstream, streams } from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const PNG = Buffer.from('89504e470d0a1a0a', 'hex');

async function start(t: TestContext, rest: object = {}) {
  const upstream = await startScriptedUpstream(t);
  const running = await startCompletions(t, { settings: labAt(upstream.url, rest) });
  const calls = async (): Promise<Json[]> =>
    ((await (await fetch(`${running.url}/v1/usage/calls`)).json()) as Json).data;
  const postForm = (path: string, form: FormData, headers: Record<string, string> = {}) =>
    fetch(`${running.url}${path}`, { method: 'POST', body: form, headers });
  return { upstream, calls, postForm, ...running };
}

function formOf(fields: Readonly<Record<string, string | Blob>>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'string') form.append(name, value);
    else form.append(name, value, 'a.wav');
  }
  return form;
}

test('images, moderations and rankings pass as they came, and are metered by what the upstream counts', async (t) => {
  const { upstream, post, calls } = await start(t, { prices: { 'lab/draw': { input: 0.001, output: 0.01 } } });
  const usage = { input_tokens: 10, output_tokens: 100, total_tokens: 110, input_tokens_details: { image_tokens: 4 } };
  const images = { created: 1, data: [{ b64_json: PNG.toString('base64') }], usage };
  const rows: [path: string, body: Json, answer: Json, operation: string][] = [
    ['/v1/images/generations', { model: 'lab/draw', prompt: 'A bridge', size: '1024x1024' }, images, 'image'],
    [
      '/v1/moderations',
      { model: 'lab/guard', input: 'Hello' },
      { id: 'm', results: [{ flagged: false }] },
      'moderation',
    ],
    [
      '/v1/rerank',
      { model: 'lab/rank', query: 'a', documents: ['a', 'b'] },
      { results: [{ index: 0, relevance_score: 1 }], usage: { total_tokens: 5, prompt_tokens: 5 } },
      'rerank',
    ],
  ];
  for (const [path, body, answer, operation] of rows) {
    upstream.script(answers(answer));
    const response = await post(path, body);
    assert.equal(response.status, 200, path);
    assert.deepEqual(await response.json(), answer);
    const seen = upstream.requests.at(-1);
    assert.deepEqual(seen?.json, { ...body, model: body.model.slice(4) });
    assert.equal(seen?.path, path);
    const [call] = await calls();
    assert.deepEqual([call.operation, call.model, call.outcome], [operation, body.model, 'ok']);
  }
  const all = await calls();
  const drawn = all.find(({ operation }) => operation === 'image');
  assert.deepEqual([drawn.usage.prompt_tokens, drawn.usage.completion_tokens, drawn.cost_usd], [10, 100, 1.01]);
  assert.equal(all.find(({ operation }) => operation === 'rerank').usage.prompt_tokens, 5);
});

test('a form passes with its files as they are; the field model is the only one that changes', async (t) => {
  const { upstream, postForm, calls } = await start(t);
  upstream.script(answers({ text: 'Hello', usage: { type: 'tokens', input_tokens: 7, output_tokens: 2 } }));
  const file = new Blob(['RIFF\r\n--not-the-boundary\r\nend'], { type: 'audio/wav' });
  const form = formOf({ file, model: 'lab/hear', language: 'en' });
  for (const path of ['/v1/audio/transcriptions', '/v1/audio/translations']) {
    const response = await postForm(path, form);
    assert.deepEqual([response.status, ((await response.json()) as Json).text], [200, 'Hello']);
    const seen = upstream.requests.at(-1);
    assert.equal(seen?.path, path);
    const again = await new Response(seen?.text, {
      headers: { 'content-type': String(seen?.headers['content-type']) },
    }).formData();
    assert.deepEqual([again.get('model'), again.get('language')], ['hear', 'en']);
    const passed = again.get('file') as File;
    assert.deepEqual([passed.name, passed.type, await passed.text()], ['a.wav', 'audio/wav', await file.text()]);
  }
  const [call] = await calls();
  assert.deepEqual([call.operation, call.usage.prompt_tokens, call.usage.completion_tokens], ['transcription', 7, 2]);

  upstream.script(answers('WEBVTT', 200, { 'content-type': 'text/vtt' }));
  const text = await postForm('/v1/audio/transcriptions', form);
  assert.deepEqual([text.headers.get('content-type'), await text.text()], ['text/vtt', 'WEBVTT']);
  upstream.script(answers('<script>', 200, { 'content-type': 'text/html' }));
  const page = await postForm('/v1/audio/transcriptions', form);
  assert.equal(page.headers.get('content-type'), 'application/octet-stream');
  upstream.script(answers({ data: [{ b64_json: '' }] }));
  const edit = await postForm('/v1/images/edits', formOf({ 'image[]': file, prompt: 'Larger', model: 'lab/draw' }));
  assert.equal(edit.status, 200);
});

test('an edit names no image that the API keeps for all callers together', async (t) => {
  const { upstream, post } = await start(t);
  const ask = (rest: object) => post('/v1/images/edits', { model: 'lab/draw', prompt: 'A bridge', ...rest });
  for (const [rest, param] of [
    [{ images: [{ image_url: 'https://a.example/a.png' }, { file_id: 'file-1' }] }, 'images[1].file_id'],
    [{ image: { file_id: 'file-1' } }, 'image[0].file_id'],
    [{ mask: { file_id: 'file-1' } }, 'mask[0].file_id'],
  ] as const) {
    const response = await ask(rest);
    const { error } = (await response.json()) as Json;
    assert.deepEqual([response.status, error.code, error.param], [400, 'nothing_stored', param]);
  }
  assert.equal(upstream.requests.length, 0);
  upstream.script(answers({ created: 1, data: [] }));
  assert.equal((await ask({ images: [{ image_url: 'https://a.example/a.png' }] })).status, 200);
});

test('a form that is not plain is refused before anything is sent: twice the same model, odd headers, no file', async (t) => {
  const { upstream, url, postForm } = await start(t);
  const path = '/v1/audio/transcriptions';
  const file = new Blob(['x'], { type: 'audio/wav' });
  const twice = formOf({ file, model: 'lab/hear' });
  twice.append('model', 'lab/other');
  const send = (body: string, type = 'multipart/form-data; boundary=B') =>
    fetch(`${url}${path}`, { method: 'POST', body, headers: { 'content-type': type } });
  const part = (head: string) => `--B\r\n${head}\r\n\r\nx\r\n--B--\r\n`;
  const whole = `--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nlab/hear\r\n${part('Content-Disposition: form-data; name="file"; filename="a"')}`;
  const refused = [
    await postForm(path, twice),
    await postForm(path, formOf({ file })),
    await postForm(path, formOf({ model: 'lab/hear' })),
    await send(part('Content-Disposition: form-data; name=model')),
    await send(part('X-Odd: 1\r\nContent-Disposition: form-data; name="model"')),
    await send('--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nx'),
    await send('x'.repeat(5000)),
    await send('{}', 'application/json'),
    await send(whole, 'multipart/form-data; boundary=A; boundary=B'),
    await postForm(path, formOf({ file, model: 'lab/hear' }), { origin: 'https://evil.example' }),
  ];
  assert.deepEqual(
    refused.map(({ status }) => status),
    [400, 400, 400, 400, 400, 400, 400, 400, 400, 403],
  );
  assert.equal(upstream.requests.length, 0);
  upstream.script((response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end('{"text":"x"}');
  });
  assert.equal((await send(whole, 'Multipart/Form-Data; charset=utf-8; boundary="B"')).status, 200);
});

test('speech comes as it is made, and one that breaks off never looks complete', async (t) => {
  const { upstream, post, calls } = await start(t);
  const speak = (rest: object = {}) =>
    post('/v1/audio/speech', { model: 'lab/say', input: 'Hello', voice: 'a', ...rest });
  const audio = Buffer.from([0, 255, 1, 254, 13, 10, 10]);
  upstream.script((response) => {
    response.writeHead(200, { 'content-type': 'audio/mpeg' });
    response.write(audio);
    response.end(audio);
  });
  const response = await speak();
  assert.deepEqual([response.status, response.headers.get('content-type')], [200, 'audio/mpeg']);
  assert.deepEqual(Buffer.from(await response.arrayBuffer()), Buffer.concat([audio, audio]));
  assert.equal((await speak({ response_format: 'wav' })).headers.get('content-type'), 'audio/wav');
  upstream.script(diesAfter(['some sound']));
  await assert.rejects(speak().then((broken) => broken.arrayBuffer()));
  const outcomes = (await calls()).map(({ operation, outcome }) => [operation, outcome]);
  assert.deepEqual(outcomes[0], ['speech', 'partial']);
  upstream.script(refuses(400, 'no such voice'));
  assert.equal((await speak()).status, 400);
  upstream.script(answers('', 200, { 'content-type': 'audio/mpeg' }));
  const silent = await speak();
  assert.deepEqual([silent.status, ((await silent.json()) as Json).error.code], [502, 'upstream_error']);
});

test('events of images and transcriptions pass as bytes, and their last one is read for the usage', async (t) => {
  const { upstream, post, calls } = await start(t);
  const event = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
  const usage = { input_tokens: 3, output_tokens: 9, total_tokens: 12 };
  const events = [
    event({ type: 'image_generation.partial_image', b64_json: 'AAAA' }),
    event({ type: 'image_generation.completed', b64_json: 'BBBB', usage }),
  ];
  upstream.script(streams(events));
  const draw = () => post('/v1/images/generations', { model: 'lab/draw', prompt: 'A bridge', stream: true });
  assert.equal(await (await draw()).text(), events.join(''));
  const [call] = await calls();
  assert.deepEqual([call.usage.prompt_tokens, call.usage.completion_tokens, call.outcome], [3, 9, 'ok']);
  upstream.script(streams(events.slice(0, 1)));
  assert.match(await (await draw()).text(), /"error"/);
  upstream.script(
    streams([event({ type: 'error', error: { message: 'not that', code: 'content_policy_violation' } })]),
  );
  assert.equal((await draw()).status, 400);
});

test('limits of keys and the models they may use count for every operation; fallbacks and other dialects as for chats', async (t) => {
  const master = 'master-key-of-the-media-1';
  const { upstream, post } = await start(t, { master_key: master });
  const issue = async (body: object) =>
    ((await (await post('/keys', body, { headers: { authorization: `Bearer ${master}` } })).json()) as Json).key;
  const draw = (key: string, rest: object = {}, headers: Record<string, string> = {}) =>
    post(
      '/v1/images/generations',
      { model: 'lab/draw', prompt: 'A bridge', ...rest },
      { headers: { authorization: `Bearer ${key}`, ...headers } },
    );
  upstream.script(answers({ created: 1, data: [] }));
  assert.equal((await draw(await issue({ name: 'a', models: ['lab/other'] }))).status, 403);
  const once = await issue({ name: 'b', requests_per_minute: 1 });
  assert.deepEqual([(await draw(once)).status, (await draw(once)).status], [200, 429]);
  const free = await issue({ name: 'c' });
  upstream.script(refuses(404));
  const fell = await draw(free, {}, { 'x-fallback-models': 'demo/image' });
  assert.deepEqual([fell.status, fell.headers.get('x-model-api')], [200, 'demo']);
  for (const wrong of [{ prompt: '' }, { n: 0 }, { n: 11 }]) assert.equal((await draw(free, wrong)).status, 400);
});

test('demo models show each operation without a key, and refuse the others', async (t) => {
  const { post, postForm } = await start(t);
  const json = async (path: string, body: object): Promise<Json> => (await post(path, body)).json();
  const drawn = await json('/v1/images/generations', { model: 'demo/image', prompt: 'A bridge', n: 2 });
  assert.equal(drawn.data.length, 2);
  assert.deepEqual(Buffer.from(drawn.data[0].b64_json, 'base64').subarray(0, 8), PNG);
  const spoken = await post('/v1/audio/speech', { model: 'demo/speech', input: 'Hello there' });
  assert.equal(Buffer.from(await spoken.arrayBuffer()).toString('latin1', 0, 4), 'RIFF');
  const heard = await postForm(
    '/v1/audio/transcriptions',
    formOf({ file: new Blob(['x'.repeat(3200)]), model: 'demo/transcription' }),
  );
  assert.deepEqual(await heard.json(), { text: 'A recording of about 2 tokens.' });
  const judged = await json('/v1/moderations', { model: 'demo/moderation', input: ['a', 'b'] });
  assert.equal(judged.results.length, 2);
  const documents = ['the sea', 'a steel bridge', 'bridge'];
  const ranked = await json('/v1/rerank', { model: 'demo/rerank', query: 'steel bridge', documents, top_n: 2 });
  assert.deepEqual(
    ranked.results.map(({ index }: Json) => index),
    [1, 2],
  );
  const chat = await post('/v1/chat/completions', { ...HELLO, model: 'demo/image' });
  assert.deepEqual([chat.status, ((await chat.json()) as Json).error.code], [400, 'operation_not_supported']);
  assert.equal((await post('/v1/rerank', { model: 'demo/echo', query: 'a', documents: ['a'] })).status, 400);
});
