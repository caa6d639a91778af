import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { runCommandTool } from '../../../../src/bridge/agents/builtin/tools/run-command.ts';
import { childEnvironment } from '../../../../src/platform/child-process/child-environment.ts';
import { environment, toolContext, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { isAlive } from '../../../kit/processes.ts';
import { until } from '../../../kit/until.ts';

const shell = (script: string) => ({ command: 'sh', args: ['-c', script] });

test('a command gives its exit code and both of its outputs', async (context) => {
  const root = await workingDirectory(context);
  const { text, failed } = await runCommandTool.run(shell('echo out; echo err >&2; exit 3'), toolContext(root));
  assert.equal(text, '[exit code 3]\nout\n\n[standard error]\nerr');
  assert.equal(failed, undefined);
});

test('listen to a command from its start: nothing it prints is lost while the folder is being closed', async (context) => {
  const root = await workingDirectory(context);
  const given = toolContext(root);
  const closing = Promise.withResolvers<void>();
  const slow = {
    ...given.root,
    async open() {
      const folder = await given.root.open();
      return { ...folder, close: () => closing.promise.then(folder.close) };
    },
  };
  const { text } = await runCommandTool.run(shell('echo out'), { ...given, root: slow });
  assert.equal(text, '[exit code 0]\nout\n');
  closing.resolve();
});

test('B-56: arguments are data: nothing in them is expanded, and a flag stays one argument', async (context) => {
  const root = await workingDirectory(context);
  const args = ['%s\n', '; touch hacked', '$(touch hacked)', '`touch hacked`', '--version', '*', 'two words\nlines'];
  const { text } = await runCommandTool.run({ command: 'printf', args }, toolContext(root));
  assert.equal(text, `[exit code 0]\n${args.slice(1).join('\n')}\n`);
  assert.deepEqual(await readdir(root), []);
  const title = runCommandTool.title({ command: 'git', args: ['commit', '-m', 'a "b"\nc'] });
  assert.equal(title, 'git commit -m "a \\"b\\"\\nc"');
});

test('B-57: a command sees only what it may of the environment', async (context) => {
  const root = await workingDirectory(context);
  const secrets = { ...environment, OPENAI_API_KEY: 'secret-1', TRESTLE_DATABASE_URL: 'secret-2' };
  const given = toolContext(root, { environment: childEnvironment(secrets) });
  const { text } = await runCommandTool.run({ command: 'env' }, given);
  assert.match(text, /^PATH=/m);
  assert.doesNotMatch(text, /never-show-this|secret-\d/);
});

test('a command runs in the folder that it names, which must be inside', async (context) => {
  const root = await workingDirectory(context);
  await mkdir(join(root, 'inner'));
  const { text } = await runCommandTool.run({ command: 'pwd', working_directory: 'inner' }, toolContext(root));
  assert.equal(text, `[exit code 0]\n${join(root, 'inner')}\n`);
});

test('a program that is not there, or cannot be started, is reported to the model', async (context) => {
  const root = await workingDirectory(context);
  await writeFile(join(root, 'plain.txt'), 'x');
  for (const input of [
    { command: 'no-such-program' },
    { command: './plain.txt' },
    { command: 'a\0b' },
    { command: 'echo', args: ['\0'] },
  ]) {
    await assert.rejects(runCommandTool.run(input, toolContext(root)), { code: 'TOOL_CALL_REFUSED' });
  }
});

test('endless output is cut and the command is ended', async (context) => {
  const root = await workingDirectory(context);
  const { text, failed } = await runCommandTool.run({ command: 'yes', args: ['endless'] }, toolContext(root));
  assert.equal(failed, true);
  assert.match(text, /^\[ended, because it printed more than 16777216 bytes\]/);
  assert.match(text, /\n\[\d+ bytes left out\]\n/);
  assert.ok(text.length < 40_000);
});

test('long output keeps its beginning and its end, with whole characters only', async (context) => {
  const root = await workingDirectory(context);
  const script = 'process.stdout.write("x" + "€".repeat(40000) + "end")';
  const { text } = await runCommandTool.run({ command: process.execPath, args: ['-e', script] }, toolContext(root));
  assert.match(text, /^\[exit code 0\]\nx€+\n\[\d+ bytes left out\]\n€+end$/);
  assert.equal(text.includes('\ufffd'), false);
});

test('output that ends in the middle of a character comes through', async (context) => {
  const root = await workingDirectory(context);
  const { text } = await runCommandTool.run(shell("printf 'caf\\303'"), toolContext(root));
  assert.equal(text, '[exit code 0]\ncaf\ufffd');
});

test('B-62: a command that ignores SIGTERM and leaves grandchildren is gone after its time, all of it', async (context) => {
  const root = await workingDirectory(context);
  const script = "trap '' TERM; (trap '' TERM; echo $$; exec sleep 600) & echo $! > child; sleep 600";
  const started = performance.now();
  const { text, failed } = await runCommandTool.run(shell(script), toolContext(root, { timeoutMs: 400 }));
  assert.equal(failed, true);
  assert.match(text, /^\[ended after 400 ms\]/);
  assert.ok(performance.now() - started < 8_000);
  const child = Number(await readFile(join(root, 'child'), 'utf8'));
  await until('the child to be gone', () => !isAlive(child));
});

test('what a command leaves running in the background is ended with it', async (context) => {
  const root = await workingDirectory(context);
  const { text } = await runCommandTool.run(shell('sleep 600 & echo $!'), toolContext(root));
  assert.equal(isAlive(Number(/\n(\d+)/.exec(text)?.[1])), false);
});

test('a model may ask for less time, never for more', async (context) => {
  const root = await workingDirectory(context);
  const input = { command: 'sleep', args: ['600'], timeout_seconds: 3600 };
  const { text } = await runCommandTool.run(input, toolContext(root, { timeoutMs: 200 }));
  assert.match(text, /^\[ended after 200 ms\]/);
});

test('a cancelled turn ends its command immediately', async (context) => {
  const root = await workingDirectory(context);
  const aborter = new AbortController();
  const running = runCommandTool.run(
    shell("trap '' TERM; echo $$ > pid; sleep 600"),
    toolContext(root, {}, aborter.signal),
  );
  const pid = async () => Number(await readFile(join(root, 'pid'), 'utf8').catch(() => '0'));
  await until('the command to run', async () => (await pid()) > 0);
  aborter.abort();
  const { failed } = await running;
  assert.equal(failed, true);
  assert.equal(isAlive(await pid()), false);
});
