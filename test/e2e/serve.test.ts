import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, readdir, stat, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { ownSqliteFile } from '../../src/platform/database/sqlite/sqlite-file.ts';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';
import { startPiped } from './piped-program.ts';

test('O-08: SIGTERM drains and ends with 0, and takes its files away', async (t) => {
  const program = await startProgram(t);
  assert.deepEqual((await readdir(program.dataDirectory)).includes('bridge.sock'), true);
  assert.equal(await program.stop('SIGTERM'), 0);
  assert.deepEqual((await readdir(program.dataDirectory)).includes('bridge.sock'), false);
  assert.match(program.stderr(), /"msg":"stopped"/);
});

test('O-08: while a request is under way the first signal waits, a second one ends immediately', async (t) => {
  const program = await startProgram(t);
  const slow = connect(program.port, '127.0.0.1');
  t.after(() => slow.destroy());
  await once(slow, 'connect');
  slow.write('POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n');
  slow.write('Content-Length: 100\r\n\r\n{');
  await new Promise((resolve) => setTimeout(resolve, 200));
  program.child.kill('SIGTERM');
  await until('it to be no longer ready', async () => (await fetch(`${program.url}/readyz`)).status === 503);
  const refused = await fetch(`${program.url}/v1/models`);
  assert.equal(refused.status, 503);
  assert.equal(program.child.exitCode, null);
  program.child.kill('SIGTERM');
  await once(program.child, 'exit');
  assert.equal(program.child.exitCode, 1);
});

test('O-08: SIGHUP with a broken configuration changes nothing and says so', async (t) => {
  const folder = await temporaryFolder(t);
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, 'bridge: { auth_token: first-token-1234567890 }\n', { mode: 0o600 });
  const program = await startProgram(t, { args: ['--config', config] });
  const ping = (token: string) => fetch(`${program.url}/api/ping`, { headers: { authorization: `Bearer ${token}` } });
  await writeFile(config, 'bridge: { auth_tokn: x }\n');
  program.child.kill('SIGHUP');
  await until('the complaint about the settings', () => program.stderr().includes('not read again'));
  assert.match(program.stderr(), /auth_token/);
  assert.equal((await ping('first-token-1234567890')).status, 200);
  await writeFile(config, 'bridge: { auth_token: second-token-1234567890 }\nlisten: 127.0.0.1:1\n');
  program.child.kill('SIGHUP');
  await until('the second token to count', async () => (await ping('second-token-1234567890')).status === 200);
  assert.equal((await ping('first-token-1234567890')).status, 401);
  await program.stop();
  assert.equal(/(first|second)-token-1234567890/.test(program.stderr()), false);
});

test('SIGHUP during the start does not end the server, and is not lost: what was written before it counts', async (t) => {
  const folder = await temporaryFolder(t);
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, 'bridge: { auth_token: first-token-1234567890 }\n', { mode: 0o600 });
  // A command has the data, so the server waits for it after it has read its settings.
  const command = await ownSqliteFile(join(folder, 'data', 'bridge.db'), 'command');
  t.after(() => command.release());
  const server = startPiped(t, [
    'serve',
    '--listen',
    '127.0.0.1:0',
    '--config',
    config,
    '--data-dir',
    join(folder, 'data'),
  ]);
  await until('the server to wait', () => server.stderr().includes('waiting for a command'));
  await writeFile(config, 'bridge: { auth_token: second-token-1234567890 }\n');
  for (let signal = 0; signal < 20; signal += 1) {
    server.child.kill('SIGHUP');
    await pause(5);
  }
  command.release();
  const ended = () => server.child.exitCode ?? server.child.signalCode;
  await until('a reload', () => ended() !== null || server.stderr().includes('configuration read again'));
  assert.equal(ended(), null, server.stderr());
  assert.match(server.stderr(), /"changed":\["bridge\.auth_token"\]/);
  assert.equal(server.stderr().split('configuration read again').length - 1, 1, 'twenty signals are one reload');
  server.child.kill('SIGUSR2');
  await until('a word about SIGUSR2', () => server.stderr().includes('this server has none'));
  assert.equal(ended(), null);
});

test('O-09: a port in use is one line that names it and who holds it, with exit code 1', async (t) => {
  const first = await startProgram(t);
  const folder = await temporaryFolder(t);
  const args = ['serve', '--data-dir', join(folder, 'data'), '--listen', `127.0.0.1:${first.port}`];
  const { code, stderr } = await runProgram(args);
  assert.equal(code, 1);
  assert.equal(stderr.trim().split('\n').length, 1);
  assert.match(stderr, new RegExp(`${first.port}`));
  assert.match(stderr, new RegExp(`pid ${first.pid}`));
  assert.deepEqual(await readdir(folder), [], 'a refused start leaves nothing behind');
});

