import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ChatCall } from '../../../src/completions/operations/run-chat.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { inTime } from '../../kit/in-time.ts';
import { until } from '../../kit/until.ts';
import { chunk } from './chunks.ts';
import { aborted, answering, HEADERS, MESSAGES, RESPONSES, startIngress, streamOf } from './ingress-listener.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const DIALECTS = [RESPONSES, MESSAGES];

test('a whole answer has the pipeline’s headers, and names what was dropped on both ways', async (t) => {
  const calls: ChatCall[] = [];
  const { post } = await startIngress(t, answering('Hi', calls));
  for (const { path, body } of DIALECTS) {
    const response = await post(path, { ...body, container: 'x', stream: false });
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('x-model-api'), 'lab');
    assert.equal(response.headers.get('x-dropped-params'), 'container, seed');
    const { id, usage, ...answer } = (await response.json()) as Json;
    assert.match(id, path === RESPONSES.path ? /^resp_/ : /^msg_/);
    assert.equal(answer.output?.[0].content[0].text ?? answer.content[0].text, 'Hi');
  }
  assert.deepEqual(
    calls.map(({ request, strict }) => [request.messages.at(-1)?.content, strict]),
    [
      ['Hello', false],
      ['Hello', false],
    ],
  );
});

test('a stream has the headers of an event stream and those of the pipeline', async (t) => {
  const { post } = await startIngress(t, answering('Hi'));
  for (const [{ path, body }, last] of [
    [RESPONSES, 'response.completed'],
    [MESSAGES, 'message_stop'],
  ] as const) {
    const response = await post(path, { ...body, stream: true });
    assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
    assert.equal(response.headers.get('cache-control'), 'no-cache');
    assert.equal(response.headers.get('x-accel-buffering'), 'no');
    for (const [name, value] of Object.entries(HEADERS)) assert.equal(response.headers.get(name), value);
    const events = (await response.text()).match(/^event: .*$/gm);
    assert.equal(events?.at(-1), `event: ${last}`);
  }
});

test('a strict caller is refused what would be dropped, by name', async (t) => {
  const calls: ChatCall[] = [];
  const { post } = await startIngress(t, answering('Hi', calls));
  const strict = { 'x-strict-params': 'true' };
  const refused = await post(RESPONSES.path, { ...RESPONSES.body, store: true }, strict);
  assert.equal(refused.status, 400);
  const { error } = (await refused.json()) as Json;
  assert.deepEqual([error.code, error.param], ['unsupported_parameter', 'store']);
  assert.equal((await post(RESPONSES.path, RESPONSES.body, strict)).status, 200);
  assert.deepEqual(
    calls.map((call) => call.strict),
    [true],
  );
});

test('errors of /v1/messages have Anthropic’s shape with our status, those of /v1/responses have OpenAI’s', async (t) => {
  const { post } = await startIngress(t, async () => {
    throw new AppError('MODEL_NOT_FOUND', { model: 'lab/small', nearest: 'demo/echo' });
  });
  const request = { 'x-request-id': 'my-request' };
  const anthropic = await post(MESSAGES.path, MESSAGES.body, request);
  assert.equal(anthropic.status, 404);
  const body = (await anthropic.json()) as Json;
  assert.deepEqual([body.type, body.error.type, body.request_id], ['error', 'not_found_error', 'my-request']);
  assert.match(body.error.message, /demo\/echo/);
  const invalid = await post(`${MESSAGES.path}/count_tokens`, { model: 'x' });
  assert.equal(invalid.status, 400);
  assert.equal(((await invalid.json()) as Json).error.type, 'invalid_request_error');
  const openai = await post(RESPONSES.path, RESPONSES.body, request);
  assert.equal(openai.status, 404);
  assert.deepEqual(Object.keys(((await openai.json()) as Json).error), ['message', 'type', 'param', 'code']);
  const stored = await post(RESPONSES.path, { ...RESPONSES.body, previous_response_id: 'resp_1' });
  assert.equal(stored.status, 400);
  assert.equal(((await stored.json()) as Json).error.param, 'previous_response_id');
});

test('tokens are estimated without asking a model', async (t) => {
  const { post } = await startIngress(t, () => assert.fail('no model is asked'));
  const count = async (text: string) => {
    const response = await post(`${MESSAGES.path}/count_tokens`, {
      model: 'lab/small',
      messages: [{ role: 'user', content: text }],
    });
    assert.equal(response.status, 200);
    return (await response.json()) as Json;
  };
  const few = await count('Hello');
  assert.equal(few.estimated, true);
  assert.ok(few.input_tokens > 0);
  assert.ok((await count('Hello '.repeat(1000))).input_tokens > 1000);
});

