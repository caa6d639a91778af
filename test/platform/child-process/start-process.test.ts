import assert from 'node:assert/strict';
import { type StdioOptions, spawn } from 'node:child_process';
import { closeSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { type TestContext, test } from 'node:test';
import { childEnvironment } from '../../../src/platform/child-process/child-environment.ts';
import { startProcess } from '../../../src/platform/child-process/start-process.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { cwd, env, startShell, temporaryFolder } from '../../kit/processes.ts';
import { runToEnd } from '../../kit/run-to-end.ts';
import { until } from '../../kit/until.ts';

const limits = { timeoutMs: 10_000, maxOutputBytes: 100_000 };

async function textOf(stream: AsyncIterable<Buffer>): Promise<string> {
  let text = '';
  for await (const chunk of stream) text += chunk;
  return text;
}

test('B-56: arguments reach the program as data, whatever a shell would make of them', async () => {
  const args = ['; rm -rf /', '$(id)', '`id`', 'a\nb', '--flag', '*', '"\'', '', '|', '&& true', '\\', '%s', 'ünï'];
  const script = 'process.stdout.write(JSON.stringify(process.argv.slice(1)))';
  const { stdout, code } = await runToEnd({
    command: process.execPath,
    args: ['-e', script, '--', ...args],
    cwd,
    env,
    ...limits,
  });
  assert.equal(code, 0);
  assert.deepEqual(JSON.parse(stdout), args);
});

test('B-57: a child sees the allowed part of the environment and what it is given, and no more', async () => {
  // While coverage is measured, Node itself hands this one on to every child.
  delete process.env.NODE_V8_COVERAGE;
  const parent = {
    PATH: env.PATH,
    HOME: '/home/someone',
    LANG: 'C.UTF-8',
    LC_ALL: 'C.UTF-8',
    XDG_DATA_HOME: '/data',
    TZ: 'UTC',
    EMPTY: undefined,
    BRIDGE_AUTH_TOKEN: 'secret-1',
    TRESTLE_DATABASE_URL: 'postgres://u:secret-2@h/d',
    OPENAI_API_KEY: 'secret-3',
    AWS_SECRET_ACCESS_KEY: 'secret-4',
    NODE_OPTIONS: '--inspect',
    LD_PRELOAD: '/tmp/x.so',
    HTTPS_PROXY: 'http://u:secret-5@proxy',
    SSH_AUTH_SOCK: '/tmp/agent',
    lc_lower: 'x',
  };
  const extra = { FAKE_KEY: 'dummy', HOME: '/tmp/other' };
  const { stdout } = await runToEnd({ command: 'env', args: [], cwd, env: childEnvironment(parent, extra), ...limits });
  const marked = stdout.replace(/^_CHILD_OF_TRESTLE=[0-9a-f-]{36}$/m, 'the mark of what comes from it');
  assert.deepEqual(marked.trim().split('\n').sort(), [
    'FAKE_KEY=dummy',
    'HOME=/tmp/other',
    'LANG=C.UTF-8',
    'LC_ALL=C.UTF-8',
    `PATH=${env.PATH}`,
    'TZ=UTC',
    'XDG_DATA_HOME=/data',
    'the mark of what comes from it',
  ]);
});

test('a child has its three streams and none of our files and sockets, not even those we were started with', async (context) => {
  const folder = await temporaryFolder(context);
  const [inherited, own] = [openSync(join(folder, 'inherited'), 'w'), join(folder, 'own')];
  context.after(() => closeSync(inherited));
  // A parent of its own, so that it can be started with one descriptor too many.
  const script = `
    import { openSync } from 'node:fs';
    import { createServer } from 'node:net';
    import { startProcess } from './src/platform/child-process/start-process.ts';
    openSync(${JSON.stringify(own)}, 'w');
    const server = createServer().listen(0, '127.0.0.1');
    const options = { cwd: '/', env: { PATH: process.env.PATH } };
    const other = await startProcess({ command: 'cat', args: [], ...options });
    const args = ['-c', 'for fd in /proc/$$/fd/*; do readlink $fd; done; true'];
    const child = await startProcess({ command: 'sh', args, ...options });
    child.stdout.pipe(process.stdout);
    await child.exited;
    await other.stop({ graceMs: 0 });
    server.close();`;
  // Node itself closes low numbers in children, but not those above a gap.
  const stdio: StdioOptions = ['ignore', 'pipe', 'inherit', ...new Array(40).fill('ignore'), inherited];
  const parent = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio });
  const links = (await textOf(parent.stdout as Readable)).trim().split('\n');
  assert.equal(links.filter((link) => /^(pipe|socket):/.test(link)).length, 3, links.join());
  const others = links.filter((link) => !/^(pipe|socket):|^\/dev\/null$|^\/proc\/\d+\/fd$/.test(link));
  assert.deepEqual(others, []);
  assert.ok(links.includes('/dev/null'));
});

