import assert from 'node:assert/strict';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { findExecutable } from '../../../src/platform/child-process/find-executable.ts';
import { runToEnd } from '../../../src/platform/child-process/run-to-end.ts';
import { until } from '../../fakes/until.ts';
import { cwd, env, isAlive, temporaryFolder } from './processes.ts';

const shell = (script: string, limits: { timeoutMs?: number; maxOutputBytes?: number } = {}) =>
  runToEnd({ command: 'sh', args: ['-c', script], cwd, env, timeoutMs: 10_000, maxOutputBytes: 1000, ...limits });

test('a short program is run to its end and its output collected', async () => {
  assert.deepEqual(await shell('cat; echo out; echo err >&2; exit 4'), {
    code: 4,
    signal: null,
    stdout: 'out\n',
    stderr: 'err',
  });
});

test('output beyond the limit is thrown away, and the program still ends', async () => {
  const { stdout, code } = await shell('head -c 5000000 /dev/zero | tr "\\0" x; exit 0', { maxOutputBytes: 100 });
  assert.equal(stdout, 'x'.repeat(100));
  assert.equal(code, 0);
});

test('B-62: a program that takes too long is ended with all it started', async (context) => {
  const folder = await temporaryFolder(context);
  const script = `trap '' TERM; sleep 60 & echo $! > ${folder}/pid; wait; wait; sleep 60`;
  await assert.rejects(shell(script, { timeoutMs: 300 }), { code: 'CALL_TIMEOUT', details: { timeoutMs: 300 } });
  const { stdout } = await shell(`cat ${folder}/pid`);
  assert.equal(isAlive(Number(stdout)), false);
});

test('a program that leaves something running does not keep us waiting', async () => {
  const { stdout } = await shell('sleep 60 & echo $!');
  const pid = Number(stdout);
  await until('the child to be gone', () => !isAlive(pid));
});

test('a program is found in the first folder of the path that has it, if it can be executed', async (context) => {
  const folder = await temporaryFolder(context);
  const [one, two] = [join(folder, 'one'), join(folder, 'two')];
  for (const place of [one, two]) {
    await mkdir(place);
    await writeFile(join(place, 'tool'), '');
  }
  await mkdir(join(one, 'folder'));
  assert.equal(await findExecutable('tool', `${one}:${two}`), undefined);
  await chmod(join(two, 'tool'), 0o755);
  assert.equal(await findExecutable('tool', `${one}:${two}`), join(two, 'tool'));
  await chmod(join(one, 'tool'), 0o755);
  assert.equal(await findExecutable('tool', `/none::${one}:${two}`), join(one, 'tool'));
  assert.equal(await findExecutable(join(two, 'tool'), ''), join(two, 'tool'));
  for (const name of ['', 'folder', 'missing', './tool', '../one/tool', 'to\0ol']) {
    assert.equal(await findExecutable(name, one), undefined, name);
  }
  assert.equal(await findExecutable('tool', ''), undefined);
});
