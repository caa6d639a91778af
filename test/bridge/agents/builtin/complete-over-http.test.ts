import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { CompletionChunk, CompletionRequest } from '../../../../src/bridge/agents/builtin/complete-chat.ts';
import { createCompleteOverHttp } from '../../../../src/bridge/agents/builtin/complete-over-http.ts';
import { systemClock } from '../../../../src/platform/clock/clock.ts';
import type { AppError } from '../../../../src/platform/errors/app-error.ts';
import { createFakeRandomness } from '../../../kit/fake-randomness.ts';
import { freePort } from '../../../kit/free-port.ts';
import { type SeenRequest, sendEvents, startScriptedHttp } from '../../../kit/scripted-http.ts';

const KEY = 'sk-test-0123456789';
const request: CompletionRequest = {
  model: 'small',
  messages: [{ role: 'user', content: 'hi' }],
  tools: [],
  stream: true,
  stream_options: { include_usage: true },
};
const piece = (delta: unknown, finish: string | null = null) => ({
  choices: [{ index: 0, delta, finish_reason: finish }],
});
const fast = { pauseMs: 1, longestPauseMs: 20, idleMs: 300, firstByteMs: 300 };

function completeAt(baseUrl: string, limits: object = {}, apiKey = KEY) {
  const complete = createCompleteOverHttp({
    baseUrl,
    apiKey,
    clock: systemClock,
    randomness: createFakeRandomness(),
    limits: { ...fast, ...limits },
  });
  return async (signal = new AbortController().signal) => {
    const chunks: CompletionChunk[] = [];
    for await (const chunk of complete(request, signal, { owner: '' })) chunks.push(chunk);
    return chunks;
  };
}

async function completeWith(
  context: TestContext,
  serve: (request: SeenRequest, index: number) => void,
  limits: object = {},
) {
  const server = await startScriptedHttp(context, serve);
  return { server, ask: completeAt(`${server.url}/v1`, limits) };
}

const reasonOf = async (asked: Promise<unknown>): Promise<string> => {
  const error: AppError = await asked.then(
    () => assert.fail('it was answered'),
    (failure) => failure,
  );
  assert.equal(error.code, 'MODEL_FAILED');
  return String(error.details.reason);
};

test('the request is OpenAI’s, with the key, and the answer comes in its pieces', async (context) => {
  const { server, ask } = await completeWith(context, ({ response }) => {
    const call = { index: 0, id: 'a', type: 'function', function: { name: 'list_files', arguments: { path: '.' } } };
    sendEvents(response, [
      piece({ role: 'assistant', content: '' }),
      piece({ reasoning: 'hm' }),
      piece({ content: 'Hi' }),
      piece({ tool_calls: [call] }, 'tool_calls'),
      { choices: [], usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 } },
      '[DONE]',
    ]);
    response.end();
  });
  const chunks = await ask();
  const [seen] = server.requests;
  assert.equal(seen?.path, '/v1/chat/completions');
  assert.equal(seen?.headers.authorization, `Bearer ${KEY}`);
  assert.deepEqual(JSON.parse(seen?.body ?? ''), request);
  assert.deepEqual(
    chunks.slice(1).map((chunk) => chunk.choices[0]?.delta),
    [
      { reasoning_content: 'hm', tool_calls: [] },
      { content: 'Hi', tool_calls: [] },
      { tool_calls: [{ index: 0, id: 'a', function: { name: 'list_files', arguments: '{"path":"."}' } }] },
      undefined,
    ],
  );
  assert.deepEqual(chunks.at(-1)?.usage, { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 });
});

test('pieces of the wrong type do no harm', async (context) => {
  const { ask } = await completeWith(context, ({ response }) => {
    const odd = [
      null,
      7,
      [],
      {},
      { choices: 1 },
      { choices: [null] },
      piece({ content: 5, tool_calls: [null, { index: 'x' }] }),
    ];
    sendEvents(response, [...odd, { choices: [], usage: { prompt_tokens: -1, completion_tokens: 'x' } }, '[DONE]']);
    response.end();
  });
  for (const { choices, usage } of await ask()) {
    assert.equal(usage, undefined);
    for (const { delta } of choices) assert.equal(delta.content, undefined);
  }
});

test('without a key none is sent', async (context) => {
  const server = await startScriptedHttp(context, ({ response }) => {
    sendEvents(response, [piece({ content: 'x' }, 'stop')]);
    response.end();
  });
  await completeAt(`${server.url}/v1/`, {}, '')();
  assert.equal(server.requests[0]?.path, '/v1/chat/completions');
  assert.equal(server.requests[0]?.headers.authorization, undefined);
});

