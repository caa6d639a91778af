import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, test } from 'node:test';
import fc from 'fast-check';
import { inTime } from '../kit/in-time.ts';
import { BRIDGE_TOKEN, bearer, type Headers, type Json, MASTER_KEY, startPeople } from '../kit/start-people.ts';
import { until } from '../kit/until.ts';

const world = await startPeople(
  { after },
  { bridge: BRIDGE_TOKEN, completions: MASTER_KEY },
  { plans: { maker: { bridge: true, keys: 100, jobs: 1000 } } },
);
const { url, send, rpc, asRoot, newPerson, newToken, pause, openSocket } = world;
const BUILTIN = { explicitProviderId: 'builtin' };
const SLOW = { ...BUILTIN, explicitModel: 'demo/echo?delay=200' };
const LONG_TEXT = Array.from({ length: 1000 }, (_, index) => `word${index}`).join(' ');

/** Someone who works, what must stay theirs, and what their sessions are now. */
interface Worker {
  readonly name: string;
  readonly owner: string;
  readonly headers: Headers;
  readonly login: Headers;
  /** Stands in everything that they write. */
  readonly secret: string;
  readonly open: Set<string>;
  readonly jobs: string[];
  readonly keys: string[];
  readonly calls: string[];
  readonly socket: Awaited<ReturnType<typeof openSocket>>;
}

async function newWorker(secret: string): Promise<Worker> {
  const person = await newPerson('user', 'maker');
  const headers = bearer((await newToken(person, ['bridge', 'completions'])).token);
  const socket = await openSocket(headers, '/api/bridge/live');
  socket.call('watch', { topics: ['sessions', 'permissions'] });
  for (const sessionId of NAMES) socket.call('follow', { sessionId });
  return {
    ...{ name: person.name, owner: `user:${person.id}`, headers, login: bearer(person.token), secret, socket },
    ...{ open: new Set(), jobs: [], keys: [], calls: [] },
  };
}

/** Both use the same names. */
const NAMES = ['notes', 'plan'] as const;
type Name = (typeof NAMES)[number];

/** What one of them does, what the other may have had to do with it. Returns all that was answered. */
const ACTIONS: Readonly<Record<string, (me: Worker, other: Worker, name: Name) => Promise<unknown>>> = {
  async start(me, _other, sessionId) {
    const params = { sessionId, threadId: 'thread', taskPrompt: `${me.secret} starts`, routing: BUILTIN };
    const { body } = await rpc('session.start', me.headers, params);
    assert.equal(body.result.output, `${me.secret} starts`, JSON.stringify(body));
    me.open.add(sessionId);
    return body;
  },
  async message(me, _other, sessionId) {
    const { body } = await rpc('session.message', me.headers, { sessionId, taskPrompt: `${me.secret} goes on` });
    assert.equal(
      body.result?.output,
      me.open.has(sessionId) ? `${me.secret} goes on` : undefined,
      JSON.stringify(body),
    );
    return body;
  },
  cancel: (me, _other, sessionId) => rpc('session.cancel', me.headers, { sessionId }),
  'cancel the thread': (me) => rpc('session.cancel', me.headers, { threadId: 'thread' }),
  async close(me, _other, sessionId) {
    me.open.delete(sessionId);
    return rpc('session.close', me.headers, { sessionId });
  },
  async 'submit a job'(me) {
    const { body } = await rpc('app.jobs.submit', me.headers, { taskPrompt: `${me.secret} later`, routing: BUILTIN });
    me.jobs.push(body.result.jobId);
    return body;
  },
  'list jobs': (me) => rpc('app.jobs.list', me.headers),
  'count jobs': (me) => rpc('app.jobs.stats', me.headers),
  'look at a job': (me, other) => rpc('app.jobs.get', me.headers, { jobId: other.jobs.at(-1) ?? 'job-none' }),
  async 'list sessions'(me) {
    const { body } = await send('GET', '/api/bridge/sessions', me.headers);
    const found = (body.sessions as { sessionId: string }[]).map((one) => one.sessionId).filter((id) => isName(id));
    assert.deepEqual(found.sort(), [...me.open].sort(), 'each has the sessions that they started and did not close');
    return body;
  },
  'list sessions of the other': (me, other) => send('GET', `/api/bridge/sessions?owner=${other.owner}`, me.headers),
  'look at a session of the other': (me, other, name) =>
    send('GET', `/api/bridge/sessions/${name}?owner=${other.owner}`, me.headers),
  'rename a session of the other': async (me, other, name) => {
    const changed = await send('PATCH', `/api/bridge/sessions/${name}?owner=${other.owner}`, me.headers, {
      pinned: true,
    });
    assert.equal(changed.status, 404);
  },
  updates: (me, _other, name) => send('GET', `/api/bridge/sessions/${name}/updates`, me.headers),
  turns: (me, _other, name) => send('GET', `/api/bridge/sessions/${name}/turns`, me.headers),
  'read a file': (me, other, name) =>
    send('GET', `/api/bridge/sessions/${name}/files?path=.&owner=${other.owner}`, me.headers),
  'follow the other': async (me, other, sessionId) => me.socket.call('follow', { sessionId, owner: other.owner }),
  'watch the other': async (me, other) => {
    me.socket.call('watch', { topics: ['sessions'], owner: other.owner });
    me.socket.call('watch', { topics: ['sessions', 'permissions'] });
  },
  audit: (me) => send('GET', '/api/bridge/audit', me.headers),
  'audit of the other': (me, other) => send('GET', `/api/bridge/audit?owner=${other.owner}`, me.headers),
  permissions: (me) => send('GET', '/api/bridge/permissions', me.headers),
  rules: (me) => send('GET', '/api/bridge/permission-rules', me.headers),
  async 'create a key'(me) {
    const { body } = await send('POST', '/api/auth/keys', me.login, { name: `${me.secret} key` });
    me.keys.push(body.id);
    return body;
  },
  'list keys': async (me) => [await send('GET', '/keys', me.login), await send('GET', '/api/auth/keys', me.login)],
  async 'remove a key of the other'(me, other) {
    const id = other.keys.at(-1) ?? 'key_none';
    assert.equal((await send('DELETE', `/keys/${id}`, me.login)).status, 404);
    assert.equal((await send('DELETE', `/api/auth/keys/${id}`, me.login)).status, 404);
  },
  async chat(me) {
    const body = { model: 'demo/echo', messages: [{ role: 'user', content: `${me.secret} asks` }] };
    return (await send('POST', '/v1/chat/completions', me.headers, body)).body;
  },
  usage: (me) => send('GET', '/usage?group_by=owner', me.headers),
  async 'list calls'(me) {
    const { body } = await send('GET', '/usage/calls', me.headers);
    me.calls.push(...(body.data as { id: string }[]).map(({ id }) => id));
    return body;
  },
  async 'look at a call of the other'(me, other) {
    const id = other.calls.at(-1) ?? 'usg_none';
    assert.equal((await send('GET', `/usage/calls/${id}`, me.headers)).status, 404);
  },
};

