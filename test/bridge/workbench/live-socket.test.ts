import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, test } from 'node:test';
import { WebSocket } from 'ws';
import type { Change, LiveJob } from '../../../src/bridge/contract/jobs.ts';
import type { PlainUpdate, Summary, UpdatePage } from '../../../src/bridge/contract/workbench.ts';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import { createLiveSocket } from '../../../src/bridge/workbench/live-socket.ts';
import { createSessionChanges } from '../../../src/bridge/workbench/session-changes.ts';
import { bearer, call, openClient } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { createMemoryChannels } from '../../kit/memory-channel.ts';
import type { Scope } from '../../kit/running-program.ts';
import { createScriptedProvider, echo } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const main = bearer(MAIN_TOKEN);
const review = bearer(REVIEW_TOKEN);
const OPTIONS = [
  { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
  { optionId: 'no', name: 'Reject', kind: 'reject_once' },
];
const burst = 40_000;
const worker = createScriptedProvider('worker', async (turn) => {
  if (turn.prompt === 'burst') {
    for (let left = burst; left > 0; left -= 1) await turn.report({ kind: 'text', text: `${left} ${'x'.repeat(50)}` });
    return { kind: 'completed', output: 'done', stopReason: 'end_turn' };
  }
  if (turn.prompt === 'ask') {
    const question = { toolCallId: 't', title: 'make', toolKind: 'execute', options: OPTIONS };
    const { decision } = await turn.permit(question, 'allow', turn.signal);
    return { kind: 'completed', output: decision, stopReason: 'end_turn' };
  }
  return echo(turn);
});
const { url } = await startBridge({ after }, { providers: [worker], isGuarded: true });

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly result?: { readonly lastSeq?: number };
  readonly error?: { readonly code: number; readonly data: { readonly code: string } };
  readonly params: { readonly sessionId: string; readonly update: PlainUpdate } & Change & { readonly now: number };
}

async function openLive(scope: Scope, headers = main, bridge = url) {
  const socket = new WebSocket(`${bridge.replace('http', 'ws')}/api/bridge/live`, { headers });
  scope.after(() => socket.terminate());
  const messages: Message[] = [];
  socket.on('message', (data) => messages.push(JSON.parse(String(data)) as Message));
  await once(socket, 'open');
  let id = 0;
  return {
    socket,
    messages,
    updates: () => messages.flatMap(({ method, params }) => (method === 'update' ? [params.update] : [])),
    changes: () => messages.flatMap(({ method, params }) => (method === 'changed' ? [params] : [])),
    async call(method: string, params: unknown): Promise<Message> {
      id += 1;
      const own = id;
      socket.send(JSON.stringify({ jsonrpc: '2.0', id: own, method, params }));
      return until(`an answer to ${method}`, async () => messages.find((message) => message.id === own));
    },
  };
}

const start = (sessionId: string, taskPrompt: string, headers = main) =>
  call(url, 'session.start', { sessionId, taskPrompt }, headers);

const stored = async (sessionId: string) => {
  const response = await fetch(`${url}/api/bridge/sessions/${sessionId}/updates?limit=2000`, { headers: main });
  return ((await response.json()) as UpdatePage).updates;
};

test('follow replays after a number and goes on: every update once, in order, as the history has it', async (t) => {
  await start('f', 'one two three');
  const live = await openLive(t);
  const { result } = await live.call('follow', { sessionId: 'f', afterSeq: 2 });
  await call(url, 'session.message', { sessionId: 'f', taskPrompt: 'four five' }, main);
  const all = await stored('f');
  await until('all updates', async () => live.updates().length === all.length - 2);
  assert.deepEqual(
    live.updates().map(({ at, ...update }) => update),
    all.slice(2).map(({ at, ...update }) => update),
  );
  assert.ok(result?.lastSeq !== undefined && result.lastSeq >= 6);
  const [answered, first] = [
    live.messages.findIndex(({ id }) => id === 1),
    live.messages.findIndex((one) => one.method),
  ];
  assert.ok(answered < first, 'the answer comes before the first update');
  await live.call('unfollow', { sessionId: 'f' });
  const before = live.updates().length;
  await call(url, 'session.message', { sessionId: 'f', taskPrompt: 'six' }, main);
  await live.call('unfollow', { sessionId: 'f' });
  assert.equal(live.updates().length, before);
});