const OPEN_CASES: readonly { environment: Readonly<Record<string, string>>; service?: string; needed: string }[] = [
  { environment: {}, needed: 'set BRIDGE_AUTH_TOKEN and COMPLETIONS_MASTER_KEY,' },
  { environment: { BRIDGE_AUTH_TOKEN: 'token-of-this-test-1' }, needed: 'set COMPLETIONS_MASTER_KEY,' },
  { environment: { BRIDGE_REVIEW_AUTH_TOKEN: 'token-of-this-test-1' }, needed: 'set COMPLETIONS_MASTER_KEY,' },
  { environment: { COMPLETIONS_MASTER_KEY: 'key-of-this-test-123' }, needed: 'set BRIDGE_AUTH_TOKEN,' },
  { environment: {}, service: 'completions', needed: 'set COMPLETIONS_MASTER_KEY,' },
];

test('B-24: a public address without a credential is refused with 78 and one line, and leaves nothing behind', async (t) => {
  for (const { environment, service, needed } of OPEN_CASES) {
    const folder = await temporaryFolder(t);
    const place = ['--data-dir', join(folder, 'data'), '--listen', '0.0.0.0:0'];
    const args = ['serve', ...(service === undefined ? [] : [service]), ...place];
    const { code, stderr } = await runProgram(args, { environment });
    assert.equal(code, 78, stderr);
    assert.equal(stderr.trim().split('\n').length, 1, stderr);
    assert.ok(stderr.includes(needed) && stderr.includes('--insecure'), stderr);
    assert.deepEqual(await readdir(folder), [], needed);
  }
});

test('beside a server that does not answer, a start and commands say what they wait for, and doctor says so', async (t) => {
  const first = await startProgram(t);
  const place = ['--data-dir', first.dataDirectory, '--listen', '127.0.0.1:0'];
  first.child.kill('SIGSTOP');
  const { code, stdout } = await runProgram(['doctor', ...place]);
  assert.equal(code, 1);
  assert.match(stdout, new RegExp(`broken +server +runs but does not respond; .*kill -9 ${first.pid}`));
  for (const words of [['serve'], ['key', 'list'], ['sessions', 'list']]) {
    const second = startPiped(t, [...words, ...place]);
    await until('the line that says what is waited for', () => second.stderr().includes('waiting for the server'));
    assert.equal(second.child.exitCode, null, 'it is said before the wait is over');
    assert.ok(second.stderr().includes(`(pid ${first.pid}) of the data directory ${first.dataDirectory}`));
    second.child.kill('SIGKILL');
    await second.end();
    assert.equal(second.stderr().split('waiting for').length, 2, 'it is said once');
  }
});

test('a second server on the same data is refused with the address and the process id of the first', async (t) => {
  const first = await startProgram(t);
  for (const port of [0, first.port]) {
    const args = ['serve', '--data-dir', first.dataDirectory, '--listen', `127.0.0.1:${port}`];
    const { code, stderr } = await runProgram(args);
    assert.equal(code, 1);
    // On a loaded machine a line of the log may say before that the first one is waited for.
    const lines = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('{'));
    assert.equal(lines.length, 1, stderr);
    assert.ok(stderr.includes(`already running on the data directory ${first.dataDirectory}: ${first.url}`), stderr);
    assert.ok(stderr.includes(`(pid ${first.pid})`) && stderr.includes('--data-dir'), stderr);
  }
});

test('of two servers that start at the same moment one says where the other listens', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const started = await Promise.allSettled([startProgram(t, { dataDirectory }), startProgram(t, { dataDirectory })]);
  const [running] = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  const refused = started.flatMap((one) => (one.status === 'rejected' ? [String(one.reason)] : []));
  assert.equal(refused.length, 1);
  assert.ok(refused[0]?.includes(`${running?.url} (pid ${running?.pid})`), refused[0]);
});

test('services may run apart on one data directory', async (t) => {
  const bridge = await startProgram(t, { args: ['bridge'] });
  const { dataDirectory } = bridge;
  const completions = await startProgram(t, { args: ['completions'], dataDirectory });
  const accounts = await startProgram(t, { args: ['accounts'], dataDirectory });
  assert.equal((await fetch(`${completions.url}/v1/models`)).status, 200);
  assert.equal((await fetch(`${completions.url}/api/ping`)).status, 404);
  assert.deepEqual(await (await fetch(`${accounts.url}/healthz`)).json(), { status: 'ok' });
});

