import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, test } from 'node:test';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, startProgram } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

type Row = Readonly<Record<string, unknown>>;

const PATIENCE_MS = 60_000;
const QUICK = { explicitProviderId: 'builtin', explicitModel: 'demo/echo' };
const SLOW = { explicitProviderId: 'builtin', explicitModel: 'demo/echo?delay=50' };

const postgres = await startPostgres();
after(() => postgres.stop());
const start = () => startProgram({ after }, { args: ['--database', postgres.url] });
const one = await start();
const other = await start();

function words(count: number): string {
  return Array.from({ length: count }, (_, index) => `word${index}`).join(' ');
}

async function call({ url }: RunningProgram, method: string, params: object): Promise<Row> {
  const response = await fetch(`${url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 'call', method, params }),
  });
  return (await response.json()) as Row;
}

/** The numbers of all stored updates. */
async function stored({ url }: RunningProgram, sessionId: string): Promise<readonly number[]> {
  const all: number[] = [];
  for (;;) {
    const response = await fetch(`${url}/api/bridge/sessions/${sessionId}/updates?afterSeq=${all.at(-1) ?? 0}`);
    const { updates = [] } = (await response.json()) as { readonly updates?: readonly { readonly seq: number }[] };
    if (updates.length === 0) return all;
    all.push(...updates.map(({ seq }) => seq));
  }
}

/** Follows a session as an app does, and notes what it gets. */
async function follow({ url }: RunningProgram, sessionId: string, afterSeq?: number) {
  const query = new URLSearchParams({ sessionId, ...(afterSeq !== undefined && { afterSeq: String(afterSeq) }) });
  const socket = new WebSocket(`${url.replace(/^http/, 'ws')}/acp?${query}`);
  const updates: Row[] = [];
  socket.addEventListener('message', ({ data }) => {
    const { method, params } = JSON.parse(String(data)) as { readonly method?: string; readonly params: Row };
    if (method === 'session.update') updates.push(params);
  });
  await once(socket, 'open');
  after(() => socket.close());
  return { socket, updates, seqs: () => updates.map(({ seq }) => Number(seq)) };
}

function isFailure({ type, event }: Row): boolean {
  return type === 'status' && event === 'failed';
}

test('DS-5: clients of another instance get every update once, in order, from wherever they begin', async () => {
  const turn = call(one, 'session.start', { sessionId: 'followed', taskPrompt: words(60), routing: SLOW });
  await until('the turn', async () => (await stored(one, 'followed')).length > 3, PATIENCE_MS);
  const early = await follow(other, 'followed', 0);
  await until('live updates', () => early.updates.length > 10, PATIENCE_MS);
  const late = await follow(other, 'followed', 5);
  const now = await follow(other, 'followed');
  const result = (await turn) as { readonly result?: Row };
  assert.equal(result.result?.status, 'completed');
  const all = await stored(one, 'followed');
  for (const follower of [early, late, now]) {
    await until('the last update', () => follower.seqs().at(-1) === all.at(-1), PATIENCE_MS);
  }
  assert.deepEqual(early.seqs(), all);
  assert.deepEqual(
    late.seqs(),
    all.filter((seq) => seq > 5),
  );
  const first = now.seqs()[0] ?? 0;
  assert.deepEqual(
    now.seqs(),
    all.filter((seq) => seq >= first),
  );
  // And so does the next turn.
  await call(one, 'session.message', { sessionId: 'followed', taskPrompt: 'more' });
  const last = (await stored(one, 'followed')).at(-1);
  await until('the next turn', () => now.seqs().at(-1) === last, PATIENCE_MS);
});

test('a client of another instance gets a session that is closed and started again', async () => {
  const turn = { sessionId: 'again', taskPrompt: 'hello', routing: QUICK };
  await call(one, 'session.start', turn);
  const follower = await follow(other, 'again', 0);
  const here = await follow(one, 'again', 0);
  const before = (await stored(one, 'again')).at(-1);
  for (const { seqs } of [follower, here]) await until('the first turn', () => seqs().at(-1) === before, PATIENCE_MS);
  // Each time another instance starts it.
  for (const instance of [one, other, one]) {
    await call(instance, 'session.close', { sessionId: 'again' });
    const { result } = (await call(instance, 'session.start', turn)) as { readonly result?: Row };
    assert.equal(result?.status, 'completed');
    const all = await stored(one, 'again');
    for (const { seqs } of [follower, here]) {
      await until('the new turn', () => seqs().at(-1) === all.at(-1), PATIENCE_MS);
      assert.deepEqual(seqs().slice(-all.length), all);
    }
  }
});

test('DS-5: updates of another instance arrive while its turn runs, and not only when they are stored', async (t) => {
  const follower = await follow(other, 'live', 0);
  const from = performance.now();
  const turn = call(one, 'session.start', { sessionId: 'live', taskPrompt: words(60), routing: SLOW });
  await until('updates', () => follower.updates.length > 5, PATIENCE_MS);
  t.diagnostic(`the sixth update came ${Math.round(performance.now() - from)} ms after the call`);
  const ended = await Promise.race([turn.then(() => true), new Promise((resolve) => setTimeout(resolve, 0, false))]);
  assert.equal(ended, false, 'the turn runs');
  await turn;
  const all = await stored(one, 'live');
  await until('all updates', () => follower.seqs().at(-1) === all.at(-1), PATIENCE_MS);
  assert.deepEqual(follower.seqs(), all, 'from the first one on: it was followed before it began');
});

test('DS-5: a client of another instance gets the end of a turn whose instance dies, and the next turn', async () => {
  const third = await start();
  const turn = call(third, 'session.start', { sessionId: 'dies', taskPrompt: words(200), routing: SLOW });
  turn.catch(() => undefined);
  await until('the turn', async () => (await stored(other, 'dies')).length > 3, PATIENCE_MS);
  const follower = await follow(other, 'dies', 0);
  await until('updates', () => follower.updates.length > 20, PATIENCE_MS);
  await third.stop('SIGKILL');
  const end = await until('the end', () => follower.updates.find(isFailure), PATIENCE_MS);
  assert.equal(end.message, 'The bridge was stopped while the turn was open.');
  const next = await until(
    'the session to move',
    async () => {
      const answer = await call(one, 'session.message', { sessionId: 'dies', taskPrompt: 'after all', routing: QUICK });
      return (answer as { readonly result?: Row }).result;
    },
    PATIENCE_MS,
  );
  assert.equal(next.status, 'completed');
  const all = await stored(one, 'dies');
  await until('the updates of the next turn', () => follower.seqs().at(-1) === all.at(-1), PATIENCE_MS);
  // The last ones that it showed may not have been stored when it died; their numbers are not used again.
  const seen = follower.seqs();
  assert.deepEqual(
    seen.filter((seq) => all.includes(seq)),
    all,
  );
  assert.deepEqual(
    seen,
    [...new Set(seen)].toSorted((a, b) => a - b),
    'each update once, in order',
  );
});

test('DS-5: lists on another instance change when a session begins and ends', async () => {
  const socket = new WebSocket(`${other.url.replace(/^http/, 'ws')}/api/bridge/live`);
  after(() => socket.close());
  const states: string[] = [];
  socket.addEventListener('message', ({ data }) => {
    const { method, params } = JSON.parse(String(data)) as { readonly method?: string; readonly params: Row };
    const { sessionId, state } = Object(params?.item) as Row;
    if (method === 'changed' && sessionId === 'listed') states.push(String(state));
  });
  await once(socket, 'open');
  socket.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'watch', params: { topics: ['sessions'] } }));
  await call(one, 'session.start', { sessionId: 'listed', taskPrompt: words(20), routing: SLOW });
  await until('the changes', () => states.length > 1, PATIENCE_MS);
  assert.equal(states[0], 'running');
  await until('the end', () => states.at(-1) !== 'running', PATIENCE_MS);
});
