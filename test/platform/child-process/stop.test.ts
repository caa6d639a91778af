import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import {
  readProcess,
  readProcessTree,
  scanProcessTree,
  sweepLeftovers,
} from '../../../src/platform/child-process/process-table.ts';
import { isAlive, readNumbers, startShell, temporaryFolder } from '../../kit/processes.ts';
import { until } from '../../kit/until.ts';

/** A leader with a child, a grandchild in the background, and one that moved to a session of its own. */
const FAMILY = 'sleep 60 & echo $!; (sleep 60 & echo $!; wait) & setsid sleep 60 & echo $!; wait';
const STUBBORN = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done' & echo $!; wait; wait";

test('B-53: stopping a process ends its children, theirs, and those that left the group', async (context) => {
  const child = await startShell(context, FAMILY);
  const pids = await readNumbers(child.stdout, 3);
  assert.ok(pids.every(isAlive));
  await child.stop({ graceMs: 5000 });
  assert.deepEqual(pids.filter(isAlive), []);
  assert.equal(isAlive(child.pid), false);
});

test('B-62: a process that ignores SIGTERM, and its children too, is killed when its time is up', async (context) => {
  const child = await startShell(context, STUBBORN);
  const pids = await readNumbers(child.stdout, 2);
  await child.stop({ graceMs: 100 });
  assert.deepEqual(pids.filter(isAlive), []);
  assert.equal((await child.exited).signal, 'SIGKILL');
});