test('after kill -9 the next start takes over immediately', async (t) => {
  const first = await startProgram(t);
  assert.equal(await first.stop('SIGKILL'), 'SIGKILL');
  const second = await startProgram(t, { dataDirectory: first.dataDirectory });
  assert.equal((await fetch(`${second.url}/readyz`)).status, 200);
  assert.equal(await second.stop(), 0);
});

test('a data directory that cannot be used is one line, with exit code 78', async (t) => {
  const folder = await temporaryFolder(t);
  const file = join(folder, 'file');
  await writeFile(file, '');
  const { code, stderr } = await runProgram(['serve', '--data-dir', join(file, 'data')]);
  assert.equal(code, 78);
  assert.match(stderr, /^trestle: The data directory .*it is a file.*--data-dir/);
  assert.equal(stderr.trim().split('\n').length, 1);
});

test('a data directory of another user is refused', { skip: process.getuid?.() !== 0 }, async (t) => {
  const folder = await temporaryFolder(t);
  await chmod(folder, 0o700);
  const entry = join(import.meta.dirname, '../../src/main.ts');
  // Not everybody who is root has the folder of `runuser` on the path.
  const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };
  const runAsNobody = (...command: readonly string[]) =>
    execFileSync('runuser', ['-u', 'nobody', '--', ...command], { stdio: 'pipe', env });
  try {
    runAsNobody('test', '-r', entry);
  } catch {
    t.skip('the project lies in a folder that others cannot read');
    return;
  }
  try {
    runAsNobody(process.execPath, entry, 'serve', '--data-dir', folder);
    assert.fail('it must not start');
  } catch (error) {
    const { status, stderr } = error as { status: number; stderr: Buffer };
    assert.equal(status, 78, String(stderr));
    assert.match(String(stderr), /EACCES/);
  }
});

test('what is stored is for its owner only', async (t) => {
  const program = await startProgram(t);
  const files = await readdir(program.dataDirectory);
  assert.ok(files.includes('bridge.db'));
  assert.ok(files.includes('secret.key'));
  for (const name of files) {
    const { mode } = await stat(join(program.dataDirectory, name));
    assert.equal(mode & 0o077, 0, name);
  }
});

test('a secret key that others can read ends the start with 78, and doctor says so', async (t) => {
  const program = await startProgram(t);
  await program.stop();
  await chmod(join(program.dataDirectory, 'secret.key'), 0o644);
  const args = ['--data-dir', program.dataDirectory, '--listen', '127.0.0.1:0'];
  const { code, stderr } = await runProgram(['serve', ...args]);
  assert.equal(code, 78);
  assert.match(stderr, /chmod 600/);
  const doctor = await runProgram(['doctor', ...args]);
  assert.equal(doctor.code, 1);
  assert.match(doctor.stdout, /broken +secret key/);
});

test('the first screen shows where each service is and a call that works as printed', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const program = await startProgram(t, { dataDirectory });
  await program.stop();
  const child = await import('node:child_process').then(({ spawn }) =>
    spawn(process.execPath, [join(import.meta.dirname, '../../src/main.ts'), 'serve', '--data-dir', dataDirectory], {
      env: { PATH: process.env.PATH, HOME: dataDirectory, TRESTLE_LISTEN: `127.0.0.1:${program.port}` },
      stdio: ['ignore', 'pipe', 'ignore'],
    }),
  );
  t.after(() => child.kill('SIGKILL'));
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  await until('the start page', () => text.includes('Try'));
  assert.match(text, /Bridge {8}ws:\/\/127\.0\.0\.1:\d+\/acp/);
  assert.match(text, /OPENAI_BASE_URL=http:\/\/127\.0\.0\.1:\d+\/v1/);
  assert.match(text, /Agents {8}builtin ok \(demo\/echo\) {3}codex /);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: no colours where there is no terminal
  assert.equal(/\u001b/.test(text), false);
  const [, words = ''] = /Try\s+trestle (.*)/.exec(text) ?? [];
  assert.equal(words, `run "Hello" --data-dir ${dataDirectory}`);
  const workingDirectory = await temporaryFolder(t);
  const { stdout, stderr } = await runProgram(words.replaceAll('"', '').split(' '), { workingDirectory });
  assert.equal(stdout, 'Hello\n', stderr);
  assert.match(text, /Next\s+trestle init --data-dir \S+ {3}finds keys/);
});
