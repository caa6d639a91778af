import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { after, test } from 'node:test';
import { inTime } from '../kit/in-time.ts';
import { isAlive } from '../kit/processes.ts';
import { BRIDGE_TOKEN, bearer, type Headers, type Json, MASTER_KEY, startPeople } from '../kit/start-people.ts';
import { timeLimit } from '../kit/time.ts';
import { until } from '../kit/until.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');

/** A model API that keeps files, and sends the content of one without an end. */
const lab = createServer((call, response) => {
  call.resume();
  call.on('end', () => {
    if (!call.url?.endsWith('/content')) {
      response.setHeader('content-type', 'application/json').end('{"id":"file-1","object":"file","bytes":3}');
      return;
    }
    const timer = setInterval(() => response.write('a word1 of the file\n'), 50);
    response.on('close', () => clearInterval(timer));
  });
});
lab.listen(0, '127.0.0.1');
await once(lab, 'listening');
after(() => lab.closeAllConnections());
after(() => lab.close());
const labUrl = `http://127.0.0.1:${(lab.address() as AddressInfo).port}/v1`;

/** An npm that never ends by itself. */
const programs = await mkdtemp(join(tmpdir(), 'trestle-npm-'));
after(() => rm(programs, { recursive: true, force: true }));
const NPM_STARTED = join(programs, 'started');
await writeFile(join(programs, 'npm'), `#!/bin/sh\necho $$ > ${NPM_STARTED}\nexec /bin/sleep 100\n`);
await chmod(join(programs, 'npm'), 0o755);

const world = await startPeople(
  { after },
  { bridge: BRIDGE_TOKEN, completions: MASTER_KEY },
  {
    completions: { apis: { lab: { dialect: 'openai', base_url: labUrl, api_key: 'lab-key-5f2c8a91d4' } } },
    plans: { maker: { bridge: true, models: ['*'], budget: { usd: 1, period: 'month' }, keys: 100, jobs: 1000 } },
    agents: {
      builtin: { model: 'demo/echo' },
      custom: [{ id: 'stubborn', command: process.execPath, args: [AGENT, '--stubborn'] }],
    },
  },
  { PATH: [programs, process.env.PATH].join(delimiter) },
);
const { url, send, rpc, asRoot, newPerson, newToken, pause, openSocket } = world;
const BUILTIN = { explicitProviderId: 'builtin' };
const SLOW = { ...BUILTIN, explicitModel: 'demo/echo?delay=200' };
const STUBBORN = { explicitProviderId: 'stubborn' };
const TURNS = 8;
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

/** Sends the head and the first bytes of a body; resolves when the guard has let it in. The rest is sent when the end is awaited. */
async function beginUpload(path: string, headers: Headers, body: string): Promise<() => Promise<Json>> {
  const sent = Promise.withResolvers<Json>();
  const upload = request(`${url}${path}`, {
    method: 'POST',
    headers: { ...headers, 'content-length': body.length, expect: '100-continue' },
  });
  upload.on('response', async (response) => {
    let text = '';
    for await (const chunk of response) text += String(chunk);
    sent.resolve({ status: response.statusCode, ...JSON.parse(text) });
  });
  upload.on('error', sent.reject);
  const isLetIn = new Promise((resolve) => upload.on('continue', resolve));
  upload.flushHeaders();
  upload.write(body.slice(0, 20));
  await isLetIn;
  return () => {
    upload.end(body.slice(20));
    return sent.promise;
  };
}

interface Credentials {
  readonly headers: Headers;
  readonly cookie: string;
}

