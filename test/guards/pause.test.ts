import assert from 'node:assert/strict';
import { request } from 'node:http';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { inTime } from '../kit/in-time.ts';
import { isAlive } from '../kit/processes.ts';
import { BRIDGE_TOKEN, bearer, type Headers, type Json, MASTER_KEY, startPeople } from '../kit/start-people.ts';
import { timeLimit } from '../kit/time.ts';
import { until } from '../kit/until.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
const world = await startPeople(
  { after },
  { bridge: BRIDGE_TOKEN, completions: MASTER_KEY },
  {
    plans: { maker: { bridge: true, keys: 100, jobs: 1000 } },
    agents: {
      builtin: { model: 'demo/echo' },
      custom: [{ id: 'stubborn', command: process.execPath, args: [AGENT, '--stubborn'] }],
    },
  },
);
const { url, send, rpc, asRoot, newPerson, newToken, pause, openSocket } = world;
const BUILTIN = { explicitProviderId: 'builtin' };
const SLOW = { ...BUILTIN, explicitModel: 'demo/echo?delay=200' };
const STUBBORN = { explicitProviderId: 'stubborn' };
const LONG_TEXT = Array.from({ length: 1000 }, (_, index) => `word${index}`).join(' ');

/** Reads a stream to its end; `began` resolves with its first bytes. */
function readStream(response: Response): { readonly began: Promise<unknown>; readonly ended: Promise<string> } {
  const began = Promise.withResolvers<void>();
  const ended = (async () => {
    let text = '';
    for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += chunk;
      if (text.includes('word1')) began.resolve();
    }
    began.resolve();
    return text;
  })();
  return { began: began.promise, ended };
}

const post = (path: string, headers: Headers, body: object) =>
  fetch(`${url}${path}`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });

/** By kind of work: begins it, resolves when it is under way, and tells how it ended. */
const OPERATIONS: Readonly<
  Record<string, { begin(headers: Headers): Promise<() => Promise<unknown>>; readonly ends: unknown }>