test('a new title, an archived and a pinned session are sent to watchers', async (t) => {
  await start('renamed', 'one');
  const live = await openLive(t);
  await live.call('watch', { topics: ['sessions'] });
  for (const changes of [{ title: 'A better title' }, { pinned: true }, { archived: true }]) {
    const before = live.changes().length;
    const headers = { ...main, 'content-type': 'application/json' };
    const body = JSON.stringify(changes);
    const response = await fetch(`${url}/api/bridge/sessions/renamed`, { method: 'PATCH', headers, body });
    const { session } = (await response.json()) as { readonly session: Summary };
    await until('the change', async () => live.changes().length > before);
    assert.deepEqual(live.changes().at(-1)?.item, session);
  }
});

test('a session that starts later can be followed, and a delta takes less than 0.35 of the bytes of the first surface', async (t) => {
  const live = await openLive(t);
  const old = await openClient(t, url, { headers: main, query: 'sessionId=later' });
  const sizes = { live: 0, old: 0 };
  live.socket.on('message', (data) => {
    if (String(data).includes('"kind":"text"')) sizes.live += String(data).length;
  });
  old.socket.on('message', (data) => {
    if (String(data).includes('"type":"delta"')) sizes.old += String(data).length;
  });
  assert.equal((await live.call('follow', { sessionId: 'later' })).result?.lastSeq, 0);
  await start('later', 'a sentence of the usual length '.repeat(20));
  await until('the end', async () => live.updates().some(({ kind }) => kind === 'completed'));
  await old.seen(({ event }) => event === 'completed');
  assert.ok(sizes.live > 0 && sizes.live < sizes.old * 0.35, JSON.stringify(sizes));
});

test('an open question is an update of the second surface alone, live and stored, and its answer names it', async (t) => {
  const live = await openLive(t);
  const first = await openClient(t, url, { headers: main, query: 'sessionId=asks' });
  await live.call('follow', { sessionId: 'asks' });
  const params = { sessionId: 'asks', taskPrompt: 'ask', routing: { permissions: 'ask' } };
  const turn = call(url, 'session.start', params, main);
  type Asked = Extract<PlainUpdate, { kind: 'permission' }>;
  const asked = () => live.updates().filter((update): update is Asked => update.kind === 'permission');
  const open = await until('the question', async () => asked()[0]);
  const { seq, at: _at, turnId: _turn, permissionId = '', expiresAt = 0, ...rest } = open;
  const known = { kind: 'permission', title: 'make', toolKind: 'execute', toolCallId: 't', options: OPTIONS };
  assert.deepEqual(rest, { ...known, state: 'open' });
  assert.ok(expiresAt > Date.now());
  const answer = await fetch(`${url}/api/bridge/permissions/${permissionId}/answer`, {
    method: 'POST',
    headers: { ...main, 'content-type': 'application/json' },
    body: JSON.stringify({ decision: 'deny', reason: 'later' }),
  });
  assert.equal(answer.status, 200);
  assert.equal((await turn).result?.output, 'denied');
  const denied = await until('the answer', async () => asked()[1]);
  assert.deepEqual([denied.state, denied.permissionId, denied.reason], ['denied', permissionId, 'later']);
  const history = await stored('asks');
  assert.deepEqual(
    history.filter(({ kind }) => kind === 'permission').map((update) => (update as Asked).state),
    ['open', 'denied'],
  );
  const end = await first.seen(({ event }) => event === 'completed');
  const again = await openClient(t, url, { headers: main, query: 'sessionId=asks&afterSeq=0' });
  await again.seen(({ event }) => event === 'completed');
  for (const { updates } of [first, again]) {
    const numbers = updates.map((update) => update.seq);
    assert.ok(!numbers.includes(seq), 'clients of the first surface do not get the question');
    assert.equal(numbers.length, history.length - 1, 'and get everything else');
  }
  assert.ok(end.seq > seq);
});

