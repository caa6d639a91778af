import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

type Listed = Readonly<Record<string, unknown>>;

const PATIENCE_MS = 60_000;
const postgres = await startPostgres();
after(() => postgres.stop());
const args = ['--database', postgres.url];

async function listOf({ url }: RunningProgram): Promise<readonly Listed[]> {
  const response = await fetch(`${url}/api/system/instances`);
  assert.equal(response.status, 200);
  return ((await response.json()) as { instances: readonly Listed[] }).instances;
}

async function command() {
  return runProgram(['cluster', ...args, '--data-dir', await temporaryFolder({ after })]);
}

test('operators see every instance: its work, its clock, its lease, and whether its settings agree', async (t) => {
  const script = join(await temporaryFolder(t), 'behind.cjs');
  await writeFile(script, 'const now = Date.now;\nDate.now = () => now() - 60_000;\n');
  const one = await startProgram(t, { args });
  const same = await startProgram(t, { args });
  const digests = new Set((await listOf(one)).map(({ settingsDigest }) => settingsDigest));
  assert.equal(digests.size, 1, 'the same settings have the same digest, wherever an instance listens');
  assert.match(String([...digests][0]), /^[0-9a-f]{16}$/);

  const other = await startProgram(t, {
    args,
    environment: { NODE_OPTIONS: `--require ${script}`, TRESTLE_JOBS_MAX_RUNNING: '3' },
  });
  const socket = new WebSocket(`${one.url.replace(/^http/, 'ws')}/acp`);
  t.after(() => socket.close());
  const params = {
    sessionId: 'slow',
    taskPrompt: Array.from({ length: 600 }, (_, index) => `word${index}`).join(' '),
    routing: { explicitProviderId: 'builtin', explicitModel: 'demo/echo?delay=50' },
  };
  const turn = fetch(`${one.url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: '1', method: 'session.start', params }),
  }).catch(() => undefined);
  const found = await until(
    'the report of the socket and the session',
    async () => {
      const all = await listOf(same);
      return all.some(({ sockets, sessions }) => sockets === 1 && sessions === 1) && all;
    },
    PATIENCE_MS,
  );
  assert.equal(found.length, 3);
  const rows = [one, same, other].map(({ url }) => found.find(({ address }) => address === url) ?? {});
  assert.deepEqual(
    rows.map(({ isThis, state, sessions, sockets }) => [isThis, state, sessions, sockets]),
    [
      [false, 'serving', 1, 1],
      [true, 'serving', 0, 0],
      [false, 'serving', 0, 0],
    ],
  );
  for (const { leaseMs } of rows) assert.ok(Number(leaseMs) > 0 && Number(leaseMs) <= 8_000, String(leaseMs));
  const differences = rows.map(({ clockDifferenceMs }) => Math.round(Number(clockDifferenceMs) / 10_000));
  assert.deepEqual(differences.map(Math.abs), [0, 0, 6]);
  assert.equal(rows[0]?.settingsDigest, rows[1]?.settingsDigest);
  assert.notEqual(rows[0]?.settingsDigest, rows[2]?.settingsDigest);

  const { code, stdout, stderr } = await command();
  assert.equal(code, 0, stderr);
  assert.equal(stdout.split('\n').filter((line) => line.startsWith('ins_')).length, 3, stdout);
  assert.doesNotMatch(stdout, /-0\.0 s/);
  assert.match(stdout, new RegExp(`The clock of ${rows[2]?.id} differs from that of the database`));
  assert.match(stdout, /The settings differ between instances/);

  other.child.kill('SIGSTOP');
  t.after(() => other.child.kill('SIGCONT'));
  const silent = await until(
    'the end of its lease, or the others to remove it',
    async () => {
      const found = (await listOf(one)).find(({ id }) => id === rows[2]?.id);
      return (found === undefined || found.state === 'silent') && { found };
    },
    PATIENCE_MS,
  );
  t.diagnostic(`a frozen instance is listed as ${silent.found?.state ?? 'absent'}`);
  await one.stop('SIGKILL');
  await turn;
});

test('on SQLite there is nothing to list: the command says why, and ends with 78', async () => {
  const { code, stderr } = await runProgram(['cluster', '--data-dir', await temporaryFolder({ after })]);
  assert.equal(code, 78);
  assert.match(stderr, /trestle cluster needs PostgreSQL: set database\.url/);
});
