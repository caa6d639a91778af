import assert from 'node:assert/strict';
import { test } from 'node:test';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { HELLO, LAB_KEY, labAt, readStream, startCompletions } from '../../kit/completions/start-completions.ts';
import {
  answers,
  chunkOf,
  completionOf,
  diesAfter,
  diesAtOnce,
  eventsOf,
  refuses,
  saysNothing,
  startScriptedUpstream,
  streams,
  streamsLater,
} from '../../kit/scripted-upstream.ts';
import { until } from '../../kit/until.ts';

interface ApiError {
  readonly error: { message: string; type: string; param: string | null; code: string };
}

const errorOf = async (response: Response) => ((await response.json()) as ApiError).error;

/** One target without retries, so that a test sees what a single failure does. */
const once = (url: string, alias: object = {}) =>
  labAt(url, { models: [{ name: 'once', targets: [{ model: 'lab/small' }], retries: 0, ...alias }] });
const ONCE = { ...HELLO, model: 'once' };

test('P-06: an upstream that dies before the first byte is a 502 in JSON, after two retries', async (t) => {
  const upstream = await startScriptedUpstream(t, diesAtOnce);
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  for (const stream of [false, true]) {
    upstream.requests.length = 0;
    const response = await post('/v1/chat/completions', { ...HELLO, model: `lab/${stream}`, stream });
    assert.equal(response.status, 502);
    assert.equal(response.headers.get('x-attempts'), '3');
    const error = await errorOf(response);
    assert.deepEqual(Object.keys(error), ['message', 'type', 'param', 'code']);
    assert.equal(error.code, 'upstream_error');
    assert.equal(upstream.requests.length, 3);
  }
  upstream.script(diesAtOnce, answers(completionOf('second try')));
  const mended = await post('/v1/chat/completions', { ...HELLO, model: 'lab/mended' });
  assert.equal(mended.headers.get('x-attempts'), '2');
  await upstream.close();
  const gone = await post('/v1/chat/completions', { ...HELLO, model: 'lab/gone' });
  assert.equal(gone.status, 502);
  assert.match((await errorOf(gone)).message, /nothing listens/);
});

test('P-06: a stream that fails before its first event is answered by the fallback', async (t) => {
  const comment = ': starting\n\n';
  for (const early of [
    diesAtOnce,
    diesAfter([comment]),
    refuses(500),
    streams([comment, 'data: {"error":{"message":"no","code":500}}\n\n']),
    streams([]),
  ]) {
    const upstream = await startScriptedUpstream(t, early);
    const settings = once(upstream.url, { fallbacks: ['demo/echo'] });
    const { post } = await startCompletions(t, { settings });
    const response = await post('/v1/chat/completions', { ...ONCE, stream: true });
    assert.equal(response.headers.get('x-model-api'), 'demo');
    assert.equal(response.headers.get('x-attempts'), '2');
    const { text, done } = await readStream(response);
    assert.equal(text, 'Hello');
    assert.ok(done);
  }
});

test('P-07: an upstream that dies in the middle leaves one error event and no [DONE]; it is not tried again', async (t) => {
  const events = eventsOf(['one', ' two', ' three']);
  const halfAnEvent = events[3]?.slice(0, 30) ?? '';
  const upstream = await startScriptedUpstream(t, diesAfter([...events.slice(0, 3), halfAnEvent]));
  const { post, usage } = await startCompletions(t, { settings: labAt(upstream.url) });
  const response = await post('/v1/chat/completions', { ...HELLO, stream: true });
  assert.equal(response.status, 200);
  const body = await response.text();
  assert.ok(body.startsWith(events.slice(0, 3).join('')));
  const rest = body.slice(events.slice(0, 3).join('').length);
  assert.match(rest, /^data: \{"error":\{[^\n]+\}\}\n\n$/);
  const { error } = JSON.parse(rest.slice(6)) as ApiError;
  assert.deepEqual(Object.keys(error), ['message', 'type', 'param', 'code']);
  assert.equal(error.code, 'upstream_error');
  assert.equal(upstream.requests.length, 1);
  const { total } = await usage();
  assert.equal(total.errors, 1);
  assert.ok((total.completion_tokens ?? 0) >= 2, 'what was streamed is counted');
});

test('P-07: a stream that ends cleanly but with neither finish reason nor [DONE] is broken, too', async (t) => {
  const events = eventsOf(['one', ' two']).slice(0, 3);
  const upstream = await startScriptedUpstream(t, streams(events));
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const { error, done, text } = await readStream(await post('/v1/chat/completions', { ...HELLO, stream: true }));
  assert.equal(text, 'one two');
  assert.equal(error?.code, 'upstream_error');
  assert.equal(done, false);
});

