import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdir, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { inTime } from '../kit/in-time.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';
import { startPiped } from './piped-program.ts';

const PATIENCE_MS = 60_000;
const REQUESTS = 100;
const LOST_MS = 2_000;
/** Longer than the pause before a worker that has failed is started again. */
const SETTLED_MS = 3_000;
const [FIRST, SECOND] = ['first-token-of-this-test', 'second-token-of-this-test'];

const postgres = await startPostgres();
after(() => postgres.stop());

async function startWorkers(token: string): Promise<{ readonly program: RunningProgram; readonly file: string }> {
  const folder = await temporaryFolder({ after });
  const file = join(folder, 'trestle.yaml');
  await writeToken(file, token);
  const args = ['--workers', '2', '--database', postgres.url, '--config', file];
  return { program: await startProgram({ after }, { args, dataDirectory: join(folder, 'data') }), file };
}

async function writeToken(file: string, token: string): Promise<void> {
  await writeFile(file, `bridge: { auth_token: ${token} }\ncluster: { notice: 500ms }\n`);
}

/** On a connection of its own, so that the parent chooses who serves it. */
function call(url: string, token: string, path: string, body?: object): Promise<Response> {
  const headers = { authorization: `Bearer ${token}`, connection: 'close', 'content-type': 'application/json' };
  return fetch(`${url}${path}`, {
    headers,
    ...(body !== undefined && { method: 'POST', body: JSON.stringify(body) }),
  });
}

const rpc = (method: string, params: object) => ({ jsonrpc: '2.0', id: '1', method, params });

interface Listed {
  readonly id: string;
  readonly address: string;
  readonly state: string;
  readonly isThis: boolean;
}

async function instancesAt(url: string, token: string): Promise<readonly Listed[]> {
  const response = await call(url, token, '/api/system/instances');
  assert.equal(response.status, 200);
  return ((await response.json()) as { instances: readonly Listed[] }).instances;
}

const serving = (all: readonly Listed[]) => all.filter(({ state }) => state === 'serving');