test('standard input and output are streams, and the end of the process is reported with its code', async (context) => {
  const child = await startShell(context, 'read line; echo "got $line"; exit 3');
  child.stdin.end('hello\n');
  assert.equal(await textOf(child.stdout), 'got hello\n');
  assert.deepEqual(await child.exited, { code: 3, signal: null, stderrTail: '' });
});

test('B-61: a process that is killed from outside is reported as ended by the signal', async (context) => {
  const child = await startShell(context, 'echo dying >&2; kill -SEGV $$');
  const { signal, stderrTail } = await child.exited;
  assert.equal(signal, 'SIGSEGV');
  assert.match(stderrTail, /dying/);
});

test('writing to a process that has gone does no harm', async (context) => {
  const child = await startShell(context, 'exit 0');
  await child.exited;
  child.stdin.write('x'.repeat(100_000));
  await new Promise((resolve) => setImmediate(resolve));
});

test('only the end of standard error is kept, without colours and control characters', async (context) => {
  const script = String.raw`i=0; while [ $i -lt 3000 ]; do echo "line $i ü"; i=$((i+1)); done >&2
    printf '\033[31mred\033[0m \033]0;title\007 bell\007 back\010 \302\233 nul\000 cr\r\nend' >&2`;
  const { stderrTail } = await (await startShell(context, script)).exited;
  assert.ok(Buffer.byteLength(stderrTail) <= 8192 + 64);
  const end = 'line 2999 ü\nred  bell\ufffd back\ufffd \ufffd nul\ufffd cr\nend';
  assert.ok(stderrTail.includes(end), stderrTail.slice(-80));
  assert.doesNotMatch(stderrTail, /line 100 /);
});

for (const [name, options, reason] of [
  ['a program that does not exist', { command: 'no-such-program-here' }, /no such program/],
  ['an absolute path where nothing is', { command: '/no/such/program' }, /no such program/],
  ['a working directory that does not exist', { cwd: '/no/such/folder' }, /working directory does not exist/],
  ['a working directory that is a file', { cwd: '/etc/passwd' }, /not a folder/],
  ['a file that is no program', { command: '/etc/passwd' }, /may not be executed/],
  ['an argument with a zero byte', { args: ['a\0b'] }, /ERR_INVALID_ARG_VALUE/],
  ['an empty command', { command: '' }, /ERR_INVALID_ARG_VALUE/],
  ['more arguments than the system takes', { args: ['x'.repeat(5_000_000)] }, /E2BIG/],
] as const) {
  test(`${name} is an error that says why`, async () => {
    const start = startProcess({ command: 'true', args: [], cwd, env, ...options });
    await assert.rejects(start, (error) => {
      assert.ok(error instanceof AppError && error.code === 'PROCESS_NOT_STARTED');
      assert.match(String(error.details.reason), reason);
      return true;
    });
  });
}

test('a process that cannot be noted in the journal does not run on unnoted', async (context: TestContext) => {
  const folder = await temporaryFolder(context);
  const file = join(folder, 'file');
  writeFileSync(file, '');
  const marker = join(folder, 'ran-on');
  const args = ['-c', `sleep 600; touch ${marker}`];
  const start = startProcess({ command: 'sh', args, cwd, env, journalFolder: join(file, 'journal') });
  await assert.rejects(start, { code: 'PROCESS_NOT_STARTED' });
  await until('its end', async () => {
    const { stdout } = await runToEnd({ command: 'sh', args: ['-c', 'cat /proc/[0-9]*/cmdline'], cwd, env, ...limits });
    return !stdout.includes(marker);
  });
});