test('P-07: an error object inside a stream, of any shape, becomes our error event', async (t) => {
  const begun = eventsOf(['one']).slice(0, 2);
  const shapes: [string, string][] = [
    ['data: {"error":{"message":"overloaded now","type":"overloaded_error"}}\n\n', 'overloaded now'],
    ['data: {"error":"plain words"}\n\n', 'plain words'],
    [
      `data: ${JSON.stringify({ ...chunkOf({ content: '' }, 'error'), error: { code: 502, message: 'gone away' } })}\n\n`,
      'gone away',
    ],
    ['event: error\ndata: {"error":\ndata: {"message":"two lines"}}\n\n', 'two lines'],
  ];
  for (const [event, message] of shapes) {
    const upstream = await startScriptedUpstream(t, streamsLater(begun, [event, ...eventsOf(['never'])]));
    const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
    const { error, done, events } = await readStream(await post('/v1/chat/completions', { ...HELLO, stream: true }));
    assert.ok(String(error?.message).includes(message), `${message} in ${error?.message}`);
    assert.equal(done, false);
    assert.equal(events.length, 3);
  }
});

test('P-09: an upstream that says nothing is a 504; one that falls silent later ends in an error event', async (t) => {
  const upstream = await startScriptedUpstream(t, saysNothing);
  const timeouts = { first_byte: '80ms', idle: '60ms' };
  const { post } = await startCompletions(t, { settings: once(upstream.url, { timeouts }) });
  for (const stream of [false, true]) {
    const response = await post('/v1/chat/completions', { ...ONCE, stream });
    assert.equal(response.status, 504);
    assert.equal((await errorOf(response)).code, 'upstream_timeout');
  }
  upstream.script(streams(eventsOf(['one']).slice(0, 2), { end: false }));
  const { text, error, done } = await readStream(await post('/v1/chat/completions', { ...ONCE, stream: true }));
  assert.equal(text, 'one');
  assert.equal(error?.code, 'upstream_timeout');
  assert.equal(done, false);
  await Promise.all(upstream.requests.map(({ closed }) => closed));
});

test('P-09: the time for the whole answer is kept even while pieces come', async (t) => {
  const upstream = await startScriptedUpstream(t, async (response, { closed }) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const timer = setInterval(() => response.write(`data: ${JSON.stringify(chunkOf({ content: 'x' }))}\n\n`), 5);
    await closed;
    clearInterval(timer);
  });
  const { post } = await startCompletions(t, { settings: once(upstream.url, { timeouts: { total: '120ms' } }) });
  const { error } = await readStream(await post('/v1/chat/completions', { ...ONCE, stream: true }));
  assert.match(String(error?.message), /total/);
});

test('P-12: a 429 keeps its status and Retry-After; a refused key is a 502 that does not show it', async (t) => {
  const upstream = await startScriptedUpstream(t, refuses(429, 'slow down', { 'retry-after': '30' }));
  const { post, log } = await startCompletions(t, { settings: labAt(upstream.url) });
  const limited = await post('/v1/chat/completions', HELLO);
  assert.equal(limited.status, 429);
  assert.equal(limited.headers.get('retry-after'), '30');
  const error = await errorOf(limited);
  assert.equal(error.message, 'slow down');
  assert.equal(error.type, 'rate_limit_error');
  assert.equal(upstream.requests.length, 1, 'half a minute is not waited for');

  for (const status of [401, 403]) {
    upstream.script(refuses(status, `Incorrect API key provided: ${LAB_KEY}`));
    const response = await post('/v1/chat/completions', HELLO);
    assert.equal(response.status, 502);
    const text = await response.text();
    assert.equal((JSON.parse(text) as ApiError).error.code, 'upstream_authentication');
    assert.ok(!text.includes(LAB_KEY));
  }
  assert.ok(!log().includes(LAB_KEY));
});

test("P-12: an upstream's own 4xx about the request passes with status, message and param", async (t) => {
  const body = { error: { message: 'top_k is odd', type: 'invalid_request_error', param: 'top_k', code: 'odd' } };
  const upstream = await startScriptedUpstream(t, answers(body, 422));
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  for (const path of ['/v1/chat/completions', '/chat/completions']) {
    const response = await post(path, HELLO);
    assert.equal(response.status, 422);
    assert.equal(response.headers.get('x-attempts'), '1');
    const error = await errorOf(response);
    assert.equal(error.message, 'top_k is odd');
    assert.equal(error.param, 'top_k');
    assert.equal(error.type, 'invalid_request_error');
  }
});