test('two workers serve one address: half of the connections each, one sum of figures, and any of them takes any call', async (t) => {
  const { program, file } = await startWorkers(FIRST);
  const { url } = program;
  assert.equal(program.summary.workers, 2);
  const counts = new Map<string, number>();
  for (let request = 0; request < REQUESTS; request += 1) {
    const all = await instancesAt(url, FIRST);
    assert.equal(all.length, 2);
    assert.notEqual(all[0]?.address, all[1]?.address, 'each has an address of its own for the others');
    const id = all.find(({ isThis }) => isThis)?.id ?? '';
    counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  t.diagnostic(`requests by worker: ${[...counts.values()].join(' and ')} of ${REQUESTS}`);
  for (const count of counts.values()) assert.ok(count >= 0.4 * REQUESTS && count <= 0.6 * REQUESTS, String(count));

  for (let round = 0; round < 2; round += 1) {
    const metrics = await (await call(url, '', '/metrics')).text();
    const line = metrics
      .split('\n')
      .find((one) => one.includes('http_requests_total') && one.includes('/api/system/instances'));
    assert.equal(line?.split(' ').at(-1), String(REQUESTS), 'the sum of both, whichever worker is asked');
    assert.match(metrics, /^process_cpu_seconds_total \d/m);
  }

  const routing = { explicitProviderId: 'builtin', explicitModel: 'demo/echo?delay=50' };
  const taskPrompt = Array.from({ length: 2000 }, (_, index) => `word${index}`).join(' ');
  const turn = call(url, FIRST, '/acp/rpc', rpc('session.start', { sessionId: 's', taskPrompt, routing }));
  await until(
    'updates of the turn',
    async () => {
      const response = await call(url, FIRST, '/api/bridge/sessions/s/updates');
      return response.status === 200 && ((await response.json()) as { updates: readonly unknown[] }).updates.length > 3;
    },
    PATIENCE_MS,
  );
  // The one after the other goes to the other worker, wherever the turn runs.
  const statuses = [];
  for (let round = 0; round < 2; round += 1) {
    const response = await call(url, FIRST, `/api/bridge/sessions/s/turns`);
    const { turns } = (await response.json()) as { turns: readonly { status: string }[] };
    statuses.push(turns[0]?.status);
  }
  assert.deepEqual(statuses, ['running', 'running']);
  await call(url, FIRST, '/acp/rpc', rpc('session.cancel', { sessionId: 's' }));
  await call(url, FIRST, '/acp/rpc', rpc('session.cancel', { sessionId: 's' }));
  const { result } = (await (await turn).json()) as { result?: { status: string } };
  assert.equal(result?.status, 'cancelled', JSON.stringify(result));

  await writeToken(file, SECOND);
  program.child.kill('SIGHUP');
  await until(
    'both workers to have read the new token',
    async () => {
      const answers = await Promise.all([1, 2, 3, 4].map(() => call(url, SECOND, '/api/system/instances')));
      return answers.every(({ status }) => status === 200);
    },
    PATIENCE_MS,
  );
  const old = await Promise.all([1, 2, 3, 4].map(() => call(url, FIRST, '/api/system/instances')));
  assert.deepEqual(new Set(old.map(({ status }) => status)), new Set([401]));
  assert.equal(await program.stop(), 0);
});

test('SIGUSR2 replaces the workers one after the other, and no call fails; one that dies is replaced too', async (t) => {
  const { program } = await startWorkers(FIRST);
  const { url } = program;
  const before = (await instancesAt(url, FIRST)).map(({ id }) => id);
  const failures: string[] = [];
  let calls = 0;
  let isOver = false;
  async function client(number: number): Promise<void> {
    for (let turn = 0; !isOver; turn += 1) {
      calls += 1;
      const params = {
        sessionId: `s-${number}-${turn}`,
        taskPrompt: 'hello',
        routing: { explicitProviderId: 'builtin' },
      };
      // Connections are kept, as most clients do.
      const headers = { authorization: `Bearer ${FIRST}`, 'content-type': 'application/json' };
      const body = JSON.stringify(rpc('session.start', params));
      await fetch(`${url}/acp/rpc`, { method: 'POST', headers, body }).then(
        async (response) => {
          const text = await response.text();
          if (response.status !== 200 || !text.includes('"completed"')) failures.push(`${response.status} ${text}`);
        },
        (error: Error) => failures.push(`${error.message} ${String(error.cause)}`),
      );
    }
  }
  const clients = [1, 2].map(client);
  await until('the first calls', () => calls > 10, PATIENCE_MS);
  const from = performance.now();
  program.child.kill('SIGUSR2');
  const replaced = await until(
    'two other workers',
    async () => {
      const all = serving(await instancesAt(url, FIRST));
      return all.length === 2 && all.every(({ id }) => !before.includes(id)) && all;
    },
    2 * PATIENCE_MS,
  );
  t.diagnostic(`replaced in ${Math.round(performance.now() - from)} ms, ${calls} calls`);
  isOver = true;
  await Promise.all(clients);
  assert.deepEqual(failures, []);

  const pids = [...program.stderr().matchAll(/"pid":(\d+)[^\n]*"msg":"worker started"/g)].map((match) =>
    Number(match[1]),
  );
  process.kill(pids.at(-1) ?? 0, 'SIGKILL');
  await until(
    'a worker in the place of the dead one',
    async () => {
      // A connection that was handed to the dead one in its last moment gets no response.
      const all = await inTime('the list', instancesAt(url, FIRST), LOST_MS).catch(() => []);
      const ids = replaced.map(({ id }) => id);
      return serving(all).filter(({ id }) => !ids.includes(id)).length === 1;
    },
    PATIENCE_MS,
  );
  assert.equal(await program.stop(), 0);
});

test('signals during the start, in a burst, and beside a dead worker leave one worker in each place, and the next one works', async (t) => {
  const folder = await temporaryFolder(t);
  const file = join(folder, 'trestle.yaml');
  await writeToken(file, FIRST);
  const place = ['--listen', '127.0.0.1:0', '--data-dir', join(folder, 'data'), '--database', postgres.url];
  const args = ['serve', '--json', '--workers', '2', '--config', file, ...place];
  const key = { TRESTLE_SECRET_KEY: Buffer.alloc(32, 1).toString('base64') };
  const { child, stderr } = startPiped(t, args, key);
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  const lines = (message: string) =>
    stderr()
      .split('\n')
      .filter((line) => line.includes(`"msg":"${message}"`))
      .map((line) => JSON.parse(line) as { readonly worker: number; readonly pid: number });
  /** The places of the workers that run. */
  const running = () => {
    const ended = new Set(lines('worker ended').map(({ pid }) => pid));
    return lines('worker started').filter(({ pid }) => !ended.has(pid));
  };
  const burst = async () => {
    for (let signal = 0; signal < 10; signal += 1) {
      child.kill('SIGUSR2');
      child.kill('SIGHUP');
      await pause(10);
    }
  };
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null;
  /** Waits until every place has one worker, and stays so. */
  async function settled(replacements: number): Promise<void> {
    let since = performance.now();
    let seen = '';
    await until(
      'one worker in each place',
      () => {
        assert.ok(!hasEnded(), stderr());
        const now = `${lines('worker started').length} ${lines('worker ended').length}`;
        if (now !== seen) since = performance.now();
        seen = now;
        const isQuiet = performance.now() - since > SETTLED_MS && lines('worker replaced').length >= replacements;
        return isQuiet && running().length === 2;
      },
      2 * PATIENCE_MS,
    );
    assert.deepEqual(new Set(running().map(({ worker }) => worker)), new Set([1, 2]));
  }

  await until('the first worker to start', () => running().length === 1, PATIENCE_MS);
  await burst();
  await until('the summary', () => hasEnded() || output.includes('\n'), PATIENCE_MS);
  await settled(2);
  assert.equal(lines('worker replaced').length, 2, 'the signals of the start are one round');

  // The place is empty for a second: the restart and the replacement meet there.
  process.kill(running().at(-1)?.pid ?? 0, 'SIGKILL');
  await until('the end of the worker', () => running().length === 1, PATIENCE_MS);
  await burst();
  await settled(4);
  const replaced = lines('worker replaced').length;
  assert.ok(replaced <= 6, `a burst is the round that runs and one more: ${replaced - 2} replacements`);

  const before = running().map(({ pid }) => pid);
  child.kill('SIGUSR2');
  await settled(replaced + 2);
  assert.deepEqual(
    running().filter(({ pid }) => before.includes(pid)),
    [],
  );
  child.kill('SIGTERM');
  await inTime('the end', once(child, 'exit'), PATIENCE_MS);
  assert.equal(child.exitCode, 0);
  assert.deepEqual(running(), []);
});

test('with --workers, too, a taken port or a missing credential is one line, and leaves nothing behind', async (t) => {
  const taken = createServer().listen(0, '127.0.0.1');
  t.after(() => taken.close());
  await once(taken, 'listening');
  const { port } = taken.address() as AddressInfo;
  const cases = [
    { listen: `127.0.0.1:${port}`, exit: 1, text: `Port ${port} on 127.0.0.1 is in use by node` },
    { listen: '0.0.0.0:0', exit: 78, text: 'set BRIDGE_AUTH_TOKEN and COMPLETIONS_MASTER_KEY, listen on 127.0.0.1' },
  ];
  for (const { listen, exit, text } of cases) {
    const folder = await temporaryFolder(t);
    const place = ['--database', postgres.url, '--data-dir', join(folder, 'data'), '--listen', listen];
    const { code, stderr } = await runProgram(['serve', '--workers', '2', ...place]);
    assert.equal(code, exit, stderr);
    assert.equal(stderr.trim().split('\n').length, 1, stderr);
    assert.ok(stderr.includes(text), stderr);
    assert.deepEqual(await readdir(folder), [], text);
  }
});

test('--workers is refused on SQLite, with the reason', async () => {
  const { code, stderr } = await runProgram([
    'serve',
    '--workers',
    '2',
    '--data-dir',
    await temporaryFolder({ after }),
  ]);
  assert.equal(code, 78);
  assert.match(stderr, /--workers needs PostgreSQL: set database\.url/);
});
