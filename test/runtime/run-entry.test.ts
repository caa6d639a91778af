import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { projectRoot } from '../architecture/source-file.ts';

/** Starts `scripts/run.cjs` on an entry with this text, as npm scripts do. */
function startEntry(t: TestContext, source: string, args: readonly string[] = []) {
  const folder = mkdtempSync(join(tmpdir(), 'trestle-run-'));
  const entry = join(folder, 'entry.ts');
  writeFileSync(entry, source);
  const child = spawn(process.execPath, ['scripts/run.cjs', entry, ...args], {
    cwd: projectRoot,
    env: { PATH: process.env.PATH, XDG_CACHE_HOME: folder },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.after(() => {
    child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  });
  return { child, entry, folder };
}

test('the entry sees its own path and the arguments, and its exit code is kept', async (t) => {
  const source = 'console.log(JSON.stringify(process.argv));\nprocess.exitCode = 3;';
  const { child, entry } = startEntry(t, source, ['serve', '--json']);
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'exit')]);
  assert.deepEqual(JSON.parse(output), [process.execPath, entry, 'serve', '--json']);
  assert.equal(code, 3);
});

test('a signal reaches the entry itself: there is no process in between', async (t) => {
  const source = `process.on('SIGTERM', () => process.exit(7));
    setInterval(() => {}, 1000);
    console.log(String(process.pid));`;
  const { child } = startEntry(t, source);
  const [line] = await once(child.stdout, 'data');
  assert.equal(Number(line), child.pid);
  child.kill('SIGTERM');
  assert.deepEqual(await once(child, 'exit'), [7, null]);
});

test('an entry that fails ends with 1, and the error is shown', async (t) => {
  const { child } = startEntry(t, "throw new Error('it broke');");
  const [errors, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  assert.match(errors, /it broke/);
  assert.equal(code, 1);
});

test('compiled code is kept in the cache folder of the user', async (t) => {
  const { child, folder } = startEntry(t, 'export const answer: number = 42;');
  await once(child, 'exit');
  assert.equal(readdirSync(join(folder, 'trestle/compile-cache')).length, 1);
});

test('the thread pool has a thread for each core, and some more', async (t) => {
  const { child } = startEntry(t, 'console.log(process.env.UV_THREADPOOL_SIZE);');
  assert.ok(Number(await text(child.stdout)) > availableParallelism());
});

test('the program has the same flags from npm and from its package', () => {
  const { scripts } = JSON.parse(readFileSync(`${projectRoot}package.json`, 'utf8'));
  const [firstLine = ''] = readFileSync(`${projectRoot}scripts/trestle.cjs`, 'utf8').split('\n');
  const flags = firstLine.replace('#!/usr/bin/env -S node ', '');
  assert.match(flags, /^--max-semi-space-size=\d+ --expose-gc$/);
  for (const script of [scripts.start, scripts.trestle]) assert.ok(script.startsWith(`node ${flags} `), script);
});

test('starting the program loads neither fetch nor WebSocket of Node', async (t) => {
  const source = `await import('${projectRoot}src/system/start-system.ts');
    console.log(process.moduleLoadList.some((name) => name.includes('deps/undici')));`;
  const { child } = startEntry(t, source);
  assert.equal((await text(child.stdout)).trim(), 'false');
});
