import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type RealPostgres, startPostgres } from '../kit/real-postgres.ts';
import {
  type ProgramOptions,
  type RunningProgram,
  runProgram,
  startProgram,
  temporaryFolder,
} from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

/** What the rows of answers are, as far as these tests look at them. */
type Row = Readonly<Record<string, unknown>>;

const PATIENCE_MS = 60_000;
/** Updates of 50 ms each that a busy machine may send before it has stored them. */
const MAX_LOST = 3;
/** A clock that is 90 seconds ahead. */
const AHEAD = 'const now = Date.now;\nDate.now = () => now() + 90_000;\n';
const BUILTIN = { explicitProviderId: 'builtin' };

async function call(program: RunningProgram, method: string, params: object): Promise<Row> {
  const response = await fetch(`${program.url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: '1', method, params }),
  });
  return (await response.json()) as Row;
}

/** A turn that says each word of its prompt after a pause. */
function slowTurn(program: RunningProgram, sessionId: string, words: number, delayMs: number): Promise<Row> {
  const routing = { ...BUILTIN, explicitModel: `demo/echo?delay=${delayMs}` };
  const taskPrompt = Array.from({ length: words }, (_, index) => `word${index}`).join(' ');
  return call(program, 'session.start', { sessionId, taskPrompt, routing });
}

async function get(program: RunningProgram, path: string): Promise<Row> {
  return (await (await fetch(`${program.url}${path}`)).json()) as Row;
}

async function turnsOf(program: RunningProgram, sessionId: string): Promise<readonly Row[]> {
  const { turns = [] } = await get(program, `/api/bridge/sessions/${sessionId}/turns`);
  return turns as readonly Row[];
}

async function updatesOf(program: RunningProgram, sessionId: string): Promise<readonly Row[]> {
  const { updates = [] } = await get(program, `/api/bridge/sessions/${sessionId}/updates?limit=1000`);
  return updates as readonly Row[];
}

/** Follows a session on one instance; answers with the text of what came, by number. */
async function follow(t: TestContext, program: RunningProgram, sessionId: string): Promise<Map<number, string>> {
  const seen = new Map<number, string>();
  const socket = new WebSocket(`${program.url.replace('http', 'ws')}/acp?sessionId=${sessionId}&afterSeq=0`);
  socket.addEventListener('message', ({ data }) => {
    const { method, params } = JSON.parse(String(data)) as {
      method?: string;
      params?: { seq: number; delta?: string };
    };
    if (method === 'session.update' && params !== undefined) seen.set(params.seq, JSON.stringify(params));
  });
  t.after(() => socket.close());
  await new Promise((resolve, reject) => {
    socket.addEventListener('open', resolve);
    socket.addEventListener('error', reject);
  });
  return seen;
}

async function startBoth(t: TestContext, second: ProgramOptions = {}) {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const args = ['--database', postgres.url];
  const one = await startProgram(t, { args });
  return { postgres, one, other: await startProgram(t, { args, ...second }) };
}

/** A stopped process gets no signal but this one. */
function freeze(t: TestContext, { child }: RunningProgram): () => void {
  child.kill('SIGSTOP');
  const thaw = () => void child.kill('SIGCONT');
  t.after(thaw);
  return thaw;
}

test('DS-1: an instance that was frozen overwrites nothing, and reports what the others have stored', async (t) => {
  const { one, other } = await startBoth(t);
  const reported = slowTurn(one, 'frozen', 400, 50);
  await until('updates of the turn', async () => (await updatesOf(other, 'frozen')).length > 5, PATIENCE_MS);
  const seen = await follow(t, one, 'frozen');
  await until('updates at the follower', () => seen.size > 5, PATIENCE_MS);
  const thaw = freeze(t, one);
  const ended = await until(
    'the end of the turn',
    async () => (await turnsOf(other, 'frozen')).find(({ status }) => status === 'failed'),
    PATIENCE_MS,
  );
  const next = (await call(other, 'session.start', { sessionId: 'frozen', taskPrompt: 'next', routing: BUILTIN })) as {
    readonly result?: Row;
  };
  assert.equal(next.result?.output, 'next', JSON.stringify(next));
  const stored = await updatesOf(other, 'frozen');

  // Updates leave a moment before they are stored: a kill or a freeze in that moment loses them.
  const seenBefore = new Set(seen.keys());
  thaw();
  const { result } = (await reported) as { readonly result?: Row };
  assert.deepEqual([result?.status, result?.code], ['failed', 'TURN_INTERRUPTED'], JSON.stringify(result));
  assert.equal(ended.status, 'failed');
  // What it wrote late would be there by now: what it has reported was read from the store afterwards.
  assert.deepEqual(await updatesOf(other, 'frozen'), stored);
  await until('the follower to have all', () => stored.every(({ seq }) => seen.has(Number(seq))), PATIENCE_MS);
  const known = new Set(stored.map(({ seq }) => Number(seq)));
  const lost = [...seen.keys()].filter((seq) => !known.has(seq));
  assert.deepEqual(
    lost.filter((seq) => !seenBefore.has(seq)),
    [],
    'after it was frozen its own client saw nothing that is not stored',
  );
  assert.ok(lost.length <= MAX_LOST, `lost: ${lost.join(', ')}`);
  assert.deepEqual((await turnsOf(other, 'frozen')).map(({ status }) => status).toSorted(), ['completed', 'failed']);
  const again = (await call(one, 'session.start', { sessionId: 'frozen', taskPrompt: 'third', routing: BUILTIN })) as {
    readonly result?: Row;
  };
  assert.equal(again.result?.output, 'third', 'the session goes on at the instance that was frozen');
});

test('DS-2: after the database was away, what was reported is what is stored', async (t) => {
  const { postgres, one, other } = await startBoth(t);
  const programs = [one, other, one, other];
  const reports = programs.map((program, index) => slowTurn(program, `away-${index}`, 60 + 40 * index, 100));
  for (const index of programs.keys()) {
    await until('updates', async () => (await updatesOf(one, `away-${index}`)).length > 2, PATIENCE_MS);
  }
  await awayFor(postgres, 10_000);
  const answers = await Promise.all(reports);
  for (const [index, { result }] of (answers as readonly { readonly result?: Row }[]).entries()) {
    const [turn] = await until('its end', async () => {
      const turns = await turnsOf(one, `away-${index}`);
      return turns[0]?.status !== 'running' && turns;
    });
    // A caller who was told that the database is away knows nothing yet, and may ask again.
    if (result !== undefined) assert.equal(turn?.status, result.status, `turn ${index}: ${JSON.stringify(result)}`);
    // The built-in agent may fail for lack of the database. Nobody else could have ended its turn: it was away for all.
    assert.notEqual(turn?.code, 'TURN_INTERRUPTED', JSON.stringify(turn));
  }
});

async function awayFor(postgres: RealPostgres, ms: number): Promise<void> {
  await postgres.pause();
  await pause(ms);
  await postgres.start();
}

test('DS-3: an instance whose clock is ahead ends nothing of the others, and says so', async (t) => {
  const folder = await temporaryFolder(t);
  const script = join(folder, 'ahead.cjs');
  await writeFile(script, AHEAD);
  const { postgres, one } = await startBoth(t);
  const reported = slowTurn(one, 'clocks', 240, 50);
  await until('updates of the turn', async () => (await updatesOf(one, 'clocks')).length > 5, PATIENCE_MS);
  const args = ['--database', postgres.url];
  const environment = { NODE_OPTIONS: `--require ${script}` };
  const ahead = await startProgram(t, { args, environment });
  await until('the warning', () =>
    ahead.stderr().includes('the clock of this machine differs from that of the database'),
  );
  const ready = await fetch(`${ahead.url}/readyz`);
  const { clockDifferenceMs } = (await ready.json()) as { readonly clockDifferenceMs?: number };
  assert.equal(ready.status, 200);
  assert.ok(Math.abs(Number(clockDifferenceMs) - 90_000) < 60_000, `a difference of ${clockDifferenceMs} ms`);
  assert.equal((await get(one, '/readyz')).clockDifferenceMs, undefined);
  const { result } = (await reported) as { readonly result?: Row };
  assert.equal(result?.status, 'completed', JSON.stringify(result));
  assert.equal((await turnsOf(ahead, 'clocks'))[0]?.status, 'completed');
});

test('DS-3: the doctor says so, too', async (t) => {
  const folder = await temporaryFolder(t);
  const script = join(folder, 'ahead.cjs');
  await writeFile(script, AHEAD);
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const args = ['doctor', '--json', '--data-dir', join(folder, 'data'), '--database', postgres.url];
  const environment = { NODE_OPTIONS: `--require ${script}` };
  // It also looks for agents, which takes its time on a slow machine.
  const { stdout, stderr } = await runProgram(args, { environment, limitMs: 3 * PATIENCE_MS });
  assert.match(stdout, /"clock of the database"/, stderr);
  const { findings } = JSON.parse(stdout) as { readonly findings: readonly Row[] };
  const clock = findings.find(({ name }) => name === 'clock of the database');
  assert.equal(clock?.state, 'note');
  assert.match(String(clock?.text), /^this machine is \d+ s ahead of it; set both by NTP$/);
});

test('an instance without the database for cluster.outage stops its turns, and they are stored as interrupted', async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const args = ['--database', postgres.url];
  const [short, long] = [
    await startProgram(t, { args, environment: { TRESTLE_CLUSTER_OUTAGE: '9s' } }),
    await startProgram(t, { args, environment: { TRESTLE_CLUSTER_OUTAGE: '1h' } }),
  ];
  const stopped = slowTurn(short, 'stopped', 2_000, 50);
  const goesOn = slowTurn(long, 'goes-on', 150, 100);
  for (const [program, sessionId] of [[short, 'stopped'] as const, [long, 'goes-on'] as const]) {
    await until('updates', async () => (await updatesOf(program, sessionId)).length > 2, PATIENCE_MS);
  }
  await postgres.pause();
  await until('the end of the turns', () => short.stderr().includes('turns stopped: no database'), PATIENCE_MS);
  assert.doesNotMatch(long.stderr(), /turns stopped/);
  await postgres.start();
  const [turn] = await until(
    'its end to be stored',
    async () => {
      const turns = await turnsOf(long, 'stopped');
      return turns[0]?.status === 'failed' && turns;
    },
    PATIENCE_MS,
  );
  assert.equal(turn?.code, 'TURN_INTERRUPTED', JSON.stringify(turn));
  const { result, error } = (await stopped) as { readonly result?: Row; readonly error?: { readonly data?: Row } };
  // Its caller has got the stored end, or knows nothing yet.
  assert.equal(result?.code ?? error?.data?.code, result ? 'TURN_INTERRUPTED' : 'STORAGE_UNAVAILABLE');
  const after = (await call(short, 'session.start', {
    sessionId: 'stopped',
    taskPrompt: 'next',
    routing: BUILTIN,
  })) as {
    readonly result?: Row;
  };
  assert.equal(after.result?.output, 'next', JSON.stringify(after));
  const { result: whole } = (await goesOn) as { readonly result?: Row };
  if (whole !== undefined) assert.equal(whole.status, 'completed', JSON.stringify(whole));
});