function isName(text: string): text is Name {
  return (NAMES as readonly string[]).includes(text);
}

/** What a response says of its caller may name the other only where the caller did. */
function check(me: Worker, other: Worker, action: string, answered: unknown): void {
  const text = JSON.stringify(answered, (key, value: unknown) => (key === 'response' ? undefined : value)) ?? '';
  assert.ok(!text.includes(other.secret), `${me.name} saw something of ${other.name} by "${action}": ${text}`);
  const namesOther = action.includes('other') || action === 'read a file';
  assert.ok(
    namesOther || !text.includes(other.owner),
    `${me.name} saw that ${other.name} works by "${action}": ${text}`,
  );
}

test('two people who do anything at the same time never see anything of each other', async () => {
  const step = fc.record({
    action: fc.constantFrom(...Object.keys(ACTIONS)),
    name: fc.constantFrom(...NAMES),
  });
  const steps = fc.array(step, { minLength: 8, maxLength: 25 });
  const [ann, ben] = [await newWorker('amber-owl'), await newWorker('birch-fox')];
  // Something of everything is there before, so that each could see something.
  for (const action of ['start', 'submit a job', 'create a key', 'chat', 'list calls']) {
    for (const [me, other] of [
      [ann, ben],
      [ben, ann],
    ] as const)
      await ACTIONS[action]?.(me, other, 'notes');
  }
  async function live(me: Worker, other: Worker, todo: readonly { action: string; name: Name }[]): Promise<void> {
    for (const { action, name } of todo) check(me, other, action, await ACTIONS[action]?.(me, other, name));
  }
  const property = fc.asyncProperty(steps, steps, async (forAnn, forBen) => {
    await Promise.all([live(ann, ben, forAnn), live(ben, ann, forBen)]);
    for (const [me, other] of [
      [ann, ben],
      [ben, ann],
    ] as const) {
      await ACTIONS['list sessions']?.(me, other, 'notes');
      check(me, other, 'live updates', me.socket.messages.join('\n'));
    }
  });
  await fc.assert(property, { numRuns: 12, endOnFailure: true });
  for (const { socket, secret } of [ann, ben])
    assert.ok(socket.messages.join('').includes(secret), 'updates came at all');
  const all = JSON.stringify([
    (await send('GET', '/api/bridge/sessions?limit=200', asRoot)).body,
    (await rpc('app.jobs.list', asRoot)).body,
  ]);
  for (const { owner, jobs } of [ann, ben]) {
    assert.ok(all.includes(owner), 'an administrator sees the sessions of both');
    assert.ok(all.includes(jobs[0] ?? '-'), 'and their jobs');
  }
});

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
  const left = (await send('GET', `/api/bridge/sessions?owner=user:${person.id}`, asRoot)).body.counts;
  assert.equal(left.running + left.waiting, 0);
});
