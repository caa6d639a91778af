import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { cp, mkdir, readdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { until } from '../../kit/until.ts';
import { clientOf, createWorker, gitIn, makeRepository } from './worktree-fixture.ts';

const worker = createWorker('worker');
const bridge = await startBridge({ after }, { providers: [worker.provider] });
const { root } = bridge;
const { turn, merge } = clientOf(bridge);
const FILES = { 'a.txt': 'one\n', 'b.txt': 'b\n' };

const start = (sessionId: string, workingDirectory: string, more: object = {}) =>
  turn('session.start', { sessionId, taskPrompt: sessionId, workingDirectory, routing: { worktree: true }, ...more });

test('a hostile repository, and a hostile worktree, run no program when they are used and merged', async () => {
  const repository = await makeRepository(root, 'hostile', { ...FILES, '.gitattributes': '* diff=evil merge=evil\n' });
  const witness = join(root, 'witness');
  const attack = join(root, 'attack');
  await writeFile(attack, `#!/bin/sh\ntouch ${witness}\n`, { mode: 0o755 });
  const poison = async (folder: string) => {
    for (const key of [
      'core.fsmonitor',
      'core.pager',
      'core.editor',
      'core.sshCommand',
      'diff.external',
      'diff.evil.command',
      'diff.evil.textconv',
      'merge.evil.driver',
      'filter.evil.clean',
      'filter.evil.smudge',
      'filter.evil.process',
      'gpg.program',
    ]) {
      gitIn(folder, 'config', key, attack);
    }
    gitIn(folder, 'config', 'commit.gpgSign', 'true');
    await mkdir(join(folder, '.git/hooks'), { recursive: true });
    for (const hook of [
      'post-checkout',
      'post-merge',
      'pre-commit',
      'pre-merge-commit',
      'reference-transaction',
      'post-index-change',
    ]) {
      await cp(attack, join(folder, '.git/hooks', hook));
    }
  };
  worker.work.set('hostile', async (place) => {
    await writeFile(join(place, 'a.txt'), 'agent\n');
    await writeFile(join(place, '.gitattributes'), '* filter=evil diff=evil merge=evil\n');
    await poison(place);
    await rm(witness, { force: true });
  });
  await poison(repository);
  await rm(witness, { force: true });
  assert.equal((await start('hostile', repository)).result?.success, true);
  assert.equal(existsSync(witness), false);
  // Other commits on the branch, so that trees are joined.
  await writeFile(join(repository, 'b.txt'), 'person\n');
  gitIn(repository, '-c', 'core.fsmonitor=', '-c', 'core.hooksPath=/dev/null', 'add', 'b.txt');
  const quiet = ['-c', 'core.fsmonitor=', '-c', 'core.hooksPath=/dev/null', '-c', 'commit.gpgSign=false'];
  gitIn(repository, ...quiet, 'commit', '-qm', 'since');
  await rm(witness, { force: true });
  const merged = await merge('hostile');
  assert.deepEqual([merged.status, merged.files], [200, ['.gitattributes', 'a.txt']], merged.message);
  assert.equal(existsSync(witness), false);
});

test('a repository with filters is refused, and nothing of it stays behind', async () => {
  const repository = await makeRepository(root, 'filters', { ...FILES, '.gitattributes': 'a.txt filter=lfs\n' });
  const { error } = await start('filters', repository);
  assert.match(error?.message ?? '', /with a filter when it checks them out \(a\.txt\)/);
  assert.equal((await readdir(join(root, '.trestle/worktrees'))).length, 1);
});

test('a repository that leads to the objects of another one is refused', async () => {
  const secret = await makeRepository(root, 'secret', { 'secret.txt': 'secret\n' });
  const commit = gitIn(secret, 'rev-parse', 'HEAD');
  const refusals: Record<string, (folder: string) => Promise<void>> = {
    alternates: (folder) => writeFile(join(folder, '.git/objects/info/alternates'), `${secret}/.git/objects\n`),
    objects: async (folder) => {
      await rm(join(folder, '.git/objects'), { recursive: true });
      await symlink(join(secret, '.git/objects'), join(folder, '.git/objects'));
    },
    'one folder of objects': async (folder) => {
      const name = commit.slice(0, 2);
      await rm(join(folder, '.git/objects', name), { recursive: true, force: true });
      await symlink(join(secret, '.git/objects', name), join(folder, '.git/objects', name));
    },
    'one object': async (folder) => {
      const name = commit.slice(0, 2);
      await mkdir(join(folder, '.git/objects', name), { recursive: true });
      const object = join('.git/objects', name, commit.slice(2));
      await symlink(join(secret, object), join(folder, object));
    },
    'the folder of git': async (folder) => {
      await rename(join(folder, '.git'), join(folder, 'moved'));
      await symlink(join(secret, '.git'), join(folder, '.git'));
    },
  };
  for (const [name, prepare] of Object.entries(refusals)) {
    const repository = await makeRepository(root, name, FILES);
    await prepare(repository);
    const params = { routing: { worktree: { base: commit } } };
    const { error } = await start(name, repository, params);
    assert.match(error?.message ?? '', /routing\.worktree cannot be used with this folder/, name);
  }
});

test('a link in the place of a folder is not followed by a merge or by the removal', async () => {
  const repository = await makeRepository(root, 'links', { ...FILES, 'dir/c.txt': 'c\n' });
  worker.work.set('links', (place) => writeFile(join(place, 'dir/c.txt'), 'agent\n'));
  await start('links', repository);
  const elsewhere = join(root, 'elsewhere');
  await mkdir(elsewhere);
  await writeFile(join(elsewhere, 'c.txt'), 'c\n');
  await rm(join(repository, 'dir'), { recursive: true });
  await symlink(elsewhere, join(repository, 'dir'));
  assert.equal((await merge('links')).status, 409);
  assert.deepEqual(await readdir(elsewhere), ['c.txt']);
  const worktrees = join(root, '.trestle/worktrees');
  const [key = ''] = (await readdir(join(bridge.folder, 'worktrees'))).toSorted().slice(-1);
  await rename(worktrees, join(root, 'moved'));
  await mkdir(join(elsewhere, key));
  await symlink(elsewhere, worktrees);
  await turn('session.close', { sessionId: 'links' });
  assert.equal(existsSync(join(elsewhere, key)), true);
  await rm(worktrees);
  await rename(join(root, 'moved'), worktrees);
});

test('worktrees of sessions that ended with their bridge are removed by the next one', async (context) => {
  const before = createWorker('worker');
  const first = await startBridge(context, { providers: [before.provider] });
  const repository = await makeRepository(first.root, 'crash', FILES);
  const client = clientOf(first);
  const params = { sessionId: 'kept', taskPrompt: 'x', workingDirectory: repository, routing: { worktree: true } };
  const kept = (await client.turn('session.start', params)).result?.resolvedWorkingDirectory ?? '';
  await first.stop();
  // As it is left when the bridge dies after a worktree was begun, and before its session is stored.
  const [key = ''] = await readdir(join(first.folder, 'worktrees'));
  const place = join(first.root, '.trestle/worktrees');
  await cp(join(place, key), join(place, 'ses_dead'), { recursive: true });
  await cp(join(first.folder, 'worktrees', key), join(first.folder, 'worktrees/ses_dead'), { recursive: true });
  const behind = createWorker('worker');
  const second = await startBridge(context, { providers: [behind.provider], after: first });
  await until('the worktree is removed', () => !existsSync(join(place, 'ses_dead')));
  await until('its record is removed', () => !existsSync(join(first.folder, 'worktrees/ses_dead')));
  assert.equal(existsSync(kept), true);
  const next = clientOf(second);
  behind.work.set('y', (folder) => writeFile(join(folder, 'a.txt'), 'after the restart\n'));
  assert.equal(
    (await next.turn('session.start', { ...params, sessionId: 'new', taskPrompt: 'y' })).result?.success,
    true,
  );
  assert.deepEqual((await next.merge('new')).files, ['a.txt']);
});