test('P-13: 5xx and 429 are tried again up to twice, with the same idempotency id', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  for (const status of [408, 409, 429, 500, 502, 503, 504, 529]) {
    upstream.requests.length = 0;
    upstream.script(refuses(status), refuses(status), answers(completionOf('at last')));
    const response = await post('/v1/chat/completions', { ...HELLO, model: `lab/m${status}` });
    assert.equal(response.status, 200, `${status}`);
    assert.equal(response.headers.get('x-attempts'), '3');
    const ids = new Set(upstream.requests.map(({ headers }) => headers['idempotency-key']));
    assert.equal(ids.size, 1);
    assert.ok(!ids.has(undefined));
  }
});

test('a refusal without an end is answered as soon as there is enough of it', async (t) => {
  let open = 0;
  const upstream = await startScriptedUpstream(t, async (response) => {
    response.writeHead(429, { 'content-type': 'text/plain', 'retry-after': '7200' });
    open += 1;
    response.on('close', () => {
      open -= 1;
    });
    while (!response.destroyed) {
      response.write('busy '.repeat(4000));
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  });
  const { post } = await startCompletions(t, { settings: once(upstream.url) });
  for (const stream of [false, true]) {
    const response = await post('/v1/chat/completions', { ...ONCE, stream });
    assert.equal(response.status, 429);
    assert.equal(response.headers.get('retry-after'), '7200');
    assert.match((await errorOf(response)).message, /^busy busy/);
    await until('the connection is closed', () => open === 0);
  }
});

test('P-15: a redirect is not followed', async (t) => {
  const other = await startScriptedUpstream(t, answers(completionOf('stolen')));
  const upstream = await startScriptedUpstream(t, answers('', 307, { location: `${other.url}/chat/completions` }));
  const { post } = await startCompletions(t, { settings: once(upstream.url) });
  const response = await post('/v1/chat/completions', ONCE);
  assert.equal(response.status, 502);
  assert.match((await errorOf(response)).message, /redirect/);
  assert.equal(other.requests.length, 0);
});

test('P-16: a compressed answer is unpacked, but never beyond 32 MiB', async (t) => {
  const packed = (body: string) => (response: import('node:http').ServerResponse) => {
    response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' });
    response.end(gzipSync(body));
  };
  const upstream = await startScriptedUpstream(t, packed(JSON.stringify(completionOf('small'))));
  const { post } = await startCompletions(t, { settings: once(upstream.url) });
  const small = (await (await post('/v1/chat/completions', ONCE)).json()) as ReturnType<typeof completionOf>;
  assert.deepEqual(small, completionOf('small'));
  upstream.script(packed(`{"choices":[],"padding":"${'x'.repeat(40 * 1024 * 1024)}"}`));
  const bomb = await post('/v1/chat/completions', ONCE);
  assert.equal(bomb.status, 502);
  assert.match((await errorOf(bomb)).message, /32 MiB/);
  upstream.script((response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    const piece = Buffer.alloc(1024 * 1024, 'x');
    const pour = (): void => {
      while (!response.destroyed) if (!response.write(piece)) return void response.once('drain', pour);
    };
    pour();
  });
  assert.match((await errorOf(await post('/v1/chat/completions', ONCE))).message, /32 MiB/);
});

test('a refusal keeps its status and its words, also compressed, cut or damaged', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('')));
  const { post } = await startCompletions(t, { settings: once(upstream.url) });
  const body = Buffer.from(JSON.stringify({ error: { message: 'no such voice', code: 'bad_voice' } }));
  const refuse = (bytes: Buffer, encoding: string, isCut: boolean) =>
    upstream.script((response) => {
      const length = bytes.length + (isCut ? 1 : 0);
      response.writeHead(422, {
        'content-type': 'application/json',
        'content-encoding': encoding,
        'content-length': length,
      });
      response.write(bytes, () => (isCut ? response.destroy() : response.end()));
    });
  for (const stream of [false, true]) {
    for (const isCut of [false, true]) {
      for (const [encoding, bytes] of [
        ['identity', body],
        ['gzip', gzipSync(body)],
        ['br', brotliCompressSync(body)],
        ['gzip', gzipSync(body).subarray(0, -9)],
      ] as const) {
        refuse(bytes, encoding, isCut);
        const refused = await post('/v1/chat/completions', { ...ONCE, stream });
        assert.equal(refused.status, 422, `${encoding}, ${stream}, ${isCut}`);
        assert.match((await errorOf(refused)).message, /no such voice/);
      }
      refuse(body, 'gzip', isCut);
      assert.equal((await post('/v1/chat/completions', { ...ONCE, stream })).status, 422, 'no gzip at all');
    }
  }
});

