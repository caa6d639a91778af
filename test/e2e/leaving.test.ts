import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { inTime } from '../kit/in-time.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const PATIENCE_MS = 60_000;
const DRAIN_MS = 3_000;
const postgres = await startPostgres();
after(() => postgres.stop());
const args = ['--database', postgres.url];
const environment = { TRESTLE_CLUSTER_NOTICE: '4s', TRESTLE_CLUSTER_DRAIN: `${DRAIN_MS}ms` };

interface Listed {
  readonly id: string;
  readonly address: string;
  readonly state: string;
  readonly sessions: number;
}

async function instancesAt({ url }: RunningProgram): Promise<readonly Listed[]> {
  return ((await (await fetch(`${url}/api/system/instances`)).json()) as { instances: readonly Listed[] }).instances;
}

function slowTurn(sessionId: string): object {
  const routing = { explicitProviderId: 'builtin', explicitModel: 'demo/echo?delay=100' };
  const taskPrompt = Array.from({ length: 5000 }, (_, index) => `word${index}`).join(' ');
  return { jsonrpc: '2.0', id: sessionId, method: 'session.start', params: { sessionId, taskPrompt, routing } };
}

test('`trestle drain`: an instance hands new sessions over, closes its sockets with 1012, and gives its turns their time', async (t) => {
  const one = await startProgram(t, { args, environment });
  const other = await startProgram(t, { args, environment });
  const socket = new WebSocket(`${one.url.replace(/^http/, 'ws')}/acp`);
  const closed = new Promise<number>((resolve) => socket.addEventListener('close', ({ code }) => resolve(code)));
  await new Promise((resolve) => socket.addEventListener('open', resolve));
  const turn = fetch(`${one.url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(slowTurn('under-way')),
  });
  const id = await until(
    'the turn to run on the first instance',
    async () => (await instancesAt(other)).find(({ address, sessions }) => address === one.url && sessions === 1)?.id,
    PATIENCE_MS,
  );

  const drained = runProgram(['drain', id, ...args, '--data-dir', await temporaryFolder(t)], { environment });
  await until(
    'the instance to leave',
    async () => (await instancesAt(other)).some((listed) => listed.id === id && listed.state === 'leaving'),
    PATIENCE_MS,
  );
  assert.equal((await fetch(`${one.url}/readyz`)).status, 503);
  socket.send(JSON.stringify(slowTurn('new-session')));
  await until(
    'the new session to run on the other instance',
    async () => (await instancesAt(other)).some(({ address, sessions }) => address === other.url && sessions === 1),
    PATIENCE_MS,
  );
  assert.equal(await inTime('the socket to be closed', closed, PATIENCE_MS), 1012);
  const from = performance.now();
  const { result } = (await (await turn).json()) as { result?: { status: string; code: string } };
  assert.deepEqual([result?.status, result?.code], ['failed', 'TURN_INTERRUPTED'], JSON.stringify(result));
  t.diagnostic(`the turn under way had ${Math.round(performance.now() - from)} ms after the sockets`);
  const { code, stdout, stderr } = await drained;
  assert.equal(code, 0, stderr);
  assert.match(stdout, new RegExp(`^${id} has stopped$`, 'm'));
  await until('the process to end', () => one.child.exitCode === 0, PATIENCE_MS);
  assert.deepEqual(
    (await instancesAt(other)).map(({ address }) => address),
    [other.url],
  );
  await other.stop('SIGKILL');
});

test('`trestle drain` names an instance that does not run', async (t) => {
  const { code, stderr } = await runProgram(['drain', 'ins_gone', ...args, '--data-dir', await temporaryFolder(t)]);
  assert.equal(code, 1);
  assert.match(stderr, /No instance ins_gone is running; trestle cluster lists the running instances/);
});
