import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { freePort } from '../kit/free-port.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const CONFIGURATION_EXIT = 78;

test('DU-6: the banner names the services that need no token', async (t) => {
  const one = await startProgram(t, { environment: { BRIDGE_AUTH_TOKEN: 'b'.repeat(40) } });
  assert.match(String(one.summary.exposure), /no token needed for completions$/);
  const none = await startProgram(t);
  assert.match(String(none.summary.exposure), /no token needed for bridge and completions$/);
});

test('DU-7: a data directory that cannot be created is a one-line error', async () => {
  for (const folder of ['/proc/x', '/proc/x/y/z', '/dev/null/x']) {
    const { code, stderr } = await runProgram(['serve', '--listen', '127.0.0.1:0', '--data-dir', folder]);
    assert.equal(code, CONFIGURATION_EXIT, stderr);
    assert.match(
      stderr,
      /^trestle: The data directory \S+ cannot be used \([^)]+\); choose another with --data-dir\.\n$/,
    );
  }
  const backup = await runProgram(['backup', '/proc/x/backup', '--data-dir', '/proc/y']);
  assert.equal(backup.code, CONFIGURATION_EXIT, backup.stderr);
});

test('DU-9: a database that is down, a wrong password and a missing database have messages of their own', async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const password = 'hunter2hunter2';
  const at = (change: (url: URL) => void) => {
    const url = new URL(postgres.url);
    change(url);
    return url.href;
  };
  const port = await freePort();
  const cases = [
    [at((url) => Object.assign(url, { port: String(port), password })), new RegExp(`nothing listens on \\S+:${port}`)],
    [at((url) => Object.assign(url, { password })), /refuses user "\w+" \(wrong password/],
    [
      at((url) => Object.assign(url, { pathname: '/nowhere' })),
      /no database "nowhere" on \S+; create it: createdb nowhere/,
    ],
  ] as const;
  const dataDirectory = await temporaryFolder(t);
  for (const [url, expected] of cases) {
    const args = ['--data-dir', dataDirectory, '--database', url];
    const serve = await runProgram(['serve', '--listen', '127.0.0.1:0', ...args]);
    assert.equal(serve.code, 1, serve.stderr);
    const doctor = await runProgram(['doctor', ...args]);
    for (const text of [serve.stderr, doctor.stdout]) {
      assert.match(text, expected);
      assert.ok(!text.includes(password), text);
    }
  }
});

test('DU-21: a server that npm started drains and ends when npm is stopped', async (t) => {
  const port = await freePort();
  const dataDirectory = await temporaryFolder(t);
  const npm = spawn('npm', ['start', '--', '--listen', `127.0.0.1:${port}`, '--data-dir', dataDirectory], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: true,
  });
  t.after(() => {
    try {
      process.kill(-(npm.pid ?? 0), 'SIGKILL');
    } catch {
      // It has ended.
    }
  });
  npm.stdout.resume();
  await until('the server is ready', async () => (await reach(port)) === 200, 60_000);
  const server = Number.parseInt(readFileSync(`${dataDirectory}/bridge.db.pid`, 'utf8'), 10);
  npm.kill('SIGKILL');
  await once(npm, 'exit');
  await until('the server has ended', () => !isAlive(server), 60_000);
  assert.equal(await reach(port), undefined);
});

async function reach(port: number): Promise<number | undefined> {
  await sleep(100);
  return fetch(`http://127.0.0.1:${port}/readyz`).then(
    ({ status }) => status,
    () => undefined,
  );
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