test('P-07: where the upstream breaks off, each dialect says so in its own words and the stream ends', async (t) => {
  const broken = () =>
    streamOf([chunk({ content: 'Hel' })], () =>
      Promise.reject(new AppError('UPSTREAM_ERROR', { reason: 'it hung up' })),
    );
  const { post, logged } = await startIngress(t, async () => ({ kind: 'stream', headers: HEADERS, chunks: broken() }));
  for (const { path, body } of DIALECTS) {
    const text = await (await post(path, { ...body, stream: true })).text();
    assert.match(text, /Hel/);
    assert.match(text, /event: error\ndata: .*it hung up.*\n\n$/);
    assert.doesNotMatch(text, /event: (?:response\.completed|message_stop)/);
  }
  assert.deepEqual(logged, []);
});

test('what nobody foresaw is logged, and the caller learns nothing of it', async (t) => {
  const chunks = () => streamOf([], () => Promise.reject(new Error('secret detail')));
  const { post, logged } = await startIngress(t, async () => ({ kind: 'stream', headers: {}, chunks: chunks() }));
  const text = await (await post(MESSAGES.path, { ...MESSAGES.body, stream: true })).text();
  assert.match(text, /event: error/);
  assert.doesNotMatch(text, /secret detail/);
  assert.equal(logged.length, 1);
});

test('a caller that goes away aborts the run, before and after the first chunk', { timeout: 10_000 }, async (t) => {
  const signals: AbortSignal[] = [];
  let streams = false;
  const { post } = await startIngress(t, async ({ signal }) => {
    signals.push(signal);
    if (!streams) await aborted(signal);
    const chunks = streamOf([chunk({ content: 'Hel' })], async () => void (await aborted(signal)));
    return { kind: 'stream', headers: {}, chunks };
  });
  for (const { path, body } of DIALECTS) {
    for (streams of [false, true]) {
      const controller = new AbortController();
      const answer = post(path, { ...body, stream: true }, {}, controller.signal);
      if (streams) {
        await (await answer).body?.getReader().read();
        controller.abort();
      } else {
        const before = signals.length;
        const refused = assert.rejects(answer);
        await until('the run begins', () => signals.length > before);
        controller.abort();
        await refused;
      }
      const signal = signals.at(-1);
      assert.ok(signal);
      await aborted(signal);
    }
  }
});

test('a finished answer aborts nothing', async (t) => {
  const calls: ChatCall[] = [];
  const { post } = await startIngress(t, answering('Hi', calls));
  for (const stream of [false, true]) await (await post(MESSAGES.path, { ...MESSAGES.body, stream })).text();
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.deepEqual(
    calls.map(({ signal }) => signal.aborted),
    [false, false],
  );
});

test('P-05: a silent stream gets a comment every 15 seconds', async (t) => {
  const clock = createFakeClock();
  const { post } = await startIngress(
    t,
    async ({ signal }) => ({
      kind: 'stream',
      headers: {},
      chunks: streamOf([chunk({ content: 'Hel' })], async () => void (await aborted(signal))),
    }),
    clock,
  );
  const controller = new AbortController();
  const response = await post(MESSAGES.path, { ...MESSAGES.body, stream: true }, {}, controller.signal);
  const reader = response.body?.getReader();
  let text = '';
  const readUntil = async (pattern: RegExp) => {
    while (!pattern.test(text)) {
      const piece = await inTime(`${pattern} after: ${text}`, reader?.read() ?? Promise.resolve(undefined));
      assert.ok(piece?.value !== undefined, `the stream ended before ${pattern}: ${text}`);
      text += Buffer.from(piece.value).toString();
    }
  };
  await readUntil(/text_delta/);
  await clock.advance(15_000);
  await readUntil(/: keep-alive\n\n$/);
  await clock.advance(15_000);
  await readUntil(/: keep-alive\n\n: keep-alive\n\n$/);
  controller.abort();
});

test('a slow reader holds up the upstream instead of filling our memory', { timeout: 20_000 }, async (t) => {
  let sent = 0;
  async function* flood() {
    for (; sent < 2000; sent += 1) yield chunk({ content: 'x'.repeat(64 * 1024) });
  }
  const { post } = await startIngress(t, async () => ({ kind: 'stream', headers: {}, chunks: flood() }));
  const controller = new AbortController();
  const response = await post(MESSAGES.path, { ...MESSAGES.body, stream: true }, {}, controller.signal);
  await response.body?.getReader().read();
  let before = -1;
  while (before !== sent) {
    before = sent;
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  assert.ok(sent < 500, `${sent} chunks of 64 kB were taken for a reader that does not read`);
  controller.abort();
});
