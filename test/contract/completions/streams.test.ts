import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { test } from 'node:test';
import { HELLO, labAt, parseStream, readStream, startCompletions } from '../../kit/completions/start-completions.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { chunkOf, diesAfter, eventsOf, refuses, startScriptedUpstream, streams } from '../../kit/scripted-upstream.ts';
import { timeLimit } from '../../kit/time.ts';
import { until } from '../../kit/until.ts';

const STREAM = { ...HELLO, stream: true };
const eventText = (content: string) => `data: ${JSON.stringify(chunkOf({ content }))}\n\n`;

/** A request whose answer the test reads, or does not read, itself. */
async function openRaw(url: string, body: unknown): Promise<IncomingMessage> {
  const request = httpRequest(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
  });
  request.end(JSON.stringify(body));
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return response;
}

test('P-04: line ends of every kind, comments, a byte order mark and other fields pass untouched', async (t) => {
  const [role = '', word = '', finish = ''] = eventsOf(['Hi'], { usage: false });
  const crlf = (text: string) => text.replaceAll('\n', '\r\n');
  const cr = (text: string) => text.replaceAll('\n', '\r');
  const twoLines = word.replace('"choices":', '"choices":\ndata: ');
  const forms: string[][] = [
    [role, word, finish, 'data: [DONE]\n\n'].map(crlf),
    [role, word, finish, 'data: [DONE]\n\n'].map(cr),
    ['\ufeff', ': comment\n\n', role, twoLines, 'event: message\nid: 7\nretry: 10\n', finish, 'data:[DONE]\n\n'],
    [role, word, finish, 'data: [DONE]'],
    [role, crlf(word), cr(finish), '\n', 'data: [DONE]\n\n'],
  ];
  const upstream = await startScriptedUpstream(t);
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  for (const form of forms) {
    for (const apart of [false, true]) {
      const pieces = apart ? [...Buffer.from(form.join(''))].map((byte) => Buffer.from([byte])) : form;
      upstream.script(streams(pieces, { apart }));
      const body = await (await post('/v1/chat/completions', STREAM)).text();
      const trim = (text: string) => text.replace(/^\ufeff/, '').replace(/[\r\n]{1,4}$/, '');
      assert.equal(trim(body), trim(form.join('')));
    }
  }
});

test('P-05: silence is broken by a comment every 15 s', async (t) => {
  const clock = createFakeClock();
  let go: () => void = () => undefined;
  const upstream = await startScriptedUpstream(t, (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(eventText('one'));
    go = () => response.end(`${eventText(' two')}${eventsOf([], { usage: false }).slice(1).join('')}`);
  });
  const { url } = await startCompletions(t, {
    clock,
    settings: labAt(upstream.url, {
      models: [{ name: 'patient', targets: [{ model: 'lab/x' }], timeouts: { idle: '10m' } }],
    }),
  });
  const response = await openRaw(url, { ...STREAM, model: 'patient' });
  let text = '';
  response.setEncoding('utf8').on('data', (piece: string) => {
    text += piece;
  });
  await until('the first word', () => text.includes('one'));
  await clock.advance(14_000);
  assert.ok(!text.includes(':'.concat(' keep-alive')));
  await clock.advance(1000);
  await until('a sign of life', () => text.split(': keep-alive\n\n').length === 2);
  await clock.advance(15_000);
  await until('another sign of life', () => text.split(': keep-alive\n\n').length === 3);
  go();
  await once(response, 'end');
  assert.equal(parseStream(text.replaceAll(': keep-alive\n\n', '')).text, 'one two');
  assert.ok(text.endsWith('data: [DONE]\n\n'));
});

test('P-10: a client that leaves ends the upstream within 200 ms, and what came is counted', async (t) => {
  const upstream = await startScriptedUpstream(t, streams(eventsOf(['one', ' two']).slice(0, 3), { end: false }));
  const { url, usage } = await startCompletions(t, { settings: labAt(upstream.url) });
  const response = await openRaw(url, STREAM);
  await once(response, 'data');
  const left = performance.now();
  response.destroy();
  await upstream.requests[0]?.closed;
  assert.ok(performance.now() - left < timeLimit(200));
  const { total } = await usage();
  assert.equal(total.requests, 1);
  assert.ok((total.completion_tokens ?? 0) >= 2);
  assert.ok((total.prompt_tokens ?? 0) > 0);
});

test('P-10: a client that leaves before anything has come ends the upstream, too', async (t) => {
  for (const stream of [true, false]) {
    const upstream = await startScriptedUpstream(t, () => undefined);
    const { url, usage } = await startCompletions(t, { settings: labAt(upstream.url) });
    const request = httpRequest(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
    });
    request.on('error', () => undefined);
    request.end(JSON.stringify({ ...HELLO, stream }));
    await until('the request upstream', () => upstream.requests.length === 1);
    request.destroy();
    await upstream.requests[0]?.closed;
    await until('the request upstream', () => upstream.requests.length === 1);
    await new Promise((resolve) => setTimeout(resolve, 20));
    const { total } = await usage();
    assert.deepEqual([total.requests, total.completion_tokens], [1, 0]);
    assert.ok((total.prompt_tokens ?? 0) > 0, 'the prompt was read');
    assert.equal(upstream.requests.length, 1, 'it is not tried again');
  }
});

