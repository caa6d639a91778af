import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createLive } from '../../src/client/live-client.ts';
import type { LiveChange, LiveUpdate } from '../../src/client/trestle-client.ts';
import { clientOf } from '../kit/bridge/client-of.ts';
import { MAIN_TOKEN, startBridge } from '../kit/bridge/start-bridge.ts';
import { startFaultProxy } from '../kit/fault-proxy.ts';
import { createScriptedProvider } from '../kit/scripted-provider.ts';
import { until } from '../kit/until.ts';

const { url } = await startBridge({ after }, { providers: [createScriptedProvider('alpha')], isGuarded: true });
const token = MAIN_TOKEN;

test('watchers get the changes of their topics, and hear of each connection, to read the lists again', async (t) => {
  const proxy = await startFaultProxy(t, Number(new URL(url).port));
  const { live, session, jobs } = clientOf(t, { url: proxy.url, token });
  const changes: (LiveChange | undefined)[] = [];
  const onlyJobs: (LiveChange | undefined)[] = [];
  const stop = live.watch(['sessions', 'jobs'], (change) => changes.push(change));
  live.watch(['jobs'], (change) => onlyJobs.push(change), { owner: 'main' });
  const opened: boolean[] = [];
  live.onStatus(() => opened.push(live.status().isOpen));
  await until('both to be told to read the lists', () => changes.includes(undefined) && onlyJobs.includes(undefined));
  await session('watched').start('hello').result;
  await until('the session to be idle', () =>
    changes.some(
      (one) => one?.topic === 'sessions' && one.item !== null && 'state' in one.item && one.item.state === 'idle',
    ),
  );
  const { jobId } = await jobs.submit({ taskPrompt: 'in the background' });
  const ended = (one: LiveChange | undefined) =>
    one?.topic === 'jobs' && one.item?.jobId === jobId && one.item.status === 'completed';
  await until('the job to end', () => changes.some(ended) && onlyJobs.some(ended));
  assert.ok(onlyJobs.every((one) => one === undefined || one.topic === 'jobs'));

  const before = changes.filter((one) => one === undefined).length;
  proxy.cutAll();
  await until('to be told again', () => changes.filter((one) => one === undefined).length > before);
  assert.deepEqual(opened, [true, false, true]);
  stop();
  const count = changes.length;
  const later = await jobs.submit({ taskPrompt: 'later' });
  await until('the other watcher to see it', () =>
    onlyJobs.some((one) => one?.topic === 'jobs' && one.item?.jobId === later.jobId),
  );
  assert.equal(changes.length, count, 'a watcher that has stopped hears nothing');
});

test('a followed session loses and repeats nothing over connections that break, and a late follower hears what is new', async (t) => {
  const port = Number(new URL(url).port);
  const direct = clientOf(t, { url, token });
  const words = Array.from({ length: 400 }, (_, index) => `word${index} `).join('');
  // The first connections are cut in the middle of the updates.
  const proxy = await startFaultProxy(t, port, (count) => (count < 4 ? { after: 6000 * (count + 1) } : {}));
  const { live } = clientOf(t, { url: proxy.url, token });
  const updates: LiveUpdate[] = [];
  live.follow('followed', (update) => updates.push(update), { afterSeq: 0 });
  await direct.session('followed').start(words).result;
  await until('the end of the turn', () => updates.some(({ kind }) => kind === 'completed'));
  assert.ok(proxy.connections() > 1, 'connections were cut');
  const stored = (await direct.sessions.updates('followed', { afterSeq: 0, limit: 2000 })).updates;
  assert.deepEqual(
    updates.map(({ seq, kind }) => [seq, kind]),
    stored.map(({ seq, kind }) => [seq, kind]),
  );

  const late: LiveUpdate[] = [];
  const other = clientOf(t, { url, token });
  const stop = other.live.follow('followed', (update) => late.push(update));
  await until('the late follower to hear something new', async () => {
    await direct.session('followed').message('more').result;
    return late.length > 0;
  });
  const last = stored.at(-1)?.seq ?? 0;
  assert.ok(
    late.every(({ seq }) => seq > last),
    'nothing old is sent',
  );
  stop();
  await until('the connection to end with its last listener', () => !other.live.status().isOpen);
});