test('a passing failure before the answer is tried again; a lasting one is reported, without the key', async (context) => {
  const passing = await completeWith(context, ({ response }, index) => {
    if (index === 0) response.writeHead(503).end();
    else if (index === 1) response.writeHead(429, { 'retry-after': '0' }).end('{}');
    else {
      sendEvents(response, [piece({ content: 'x' }, 'stop'), '[DONE]']);
      response.end();
    }
  });
  await passing.ask();
  assert.equal(passing.server.requests.length, 3);
  const lasting = await completeWith(context, ({ response }) => {
    response.writeHead(401, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: { message: `Incorrect API key provided:\n ${KEY}` } }));
  });
  const reason = await reasonOf(lasting.ask());
  assert.match(reason, /^it answered with status 401: Incorrect API key provided: /);
  assert.equal(reason.includes(KEY), false);
  assert.equal(lasting.server.requests.length, 1);
});

test('a server that asks for a long pause is not waited for', async (context) => {
  const { server, ask } = await completeWith(
    context,
    ({ response }) => void response.writeHead(429, { 'retry-after': '60' }).end(),
  );
  assert.equal(await reasonOf(ask()), 'it answered with status 429');
  assert.equal(server.requests.length, 1);
});

test('an answer that breaks off, stalls, errs or is no stream is a failure, never a short answer', async (context) => {
  const cases: Record<string, (request: SeenRequest) => void> = {
    'the connection ended before the answer was complete': ({ response }) => {
      sendEvents(response, [piece({ content: 'half' })]);
      response.end();
    },
    'the connection was cut': ({ response }) => {
      sendEvents(response, [piece({ content: 'half' })]);
      setTimeout(() => response.destroy(), 20);
    },
    'it fell silent in the middle of the answer': ({ response }) => sendEvents(response, [piece({ content: 'half' })]),
    'overloaded, sorry': ({ response }) => {
      sendEvents(response, [piece({ content: 'half' }), { error: { message: 'overloaded, sorry' } }]);
      response.end();
    },
    'it sent an event that is not JSON': ({ response }) => {
      sendEvents(response, ['{"choices":']);
      response.end();
    },
    'it answered with text/html instead of a stream': ({ response }) => {
      response.writeHead(200, { 'content-type': 'text/html' }).end('<p>login</p>');
    },
    'it answered with status 302': ({ response }) => {
      response.writeHead(302, { location: 'http://127.0.0.1:1/' }).end();
    },
  };
  for (const [reason, serve] of Object.entries(cases)) {
    const { ask } = await completeWith(context, serve, { attempts: 1 });
    assert.equal(await reasonOf(ask()), reason);
  }
});

test('a server that does not answer, or is not there, is a failure in time', async (context) => {
  const silent = await completeWith(context, () => undefined, { attempts: 1 });
  assert.equal(await reasonOf(silent.ask()), 'it did not answer in time');
  assert.equal(await reasonOf(completeAt(`http://127.0.0.1:${await freePort()}`)()), 'nothing listens at its address');
  const endless = await completeWith(
    context,
    ({ response }) => {
      sendEvents(response, []);
      const timer = setInterval(() => sendEvents(response, [piece({ content: '.' })]), 10);
      response.on('close', () => clearInterval(timer));
    },
    { totalMs: 200 },
  );
  assert.equal(await reasonOf(endless.ask()), 'the answer took longer than 200 ms');
});

test('an event that never ends is not kept in memory', async (context) => {
  const { server, ask } = await completeWith(context, ({ response }) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('data: ');
    const timer = setInterval(() => response.write('x'.repeat(1024 * 1024)), 1);
    response.on('close', () => clearInterval(timer));
  });
  assert.equal(await reasonOf(ask()), 'it sent too large an event');
  assert.ok(server.requests.length === 1);
});

test('who goes away early, or aborts, lets go of the connection', async (context) => {
  const { server, ask } = await completeWith(
    context,
    ({ response }) => sendEvents(response, [piece({ content: 'half' })]),
    { idleMs: 60_000 },
  );
  const aborter = new AbortController();
  const asked = ask(aborter.signal);
  await server.arrived(1);
  const closed = new Promise((resolve) => server.requests[0]?.response.once('close', resolve));
  aborter.abort();
  await assert.rejects(asked);
  await closed;
  const complete = createCompleteOverHttp({
    baseUrl: server.url,
    apiKey: '',
    clock: systemClock,
    randomness: createFakeRandomness(),
  });
  for await (const _ of complete(request, new AbortController().signal, { owner: '' })) break;
  const second = server.requests[1]?.response;
  if (second?.destroyed === false) await new Promise((resolve) => second.once('close', resolve));
});