test('one that left the group and ignores SIGTERM is killed, though its parent ended immediately', async (context) => {
  const stray = "trap '' TERM; echo $$; while :; do sleep 0.05; done";
  const child = await startShell(context, `setsid sh -c '${stray.replaceAll("'", `'"'"'`)}' & wait`);
  const [pid] = await readNumbers(child.stdout, 1);
  assert.ok(pid !== undefined && isAlive(pid));
  await child.stop({ graceMs: 300 });
  assert.equal(isAlive(pid), false);
});

test('a process that ends at SIGTERM may finish its work first', async (context) => {
  const child = await startShell(context, "trap 'echo 42; exit 7' TERM; echo 1; while :; do sleep 0.02; done");
  await readNumbers(child.stdout, 1);
  const rest = readNumbers(child.stdout, 1);
  await child.stop({ graceMs: 10_000 });
  assert.deepEqual(await rest, [42]);
  assert.equal((await child.exited).code, 7);
});

test('a second stop with less patience hastens the first', async (context) => {
  const child = await startShell(context, "trap '' TERM; echo $$; while :; do sleep 0.05; done");
  await readNumbers(child.stdout, 1);
  const patient = child.stop({ graceMs: 1_000_000 });
  await child.stop({ graceMs: 0 });
  await patient;
  assert.equal(isAlive(child.pid), false);
});

test('stopping twice, or after the end, is no error', async (context) => {
  const child = await startShell(context, 'exit 0');
  await child.exited;
  await Promise.all([child.stop({ graceMs: 0 }), child.stop({ graceMs: 10 })]);
  await child.stop({ graceMs: 0 });
});

test('what a process leaves behind when it ends by itself is ended too', async (context) => {
  const child = await startShell(context, 'sleep 60 & echo $!; set -m; sleep 60 & echo $!; exit 0');
  const pids = await readNumbers(child.stdout, 2);
  assert.equal((await child.exited).code, 0);
  await until('the group to be gone', () => !pids.some(isAlive));
});

test('one that moved to a session of its own and lost its parent long ago is ended with the others', async (context) => {
  const child = await startShell(context, '(setsid sleep 60 & echo $!); exec sleep 60');
  const [orphan = 0] = await readNumbers(child.stdout, 1);
  await until('it to have its own session', () => readProcess(orphan)?.session === orphan);
  await until('it to have lost its parent', () => readProcess(orphan)?.parent !== child.pid);
  await child.stop({ graceMs: 1000 });
  assert.equal(isAlive(orphan), false);
});

test('many processes can be started and stopped at the same time', async (context) => {
  const folder = await temporaryFolder(context);
  const children = await Promise.all(Array.from({ length: 12 }, () => startShell(context, 'sleep 60', folder)));
  assert.equal((await readdir(folder)).length, 12);
  await Promise.all(children.map((child) => child.stop({ graceMs: 1000 })));
  assert.deepEqual(children.map(({ pid }) => pid).filter(isAlive), []);
  assert.deepEqual(await readdir(folder), []);
});

/** Another process of ours that starts the family, tells its numbers, and then does what `ending` says. */
async function startParent(context: TestContext, folder: string, ending: string) {
  const script = `
    import { startProcess } from './src/platform/child-process/start-process.ts';
    const child = await startProcess({
      command: 'sh', args: ['-c', ${JSON.stringify(FAMILY)}], cwd: '/', env: { PATH: process.env.PATH },
      journalFolder: ${JSON.stringify(folder)},
    });
    console.log(child.pid);
    let told = '';
    child.stdout.on('data', (chunk) => {
      told += chunk;
      process.stdout.write(chunk);
      if (told.split('\\n').length > 3) { ${ending} }
    });`;
  const parent = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  context.after(() => parent.kill('SIGKILL'));
  const ended = new Promise((resolve) => parent.once('exit', resolve));
  return { parent, ended, pids: await readNumbers(parent.stdout, 4) };
}

test('after a kill -9 of ours the next start finds what was left behind and ends it', async (context) => {
  const folder = await temporaryFolder(context);
  const { parent, ended, pids } = await startParent(context, folder, '');
  assert.equal(await sweepLeftovers(folder), 0, 'while its owner lives, nothing is left behind');
  assert.ok(pids.every(isAlive));
  parent.kill('SIGKILL');
  await ended;
  assert.ok(pids.some(isAlive));
  assert.equal(await sweepLeftovers(folder), 1);
  assert.deepEqual(pids.filter(isAlive), []);
  assert.deepEqual(await readdir(folder), []);
});

test('the sweep finds the rest of a family whose leader has gone, one in a session of its own included', async (context) => {
  const folder = await temporaryFolder(context);
  const { parent, ended, pids } = await startParent(context, folder, '');
  parent.kill('SIGKILL');
  await ended;
  const [leader = 0, ...others] = pids;
  process.kill(leader, 'SIGKILL');
  await until('the leader to be gone', () => !isAlive(leader));
  await until('one in a session of its own', () =>
    others.some((pid) => readProcess(pid)?.session === pid && isAlive(pid)),
  );
  assert.equal(await sweepLeftovers(folder), 1);
  assert.deepEqual(others.filter(isAlive), []);
});

for (const [name, ending] of [
  ['exits', 'process.exit(0);'],
  ['dies of an uncaught error', 'throw new Error("uncaught");'],
] as const) {
  test(`nothing runs on when our process ${name}`, async (context) => {
    const { ended, pids } = await startParent(context, await temporaryFolder(context), ending);
    await ended;
    await until('the group to be gone', () => !pids.some(isAlive));
  });
}

test('the sweep never touches a process that only has the number of an old one', async (context) => {
  const folder = await temporaryFolder(context);
  const bystander = await startShell(context, 'sleep 60', folder);
  const [name = ''] = await readdir(folder);
  const entry = JSON.parse(await readFile(join(folder, name), 'utf8'));
  const dead = { pid: entry.owner.pid, startTime: 1 };
  const earlier = { ...entry.child, startTime: entry.child.startTime - 5, mark: 'another' };
  await writeFile(join(folder, '1-1.json'), JSON.stringify({ ...entry, owner: dead, child: earlier }));
  await writeFile(join(folder, '1-2.json'), JSON.stringify({ ...entry, owner: dead, bootId: 'another start' }));
  await writeFile(join(folder, '1-3.json'), JSON.stringify({ ...entry, owner: dead, child: { pid: 1, startTime: 0 } }));
  await writeFile(join(folder, '1-4.json'), '{"child":');
  await writeFile(join(folder, 'notes.txt'), 'not ours');
  await sweepLeftovers(folder);
  assert.equal(isAlive(bystander.pid), true);
  assert.deepEqual((await readdir(folder)).sort(), [name, 'notes.txt'].sort());
});

test('a folder that does not exist has no leftovers', async () => {
  assert.equal(await sweepLeftovers('/no/such/folder'), 0);
});

test('DP-7: ending processes reads nothing of /proc on the event loop', async (context) => {
  const children = await Promise.all(Array.from({ length: 4 }, () => startShell(context, FAMILY)));
  const pids = (await Promise.all(children.map(({ stdout }) => readNumbers(stdout, 3)))).flat();
  const read: unknown[] = [];
  for (const name of ['readFileSync', 'readdirSync'] as const) {
    const original = fs[name] as (...given: unknown[]) => unknown;
    context.mock.method(fs, name, (...given: unknown[]) => {
      if (String(given[0]).startsWith('/proc')) read.push(given[0]);
      return original(...given);
    });
  }
  syncBuiltinESMExports();
  context.after(syncBuiltinESMExports);
  await Promise.all(children.map((child) => child.stop({ graceMs: 5000 })));
  context.mock.restoreAll();
  syncBuiltinESMExports();
  assert.deepEqual(read, []);
  assert.deepEqual(pids.filter(isAlive), []);
});

test('DP-7: a tree that is scanned in the background is the one that is read synchronously', async (context) => {
  const child = await startShell(context, FAMILY);
  await readNumbers(child.stdout, 3);
  const leader = { pid: child.pid, startTime: readProcess(child.pid)?.startTime ?? 0 };
  const sorted = (tree: readonly { readonly pid: number }[]) => tree.map(({ pid }) => pid).sort((a, b) => a - b);
  assert.deepEqual(sorted(await scanProcessTree(leader)), sorted(readProcessTree(leader)));
});