test('a client that leaves between two tries pays for neither', async (t) => {
  const upstream = await startScriptedUpstream(t, refuses(429, 'no', { 'retry-after-ms': '1000' }));
  const { url, usage } = await startCompletions(t, { settings: labAt(upstream.url) });
  const left = new AbortController();
  const body = JSON.stringify(HELLO);
  const headers = { 'content-type': 'application/json' };
  const call = fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body, signal: left.signal });
  await until('the first try', () => upstream.requests.length === 1);
  await new Promise((resolve) => setTimeout(resolve, 50));
  left.abort();
  await assert.rejects(call);
  await until('the call is over', async () => (await usage()).total.requests === 1);
  assert.equal((await usage()).total.prompt_tokens, 0);
});

test('a slow client holds up the upstream, not our memory', async (t) => {
  let sent = 0;
  let whole = false;
  const piece = eventText('x'.repeat(16_000));
  const upstream = await startScriptedUpstream(t, (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const pour = (): void => {
      while (sent < 2000) {
        sent += 1;
        if (!response.write(piece)) return void response.once('drain', pour);
      }
      whole = true;
      response.end(eventsOf([], { usage: false }).slice(1).join(''));
    };
    pour();
  });
  const { url } = await startCompletions(t, { settings: labAt(upstream.url) });
  const response = await openRaw(url, STREAM);
  response.pause();
  let before = -1;
  while (before !== sent) {
    before = sent;
    await new Promise((resolve) => setTimeout(resolve, 150));
  }
  assert.equal(whole, false, 'it waits for the reader');
  let bytes = 0;
  response.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
  });
  response.resume();
  await once(response, 'end');
  assert.ok(bytes > 2000 * piece.length);
});

test('P-35: many streams at the same time: each has its own text, byte for byte and in order', async (t) => {
  const count = 150;
  const upstream = await startScriptedUpstream(t, async (response, { json }) => {
    const words = Array.from({ length: 20 }, (_, index) => ` ${json.user}-${index}`);
    await streams(eventsOf(words, { usage: false }), { apart: true })(response, upstream.requests[0] as never);
  });
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const texts = await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const response = await post('/v1/chat/completions', { ...STREAM, user: `u${index}` });
      return response.text();
    }),
  );
  texts.forEach((text, index) => {
    const words = Array.from({ length: 20 }, (_, at) => ` u${index}-${at}`);
    assert.equal(text, eventsOf(words, { usage: false }).join(''));
  });
});

test('P-07: of many streams whose upstream dies, every single one reports an error', async (t) => {
  const count = 120;
  const words = eventsOf(['a', 'b', 'c', 'd', 'e']);
  let served = 0;
  const upstream = await startScriptedUpstream(t, async (response, request) => {
    served += 1;
    // One to five events, and sometimes a part of the next.
    const pieces = words.slice(0, 1 + (served % 5));
    const half = words[1 + (served % 5)]?.slice(0, served % 40) ?? '';
    await diesAfter(half === '' ? pieces : [...pieces, half])(response, request);
  });
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const results = await Promise.all(
    Array.from({ length: count }, async (_, index) =>
      readStream(await post('/v1/chat/completions', { ...STREAM, model: `lab/m${index}` })),
    ),
  );
  assert.equal(results.filter(({ error, done }) => error?.code === 'upstream_error' && !done).length, count);
});

test('P-36: a drain lets streams finish and refuses new ones', async (t) => {
  const finish: (() => void)[] = [];
  const upstream = await startScriptedUpstream(t, (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(eventText('one'));
    finish.push(() => response.end(eventsOf([' two'], { usage: false }).slice(1).join('')));
  });
  const { url, listener, post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const open = await Promise.all(Array.from({ length: 40 }, () => openRaw(url, STREAM)));
  const bodies = open.map(async (response) => {
    let text = '';
    for await (const piece of response) text += String(piece);
    return text;
  });
  await until('forty streams', () => finish.length === 40);
  const drained = listener.drain(30_000);
  assert.equal((await fetch(`${url}/readyz`)).status, 503);
  const refused = await post('/v1/chat/completions', STREAM);
  assert.equal(refused.status, 503);
  assert.equal(((await refused.json()) as { error: { code: string } }).error.code, 'shutting_down');
  for (const each of finish) each();
  for (const text of await Promise.all(bodies)) {
    assert.equal(parseStream(text).text, 'one two');
    assert.ok(text.endsWith('data: [DONE]\n\n'));
  }
  await drained;
});