/** By kind of work: begins it, resolves when it is under way, and tells how it ended. */
const OPERATIONS: Readonly<
  Record<
    string,
    { begin(headers: Headers, credentials: Credentials): Promise<() => Promise<unknown>>; readonly ends: unknown }
  >
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
  'a job of a schedule': {
    async begin(headers) {
      const task = { sessionId: 'scheduled', taskPrompt: LONG_TEXT, routing: SLOW };
      const made = await send('POST', '/api/bridge/schedules', headers, { name: 'nightly', every: '1h', task });
      assert.equal(made.status, 201, JSON.stringify(made.body));
      const { scheduleId } = made.body.schedule;
      const { jobId } = (await send('POST', `/api/bridge/schedules/${scheduleId}/run`, headers, {})).body;
      const state = async () => (await rpc('app.jobs.get', bearer(BRIDGE_TOKEN), { jobId })).body.result;
      await until('its job to run or to wait', async () => ['running', 'pending'].includes((await state()).status));
      return () =>
        until('its job to end', async () => {
          const { status, errorCode } = await state();
          return status === 'failed' && errorCode;
        });
    },
    ends: 'JOB_CANCELLED',
  },
  'a page that follows with the cookie of its login': {
    async begin(_headers, { cookie }) {
      const socket = await openSocket({ cookie, origin: url }, '/api/bridge/live');
      socket.call('watch', { topics: ['sessions'] });
      await until('its first message', () => socket.messages.length > 0);
      return async () => {
        const code = await socket.closed();
        return [code, (await send('GET', '/api/bridge/sessions', { cookie, 'sec-fetch-site': 'same-origin' })).status];
      };
    },
    ends: [1008, 401],
  },
  'a socket with a token for five minutes': {
    async begin(_headers, { cookie }) {
      const sameOrigin = { cookie, 'sec-fetch-site': 'same-origin' };
      const { status, body } = await send('POST', '/api/auth/token/jwt', sameOrigin, {});
      assert.equal(status, 200, JSON.stringify(body));
      return (await openSocket(bearer(body.access_token))).closed;
    },
    ends: 1008,
  },
  'a download from a model API': {
    async begin(headers) {
      const form = new FormData();
      form.append('purpose', 'assistants');
      form.append('file', new Blob(['abc']), 'notes.txt');
      const there = { ...headers, 'x-model-api': 'lab' };
      const stored = await fetch(`${url}/v1/files`, { method: 'POST', headers: there, body: form });
      assert.equal(stored.status, 200, await stored.clone().text());
      const { began, ended } = readStream(await fetch(`${url}/v1/files/file-1/content`, { headers }));
      const outcome = ended.then(
        () => 'whole',
        () => 'cut off',
      );
      await began;
      return () => outcome;
    },
    ends: 'cut off',
  },
  'a file for a model API that is still on its way': {
    async begin(headers) {
      const type = { 'content-type': 'multipart/form-data; boundary=x' };
      const part = (name: string, value: string) =>
        `--x\r\nContent-Disposition: form-data; ${name}\r\n\r\n${value}\r\n`;
      const body = `${part('name="purpose"', 'assistants')}${part('name="file"; filename="a.txt"', 'abc')}--x--\r\n`;
      const finish = await beginUpload('/v1/files', { ...headers, ...type, 'x-model-api': 'lab' }, body);
      return async () => {
        const { status, error } = await finish();
        return [status, error?.code];
      };
    },
    ends: [401, 'invalid_api_key'],
  },
  'a file for a prompt that is still on its way': {
    async begin(headers) {
      const type = { 'content-type': 'text/plain', 'x-file-name': 'notes.txt' };
      const finish = await beginUpload('/api/bridge/attachments', { ...headers, ...type }, 'a'.repeat(100));
      return async () => {
        const { status, error } = await finish();
        return [status, error];
      };
    },
    ends: [401, 'unauthorized'],
  },
  'a request whose body is still on its way': {
    async begin(headers) {
      const params = { sessionId: 'slow-body', taskPrompt: 'Hello', routing: BUILTIN };
      const body = JSON.stringify({ jsonrpc: '2.0', id: '1', method: 'session.start', params });
      const finish = await beginUpload('/acp/rpc', { ...headers, 'content-type': 'application/json' }, body);
      return async () => (await finish()).error?.data.code;
    },
    ends: 'UNAUTHORIZED',
  },
};

test('a pause ends every kind of work that is under way, and nothing of it begins again', async () => {
  const person = await newPerson('user', 'maker');
  const headers = bearer((await newToken(person, ['bridge', 'completions'])).token);
  const credentials = { headers, cookie: person.cookie };
  const underWay: [string, () => Promise<unknown>][] = [];
  for (const [kind, { begin }] of Object.entries(OPERATIONS)) underWay.push([kind, await begin(headers, credentials)]);
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

test('a pause of an administrator stops what is being installed, and an export to someone who reads slowly', async () => {
  const admin = await newPerson('admin');
  const headers = bearer(admin.token);
  const install = send('POST', '/api/bridge/agents/claude/install', headers);
  const npm = Number(await until('npm to run', () => readFile(NPM_STARTED, 'utf8').catch(() => '')));
  // As much text as no buffer between the two takes.
  const text = 'w'.repeat(1_000_000);
  for (let turn = 0; turn < TURNS; turn += 1) {
    const params = { sessionId: 'long', taskPrompt: text, routing: BUILTIN };
    const { body } = await rpc(turn === 0 ? 'session.start' : 'session.message', headers, params);
    assert.equal(body.result?.status, 'completed', JSON.stringify(body).slice(0, 300));
  }
  const reader = connect(Number(new URL(url).port), '127.0.0.1');
  after(() => reader.destroy());
  const path = '/api/bridge/sessions/long/export?form=json';
  reader.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${headers.authorization}\r\n\r\n`);
  await once(reader, 'readable');
  const pausedAt = performance.now();
  assert.equal((await pause(admin.id)).status, 200);
  const { status, body } = await inTime('the end of the installation', install);
  assert.deepEqual([status, body.error], [401, 'unauthorized']);
  assert.equal(isAlive(npm), false);
  const pausedFor = performance.now() - pausedAt;
  assert.ok(pausedFor < timeLimit(1000), `${pausedFor} ms`);
  let received = '';
  reader.on('data', (chunk) => {
    received += chunk;
  });
  await inTime('the end of the export', once(reader, 'close'));
  assert.match(received, /^HTTP\/1\.1 200 /);
  assert.doesNotMatch(received, /\r\n0\r\n\r\n$/, 'it is not complete');
});