test('several followers of one session on one connection each get what they asked for', async (t) => {
  const proxy = await startFaultProxy(t, Number(new URL(url).port));
  const { live, session } = clientOf(t, { url: proxy.url, token });
  const heard = { whole: [] as number[], later: [] as number[], fresh: [] as number[] };
  const words = Array.from({ length: 300 }, (_, index) => `word${index} `).join('');
  const stopWhole = live.follow('shared', ({ seq }) => heard.whole.push(seq), { afterSeq: 0 });
  await session('shared').start(words).result;
  live.follow('shared', ({ seq }) => heard.later.push(seq), { afterSeq: 100 });
  live.follow('shared', ({ seq }) => heard.fresh.push(seq));
  await until('the last one to hear something new', async () => {
    await session('shared').message('one more').result;
    return heard.fresh.length > 0;
  });
  const last = (await clientOf(t, { url, token }).sessions.get('shared')).session.lastSeq;
  await until('all to have the last one', () => Object.values(heard).every((seqs) => seqs.at(-1) === last));
  const from = (first: number, upTo = last) => Array.from({ length: upTo - first + 1 }, (_, index) => first + index);
  assert.deepEqual(heard.whole, from(1));
  assert.deepEqual(heard.later, from(101));
  assert.ok((heard.fresh[0] ?? 0) > 300, 'nothing of before it came');
  assert.deepEqual(heard.fresh, from(heard.fresh[0] ?? 0));

  stopWhole();
  proxy.cutAll();
  await until('another connection', () => proxy.connections() > 1 && live.status().isOpen);
  await session('shared').message('after the break').result;
  const { lastSeq } = (await clientOf(t, { url, token }).sessions.get('shared')).session;
  await until('both to have the rest', () => heard.later.at(-1) === lastSeq && heard.fresh.at(-1) === lastSeq);
  assert.deepEqual(heard.later, from(101, lastSeq));
  assert.equal(heard.whole.at(-1), last, 'one that has stopped hears nothing');
});

test('followers of one session miss nothing, whichever of them has seen more', async () => {
  const asked: unknown[] = [];
  const answers: (() => void)[] = [];
  let send: (seq: number) => void = () => assert.fail('not connected');
  const closed = new AbortController();
  const live = createLive({
    closed: closed.signal,
    makeCallId: () => 'call',
    async openLink(_query, onMessage) {
      send = (seq) => onMessage({ method: 'update', params: { sessionId: 's', update: { seq } } });
      return {
        async send(request, onAnswer) {
          asked.push(request.params);
          answers.push(() => onAnswer?.({ id: request.id, result: { lastSeq: 12 } }));
          return { id: request.id, result: {} };
        },
        close: () => undefined,
        closed: new Promise(() => undefined),
      };
    },
  });
  const heard = { first: [] as number[], second: [] as number[], fresh: [] as number[] };
  live.follow('s', ({ seq }) => heard.first.push(seq), { afterSeq: 10 });
  await until('the first call', () => asked.length === 1);
  answers[0]?.();
  live.follow('s', ({ seq }) => heard.second.push(seq), { afterSeq: 5 });
  live.follow('s', ({ seq }) => heard.fresh.push(seq));
  // All behind each other in one packet. The first two are meant for the first follower: the second one has not seen 6.
  for (const seq of [11, 12]) send(seq);
  answers[1]?.();
  answers[2]?.();
  for (const seq of [6, 7, 11, 12, 13]) send(seq);
  assert.deepEqual(asked, [
    { sessionId: 's', afterSeq: 10 },
    { sessionId: 's', afterSeq: 5 },
    { sessionId: 's', afterSeq: 5 },
  ]);
  assert.deepEqual(heard, { first: [11, 12, 13], second: [6, 7, 11, 12, 13], fresh: [13] });
  live.follow('s', () => undefined, { afterSeq: 99 });
  assert.deepEqual(asked[3], { sessionId: 's', afterSeq: 13 }, 'one that has seen more takes nothing from the others');
  closed.abort();
});

test('what the server refuses is the status, and the next listener tries again', async (t) => {
  const { live } = clientOf(t, { url, token: 'wrong' });
  const stop = live.watch(['agents'], () => assert.fail('nothing is told'));
  await until('the refusal', () => live.status().problem?.code === 'UNAUTHORIZED');
  stop();
  const many = clientOf(t, { url, token });
  for (let count = 0; count < 101; count += 1) many.live.follow(`many-${count}`, () => undefined);
  await until('one too many', () => many.live.status().problem?.code === 'TOO_MANY_FOLLOWED');
  const none = clientOf(t, { url, token, openSocket: () => assert.fail('nobody listens') });
  assert.deepEqual([none.live.status().isOpen, none.live.status().heardAt], [false, 0]);
});

test('a watcher reads its lists when the server has taken the watch, so that no change is lost in between', async () => {
  const answers: (() => void)[] = [];
  const closed = new AbortController();
  const live = createLive({
    closed: closed.signal,
    makeCallId: () => 'call',
    openLink: async () => ({
      send: (request) => new Promise((resolve) => answers.push(() => resolve({ id: request.id, result: {} }))),
      close: () => undefined,
      closed: new Promise(() => undefined),
    }),
  });
  const told: string[] = [];
  live.watch(['sessions'], () => told.push('first'));
  await until('the first watch', () => answers.length === 1);
  live.watch(['permissions'], () => told.push('second'));
  await until('the second watch', () => answers.length === 2);
  assert.deepEqual(told, []);
  answers[0]?.();
  await until('the first one to read', () => told.length === 1);
  answers[1]?.();
  await until('the second one to read', () => told.length === 2);
  assert.deepEqual(told, ['first', 'second']);
  closed.abort();
});
