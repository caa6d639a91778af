import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import fc from '../kit/properties.ts';
import { BRIDGE_TOKEN, bearer, type Headers, type Json, MASTER_KEY, startPeople } from '../kit/start-people.ts';

const world = await startPeople(
  { after },
  { bridge: BRIDGE_TOKEN, completions: MASTER_KEY },
  { plans: { maker: { bridge: true, keys: 100, jobs: 1000 } } },
);
const { send, rpc, asRoot, newPerson, newTeam, newToken, openSocket } = world;
const BUILTIN = { explicitProviderId: 'builtin' };

/** Someone who works, what must stay theirs, and what their sessions are now. */
interface Worker {
  readonly id: string;
  readonly name: string;
  readonly owner: string;
  readonly headers: Headers;
  readonly login: Headers;
  /** Stands in everything that they write. */
  readonly secret: string;
  isMember: boolean;
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
    ...{
      id: person.id,
      name: person.name,
      owner: `user:${person.id}`,
      headers,
      login: bearer(person.token),
      secret,
      socket,
    },
    ...{ isMember: false, open: new Set(), jobs: [], keys: [], calls: [] },
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
    // Without a session of that name of their own, members of a team mean that of the team.
    const isOwn = me.open.has(sessionId);
    const taskPrompt = isOwn ? `${me.secret} goes on` : 'goes on';
    const { body } = await rpc('session.message', me.headers, { sessionId, taskPrompt });
    if (isOwn || !me.isMember) assert.equal(body.result?.output, isOwn ? taskPrompt : undefined, JSON.stringify(body));
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
    const { body } = await send('GET', '/api/bridge/sessions?limit=200', me.headers);
    const own = (body.sessions as { sessionId: string; owner: string }[]).filter(({ owner }) => owner === me.owner);
    const found = own.map((one) => one.sessionId).filter((id) => isName(id));
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
    // What was done for the team is also the mate's.
    const own = (body.data as { id: string; team: string | null }[]).filter(({ team }) => team === null);
    me.calls.push(...own.map(({ id }) => id));
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

/** Stands in what is done for the team of two of them. */
const TEAM_SECRET = 'cedar-elk';

/** What a member does for the team, under the names that all of them use for their own work. */
const TEAM_ACTIONS: Readonly<Record<string, (me: Worker, team: string, name: Name) => Promise<unknown>>> = {
  async 'start for the team'(me, team, sessionId) {
    const params = { sessionId, threadId: 'thread', taskPrompt: `${TEAM_SECRET} starts`, routing: BUILTIN, team };
    return (await rpc('session.start', me.headers, params)).body;
  },
  'message for the team': (me, team, sessionId) =>
    rpc('session.message', { ...me.headers, 'x-team': team }, { sessionId, taskPrompt: `${TEAM_SECRET} goes on` }),
  'submit a job for the team': (me, team) =>
    rpc('app.jobs.submit', me.headers, { taskPrompt: `${TEAM_SECRET} later`, routing: BUILTIN, team }),
  'close for the team': (me, team, sessionId) => rpc('session.close', me.headers, { sessionId, team }),
  'list sessions of the team': (me, team) => send('GET', '/api/bridge/sessions', { ...me.headers, 'x-team': team }),
  'look at jobs of the team': (me, team) => rpc('app.jobs.list', me.headers, { team }),
};

test('two people in a team and one outside do anything at the same time, and never see more than is theirs', async () => {
  const step = fc.record({
    action: fc.constantFrom(...Object.keys(ACTIONS)),
    ofTeam: fc.option(fc.constantFrom(...Object.keys(TEAM_ACTIONS)), { freq: 2, nil: '' }),
    name: fc.constantFrom(...NAMES),
  });
  const steps = fc.array(step, { minLength: 8, maxLength: 20 });
  const [ann, ben, eve] = [await newWorker('amber-owl'), await newWorker('birch-fox'), await newWorker('dune-hare')];
  const team = await newTeam({}, ann, ben);
  for (const one of [ann, ben]) one.isMember = true;
  const pairs = [
    [ann, ben],
    [ben, ann],
    [eve, ann],
  ] as const;
  // Something of everything is there before, so that each could see something.
  for (const action of ['start', 'submit a job', 'create a key', 'chat', 'list calls']) {
    for (const [me, other] of pairs) await ACTIONS[action]?.(me, other, 'notes');
  }
  await TEAM_ACTIONS['start for the team']?.(ann, team, 'notes');
  interface Step {
    readonly action: string;
    readonly ofTeam: string;
    readonly name: Name;
  }
  /** `other` is the one whom the actions are about; neither of the others may show up. */
  function checkAll(me: Worker, action: string, answered: unknown): void {
    for (const other of [ann, ben, eve]) if (other !== me) check(me, other, action, answered);
    const text = JSON.stringify(answered) ?? '';
    assert.ok(me !== eve || !text.includes(TEAM_SECRET), `Eve saw work of the team by "${action}": ${text}`);
  }
  async function live(me: Worker, other: Worker, todo: readonly Step[]): Promise<void> {
    for (const { action, ofTeam, name } of todo) {
      checkAll(me, action, await ACTIONS[action]?.(me, other, name));
      const done = await TEAM_ACTIONS[ofTeam]?.(me, team, name);
      if (me === eve) assert.match(JSON.stringify(done ?? 'NOT_IN_TEAM'), /not_in_team/i, ofTeam);
      checkAll(me, ofTeam, done);
    }
  }
  const property = fc.asyncProperty(steps, steps, steps, async (forAnn, forBen, forEve) => {
    await Promise.all([live(ann, ben, forAnn), live(ben, ann, forBen), live(eve, ann, forEve)]);
    for (const [me, other] of pairs) {
      await ACTIONS['list sessions']?.(me, other, 'notes');
      checkAll(me, 'live updates', me.socket.messages.join('\n'));
    }
    await TEAM_ACTIONS['start for the team']?.(ann, team, 'plan');
    const seen = JSON.stringify((await TEAM_ACTIONS['list sessions of the team']?.(ben, team, 'plan')) as Json);
    assert.ok(seen.includes(TEAM_SECRET), 'a mate sees what was started for the team');
  });
  await fc.assert(property, { numRuns: 12, endOnFailure: true });
  for (const { socket, secret } of [ann, ben, eve])
    assert.ok(socket.messages.join('').includes(secret), 'updates came at all');
  const all = JSON.stringify([
    (await send('GET', '/api/bridge/sessions?limit=200', asRoot)).body,
    (await rpc('app.jobs.list', asRoot)).body,
  ]);
  for (const { owner, jobs } of [ann, ben, eve]) {
    assert.ok(all.includes(owner), 'an administrator sees the sessions of all');
    assert.ok(all.includes(jobs[0] ?? '-'), 'and their jobs');
  }
});