> = {
  'a stream of a model': {
    async begin(headers) {
      const body = { model: 'demo/echo?delay=200', stream: true, messages: [{ role: 'user', content: LONG_TEXT }] };
      const { began, ended } = readStream(await post('/v1/chat/completions', headers, body));
      await began;
      return async () => /"code":"(\w+)"/.exec(await ended)?.[1];
    },
    ends: 'invalid_api_key',
  },
  'a turn over HTTP, and a second client that follows it': {
    async begin(headers) {
      const params = { sessionId: 'over-http', taskPrompt: LONG_TEXT, routing: SLOW };
      const call = { jsonrpc: '2.0', id: 'turn-1', method: 'session.start', params };
      const events = { ...headers, accept: 'text/event-stream', 'idempotency-key': 'once' };
      const first = readStream(await post('/acp/rpc', events, call));
      await first.began;
      const second = readStream(await post('/acp/rpc', { ...events, 'last-event-id': '0' }, call));
      await second.began;
      return async () =>
        (await Promise.all([first.ended, second.ended])).map((text) => /"status":"(cancelled)"/.exec(text)?.[1]);
    },
    ends: ['cancelled', 'cancelled'],
  },
  'a turn over a socket': {
    async begin(headers) {
      const socket = await openSocket(headers);
      socket.call('session.start', { sessionId: 'over-socket', taskPrompt: LONG_TEXT, routing: SLOW });
      await until('the turn to write', () => socket.messages.some((text) => text.includes('word1')));
      return socket.closed;
    },
    ends: 1008,
  },
  'a live socket that follows': {
    async begin(headers) {
      const socket = await openSocket(headers, '/api/bridge/live');
      socket.call('watch', { topics: ['sessions'] });
      socket.call('follow', { sessionId: 'over-http', afterSeq: 0 });
      await until('an update', () => socket.messages.some((text) => text.includes('"update"')));
      return socket.closed;
    },
    ends: 1008,
  },
  'jobs that run and wait': {
    async begin(headers) {
      const submit = (sessionId: string) =>
        rpc('app.jobs.submit', headers, { sessionId, taskPrompt: LONG_TEXT, routing: SLOW });
      const jobs: string[] = [];
      for (let one = 0; one < 6; one += 1) jobs.push((await submit(`job-${one}`)).body.result.jobId);
      const states = () =>
        Promise.all(
          jobs.map(async (jobId) => {
            const { status, errorCode } = (await rpc('app.jobs.get', bearer(BRIDGE_TOKEN), { jobId })).body.result;
            return `${status} ${errorCode}`;
          }),
        );
      await until('some to run and some to wait', async () => {
        const found = await states();
        return found.includes('running null') && found.includes('pending null');
      });
      return () =>
        until('the jobs to end', async () => {
          const found = await states();
          return found.every((state) => state.startsWith('failed')) && [...new Set(found)];
        });
    },
    ends: ['failed JOB_CANCELLED'],
  },
  'a whole response of a model': {
    async begin(headers) {
      const body = { model: 'demo/echo?delay=200', messages: [{ role: 'user', content: LONG_TEXT }] };
      const sent = post('/v1/chat/completions', headers, body);
      await until('the call to be under way', async () =>
        /http_requests_in_flight[^\n]* [1-9]/.test(await (await fetch(`${url}/metrics`, { headers: asRoot })).text()),
      );
      return async () => {
        const response = await sent;
        return [response.status, ((await response.json()) as Json).error.code];
      };
    },
    ends: [401, 'invalid_api_key'],
  },
  'a program that takes no notice of being cancelled': {
    async begin(headers) {
      const socket = await openSocket(headers);
      socket.call('session.start', { sessionId: 'program', taskPrompt: 'child', routing: STUBBORN });
      const child = await until('the program to tell its child', () =>
        socket.messages.map((text) => Number(/"delta":"(\d+)"/.exec(text)?.[1])).find((pid) => pid > 0),
      );
      return () => until('the child to be gone', () => !isAlive(child));
    },
    ends: true,
  },
  'a turn that waits for an answer': {
    async begin(headers) {
      const params = { sessionId: 'asking', taskPrompt: 'ask', routing: { ...STUBBORN, permissions: 'ask' } };
      const turn = rpc('session.start', headers, params);
      const open = async () =>
        (await send('GET', '/api/bridge/permissions', asRoot)).body.permissions as readonly unknown[];
      await until('the question', async () => (await open()).length > 0);
      return async () => [(await turn).body.result.status, (await open()).length];
    },
    ends: ['cancelled', 0],
  },
  'a run of several agents': {
    async begin(headers) {
      const steps = [{ providerId: 'builtin', model: 'demo/echo?delay=200' }, { providerId: 'builtin' }];
      const routing = { orchestrationMode: 'sequence', steps };
      const socket = await openSocket(headers);
      socket.call('session.start', { sessionId: 'run', taskPrompt: LONG_TEXT, multiAgent: true, routing });
      await until('the first step to write', () => socket.messages.some((text) => text.includes('word1')));
      return socket.closed;
    },
    ends: 1008,
  },
  'a request whose body is still on its way': {
    async begin(headers) {
      const params = { sessionId: 'slow-body', taskPrompt: 'Hello', routing: BUILTIN };
      const body = JSON.stringify({ jsonrpc: '2.0', id: '1', method: 'session.start', params });
      const sent = Promise.withResolvers<Json>();
      const upload = request(`${url}/acp/rpc`, {
        method: 'POST',
        headers: {
          ...headers,
          'content-type': 'application/json',
          'content-length': body.length,
          expect: '100-continue',
        },
      });
      upload.on('response', async (response) => {
        let text = '';
        for await (const chunk of response) text += String(chunk);
        sent.resolve(JSON.parse(text));
      });
      upload.on('error', sent.reject);
      // The head was read, and the guard has let it in.
      const isLetIn = new Promise((resolve) => upload.on('continue', resolve));
      upload.flushHeaders();
      upload.write(body.slice(0, 20));
      await isLetIn;
      return async () => {
        upload.end(body.slice(20));
        return (await sent.promise).error?.data.code;
      };
    },
    ends: 'UNAUTHORIZED',
  },
};

test('a pause ends every kind of work that is under way, and nothing of it begins again', async () => {
  const person = await newPerson('user', 'maker');
  const headers = bearer((await newToken(person, ['bridge', 'completions'])).token);
  const underWay: [string, () => Promise<unknown>][] = [];
  for (const [kind, { begin }] of Object.entries(OPERATIONS)) underWay.push([kind, await begin(headers)]);
  const pausedAt = performance.now();
  assert.equal((await pause(person.id)).status, 200);
  for (const [kind, ended] of underWay) {
    assert.deepEqual(await inTime(`the end of ${kind}`, ended()), OPERATIONS[kind]?.ends, kind);
  }
  for (const [method, path] of [
    ['GET', '/v1/models'],
    ['GET', '/api/bridge/sessions'],
    ['GET', '/usage'],
  ] as const) {
    assert.equal((await send(method, path, headers)).status, 401, path);
  }
  const pausedFor = () => performance.now() - pausedAt;
  await until('nothing to run or to wait', async () => {
    const { counts } = (await send('GET', `/api/bridge/sessions?owner=user:${person.id}`, asRoot)).body;
    return counts.running + counts.waiting === 0;
  });
  assert.ok(pausedFor() < timeLimit(1000), `${pausedFor()} ms`);
});