test('watchers learn of every session that they see, as the list has it, and of its end', async (t) => {
  const [all, own] = [await openLive(t), await openLive(t, review)];
  await all.call('watch', { topics: ['sessions'] });
  await own.call('watch', { topics: ['sessions'] });
  await start('w-main', 'hello');
  await start('w-review', 'hello', review);
  const states = (live: typeof all, name: string) =>
    live.changes().flatMap(({ topic, item }) => (topic === 'sessions' && item?.sessionId === name ? [item] : []));
  for (const name of ['w-main', 'w-review']) {
    await until(`${name} is idle`, async () =>
      states(all, name).some((item) => 'state' in item && item.state === 'idle'),
    );
  }
  await until('its own', async () => states(own, 'w-review').length > 0);
  await call(url, 'session.close', { sessionId: 'w-main' }, main);
  await until('the end', async () => states(all, 'w-main').some((item) => 'closed' in item));
  assert.ok(own.changes().every(({ topic, item }) => topic === 'sessions' && item?.owner === 'review'));
  await all.call('unwatch', {});
});

test('watchers learn how jobs go, without results, and which agents can be used', async (t) => {
  const agent = createScriptedProvider('agent', async (turn) =>
    turn.prompt === 'exit' ? { kind: 'failed', code: 'AGENT_EXITED', error: 'It has exited.', output: '' } : echo(turn),
  );
  const bridge = await startBridge(t, { providers: [agent], isGuarded: true });
  const [all, own] = [await openLive(t, main, bridge.url), await openLive(t, review, bridge.url)];
  for (const live of [all, own]) await live.call('watch', { topics: ['jobs', 'agents'] });
  const { jobId } = (await call(bridge.url, 'app.jobs.submit', { taskPrompt: 'hello' }, main)).result as {
    jobId: string;
  };
  const jobs = (live: typeof all) =>
    live.changes().flatMap(({ topic, item }) => (topic === 'jobs' && item !== null ? [item] : []));
  await until('the job to end', () => jobs(all).some((job) => job.jobId === jobId && job.status === 'completed'));
  assert.ok(jobs(all).every((job) => !('result' in job) && job.taskPrompt === 'hello'));
  agent.setProbe({ status: 'not_logged_in', version: '2' });
  await call(bridge.url, 'session.start', { sessionId: 'x', taskPrompt: 'exit' }, main);
  for (const live of [all, own]) {
    await until('the agent to be known as logged out', () =>
      live.changes().some(({ topic, item }) => topic === 'agents' && item?.unavailableReason === 'not_logged_in'),
    );
  }
  assert.deepEqual(jobs(own), [], 'jobs of others are not sent');
});

test('nobody follows or watches the work of others, and wrong calls are refused', async (t) => {
  await start('hidden', 'secret words');
  const live = await openLive(t, review);
  await live.call('follow', { sessionId: 'hidden', afterSeq: 0 });
  const named = await live.call('follow', { sessionId: 'hidden', owner: 'main', afterSeq: 0 });
  assert.equal(named.error?.data.code, 'SESSION_NOT_FOUND');
  await live.call('watch', { topics: ['sessions'], owner: 'main' });
  await call(url, 'session.message', { sessionId: 'hidden', taskPrompt: 'more secret words' }, main);
  await live.call('unwatch', {});
  assert.deepEqual([live.updates(), live.changes()], [[], []]);
  for (const [method, params] of [
    ['follow', {}],
    ['follow', { sessionId: '', afterSeq: 0 }],
    ['follow', { sessionId: 'x', afterSeq: -1 }],
    ['follow', { sessionId: 'x', extra: 1 }],
    ['watch', { topics: [] }],
    ['watch', { topics: ['everything'] }],
  ] as const) {
    assert.equal((await live.call(method, params)).error?.data.code, 'INVALID_PARAMS', method);
  }
  assert.equal((await live.call('session.start', { sessionId: 'x' })).error?.data.code, 'METHOD_NOT_FOUND');
  for (let count = 0; count < 99; count += 1) void live.call('follow', { sessionId: `many-${count}` });
  assert.equal((await live.call('follow', { sessionId: 'one more' })).error?.data.code, 'TOO_MANY_FOLLOWED');
});