test('an answer that is no JSON, or an error inside a 200, is a failure', async (t) => {
  const upstream = await startScriptedUpstream(t, answers('<html>hello</html>'));
  const { post } = await startCompletions(t, { settings: once(upstream.url) });
  assert.equal((await post('/v1/chat/completions', ONCE)).status, 502);
  for (const choices of [null, [], [null]]) {
    upstream.script(answers(completionOf('', { choices })));
    const broken = await post('/v1/chat/completions', ONCE);
    assert.equal(broken.status, 502, JSON.stringify(choices));
    assert.match((await errorOf(broken)).message, /no choices/);
  }
  upstream.script(answers({ error: { message: 'no credit', code: 402 } }));
  const response = await post('/v1/chat/completions', ONCE);
  assert.equal(response.status, 402);
  assert.equal((await errorOf(response)).message, 'no credit');
  upstream.script(answers(completionOf('whole')));
  assert.equal((await post('/v1/chat/completions', { ...ONCE, stream: true })).status, 502);
});

test('P-34: an answer whose usage has no figures is counted here, and not an error', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const { post } = await startCompletions(t, { settings: once(upstream.url) });
  for (const usage of [null, {}, { prompt_tokens: null, completion_tokens: null }, 'none', { prompt_tokens: -5 }]) {
    upstream.script(answers(completionOf('Hello there', { usage })));
    const response = await post('/v1/chat/completions', ONCE);
    assert.equal(response.status, 200, JSON.stringify(usage));
    const answer = (await response.json()) as { usage: object; choices: { message: { content: string } }[] };
    assert.equal(answer.choices[0]?.message.content, 'Hello there');
    const expected = { prompt_tokens: 6, completion_tokens: 3, total_tokens: 9, estimated: true };
    assert.deepEqual(answer.usage, expected, JSON.stringify(usage));
  }
});

test('nothing that was sent as a credential comes back in an error, in the log of calls or in the program’s log', async (t) => {
  const [gateway, team] = ['gw-5d1f0c9e7b', 'team-of-the-lab-55'];
  const headers = { 'X-Gateway': gateway, Authorization: `Token ${team}`, 'Anthropic-Version': '2023-06-01' };
  const sent = [LAB_KEY, gateway, team];
  const echo = `bad: ${sent.join(' ')} ${Buffer.from(gateway).toString('base64')} for 2023-06-01`;
  const upstream = await startScriptedUpstream(t);
  const apis = {
    lab: { dialect: 'openai', base_url: upstream.url, api_key: LAB_KEY, headers },
    pool: { dialect: 'openai', base_url: upstream.url, api_keys: [{ key: LAB_KEY }], headers },
  };
  const master = 'master-key-of-the-failures-1';
  const { post, url, log } = await startCompletions(t, { settings: { apis, master_key: master } });
  const authorization = `Bearer ${master}`;
  const messages = HELLO.messages;
  for (const [path, model, body] of [
    ['/v1/chat/completions', 'lab/a', { messages }],
    ['/v1/chat/completions', 'pool/a', { messages }],
    ['/v1/embeddings', 'lab/a', { input: 'x' }],
    ['/v1/images/generations', 'lab/a', { prompt: 'x' }],
    ['/v1/messages', 'lab/a', { messages, max_tokens: 5 }],
  ] as const) {
    for (const behaviour of [
      refuses(400, echo),
      answers({ error: { message: echo, code: 400, param: gateway } }),
      streams([`data: {"error":{"message":"${echo}","code":400}}\n\n`]),
      streamsLater(
        [`data: ${JSON.stringify(chunkOf({ content: 'Hel' }))}\n\n`],
        [`data: {"error":{"message":"${echo}","code":400}}\n\n`],
      ),
    ]) {
      upstream.script(behaviour);
      const stream = path !== '/v1/embeddings' && path !== '/v1/images/generations';
      const answer = await post(path, { model, ...body, ...(stream && { stream }) }, { headers: { authorization } });
      const text = await answer.text();
      for (const secret of sent) assert.ok(!text.includes(secret), `${path}: ${text}`);
      if (answer.status === 400)
        assert.ok(text.includes('for 2023-06-01'), `what no secret is stays readable: ${text}`);
    }
  }
  const calls = await (await fetch(`${url}/v1/usage/calls`, { headers: { authorization } })).text();
  assert.ok(calls.includes('lab/a'), calls);
  for (const secret of sent) assert.ok(!(calls + log()).includes(secret), secret);
});