test('a slow follower gets everything and holds up nobody', async (t) => {
  const live = await openLive(t);
  await live.call('follow', { sessionId: 'slow', afterSeq: 0 });
  live.socket.pause();
  await start('slow', 'burst');
  live.socket.resume();
  await until('the end', async () => live.updates().at(-1)?.kind === 'completed');
  const numbers = live.updates().map(({ seq }) => seq);
  assert.equal(numbers.length, burst + 3);
  assert.ok(numbers.every((seq, index) => index === 0 || seq > (numbers[index - 1] ?? 0)));
  const page = (await stored('slow')).map(({ seq }) => seq);
  assert.deepEqual(page, numbers.slice(-2000), 'a page is put together from as many chunks as it takes');
});

test('a session or job that changes all the time is sent ten times a second, with its newest state', async () => {
  const clock = createFakeClock();
  let turns = 0;
  const read = async (keys: readonly string[]) =>
    new Map(keys.map((key) => [key, { sessionId: key, owner: 'main', turns } as Summary]));
  const readJob = async (jobId: string) => ({ jobId, owner: 'main', retried: turns }) as LiveJob;
  const changes = createSessionChanges({ clock, read, readJob, onError: assert.fail });
  const told: Change[] = [];
  let isBehind = false;
  const watcher = {
    principal: MAIN,
    topics: new Set(['sessions', 'jobs'] as const),
    owner: undefined,
    isBehind: () => isBehind,
    send: (one: Change) => void told.push(one),
  };
  const other: Change[] = [];
  changes.watch(watcher);
  changes.watch({ ...watcher, principal: principalOf('review'), send: (one) => void other.push(one) });
  for (let ms = 0; ms < 1000; ms += 1) {
    turns += 1;
    changes.changed('s');
    changes.jobChanged('j');
    await clock.advance(1);
  }
  for (const topic of ['sessions', 'jobs']) {
    const count = told.filter((one) => one.topic === topic).length;
    assert.ok(count >= 9 && count <= 10, `${topic} ${count} times`);
  }
  assert.deepEqual(other, []);
  told.length = 0;
  changes.changed('quiet');
  await clock.advance(50);
  const items = told.map(({ item }) => (item as Summary).sessionId);
  assert.ok(items.includes('quiet'), 'a session that was quiet does not wait for the others');
  isBehind = true;
  for (let count = 0; count < 1500; count += 1) changes.changed(`s${count}`);
  await clock.advance(500);
  isBehind = false;
  told.length = 0;
  await clock.advance(200);
  assert.deepEqual(told[0], { topic: 'sessions', item: null }, 'a watcher that missed too much reads the list again');
  changes.stop();
});

test('a ping comes every ten seconds with the time of the server, and stops with the connection', async () => {
  const clock = createFakeClock();
  const [near, far] = createMemoryChannels();
  const nothing = async () => undefined;
  createLiveSocket({
    clock,
    changes: { watch: nothing, unwatch: nothing },
    following: { follow: nothing, forget: () => undefined },
    sessions: { show: () => assert.fail('nobody asks') },
    callsPerConnection: 8,
    makeRequestId: () => 'r',
    onUnexpectedError: assert.fail,
  }).accept(near, { requestId: 'r' }, { principal: MAIN });
  const times: number[] = [];
  far.onMessage((text) => times.push((JSON.parse(text) as Message).params.now));
  const begin = clock.now();
  await clock.advance(30_500);
  assert.deepEqual(times, [begin + 10_000, begin + 20_000, begin + 30_000]);
  far.close();
  await clock.advance(10_000);
  assert.deepEqual([times.length, clock.pending()], [3, 0]);
});
