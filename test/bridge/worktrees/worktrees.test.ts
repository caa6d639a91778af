import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { chmod, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { bearer } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { until } from '../../kit/until.ts';
import { clientOf, createWorker, gitIn, makeRepository } from './worktree-fixture.ts';

const worker = createWorker('worker');
const other = createWorker('other');
const bridge = await startBridge({ after }, { providers: [worker.provider, other.provider], isGuarded: true });
const { root, folder: data } = bridge;
const { turn, merge } = clientOf(bridge, bearer(MAIN_TOKEN));
const FILES = { 'a.txt': 'one\ntwo\nthree\n', 'dir/b.txt': 'b\n', 'gone.txt': 'x\n', '.gitignore': 'ignored\n' };
const text = (folder: string, path: string) => readFile(join(folder, path), 'utf8');
const statusOf = (folder: string) => gitIn(folder, 'status', '--porcelain');
let count = 0;

/** A session in a worktree of a new repository, whose first turn has done this. */
async function workIn(act: (folder: string) => Promise<void>, worktree: unknown = true, files: object = FILES) {
  count += 1;
  const sessionId = `s${count}`;
  const repository = await makeRepository(root, sessionId, files as Record<string, string>);
  worker.work.set(sessionId, act);
  const { result, error } = await turn('session.start', {
    sessionId,
    taskPrompt: sessionId,
    workingDirectory: repository,
    routing: { worktree },
  });
  return { sessionId, repository, error, folder: result?.resolvedWorkingDirectory ?? '' };
}

test('a session works in a worktree, and the checkout is left alone until the merge', async () => {
  const { sessionId, repository, folder } = await workIn(async (place) => {
    assert.equal(gitIn(place, 'symbolic-ref', '--short', 'HEAD'), 'trestle/s1');
    assert.equal(statusOf(place), '');
    await writeFile(join(place, 'a.txt'), 'one\n2\nthree\n');
    await mkdir(join(place, 'new'));
    await writeFile(join(place, 'new/run.sh'), '#!/bin/sh\n');
    await chmod(join(place, 'new/run.sh'), 0o755);
    await symlink('a.txt', join(place, 'link'));
    await rm(join(place, 'gone.txt'));
    await writeFile(join(place, 'ignored'), 'not merged');
  });
  assert.ok(folder.startsWith(join(root, '.trestle', 'worktrees')));
  assert.deepEqual([await text(repository, 'a.txt'), statusOf(repository)], [FILES['a.txt'], '']);
  assert.equal(gitIn(repository, 'branch', '--format=%(refname:short)'), 'main');
  const before = gitIn(repository, 'rev-parse', 'HEAD');

  const merged = await merge(sessionId);
  assert.deepEqual([merged.status, merged.branch], [200, 'main'], merged.message);
  assert.deepEqual(merged.files, ['a.txt', 'gone.txt', 'link', 'new/run.sh']);
  assert.equal(gitIn(repository, 'rev-parse', 'main'), merged.commit);
  assert.equal(gitIn(repository, 'rev-parse', 'main^'), before);
  assert.equal(statusOf(repository), '');
  gitIn(repository, 'fsck', '--strict');
  assert.equal(await text(repository, 'a.txt'), 'one\n2\nthree\n');
  assert.equal(gitIn(repository, 'ls-files', '-s', 'new/run.sh').slice(0, 6), '100755');
  assert.equal(gitIn(repository, 'ls-files', '-s', 'link').slice(0, 6), '120000');
  assert.equal(existsSync(join(repository, 'ignored')), false);

  // The session goes on in its worktree, and what it does then is merged as well.
  worker.work.set('more', (place) => writeFile(join(place, 'dir/b.txt'), 'b2\n'));
  assert.equal((await turn('session.message', { sessionId, taskPrompt: 'more' })).result?.output, folder);
  await writeFile(join(repository, 'since'), 'by a person\n');
  gitIn(repository, 'add', 'since');
  gitIn(repository, 'commit', '-qm', 'since');
  assert.deepEqual((await merge(sessionId)).files, ['dir/b.txt']);
  assert.equal(gitIn(repository, 'log', '-1', '--format=%s'), 'Merge trestle/s1');
  assert.deepEqual([await text(repository, 'since'), statusOf(repository)], ['by a person\n', '']);
  assert.deepEqual((await merge(sessionId)).files, []);

  await turn('session.close', { sessionId });
  assert.equal(existsSync(folder), false);
  assert.deepEqual(await readdir(join(data, 'worktrees')), []);
});

test('a merge is refused, and changes nothing, where lines collide or files are not committed', async () => {
  const { sessionId, repository } = await workIn((place) => writeFile(join(place, 'a.txt'), 'one\nagent\nthree\n'));
  await writeFile(join(repository, 'a.txt'), 'one\nunsaved\nthree\n');
  const dirty = await merge(sessionId);
  assert.deepEqual([dirty.status, dirty.error, dirty.details?.files], [409, 'merge_refused', ['a.txt']]);
  gitIn(repository, 'add', 'a.txt');
  gitIn(repository, 'checkout-index', '-f', 'a.txt');
  assert.deepEqual((await merge(sessionId)).details?.files, ['a.txt']);
  gitIn(repository, 'commit', '-qm', 'person');
  const head = gitIn(repository, 'rev-parse', 'HEAD');
  const collided = await merge(sessionId);
  assert.deepEqual([collided.status, collided.details?.files], [409, ['a.txt']]);
  assert.match(collided.message ?? '', /same lines/);
  assert.deepEqual([gitIn(repository, 'rev-parse', 'HEAD'), statusOf(repository)], [head, '']);
  assert.equal(await text(repository, 'a.txt'), 'one\nunsaved\nthree\n');
  gitIn(repository, 'checkout', '-q', '--detach');
  assert.match((await merge(sessionId)).message ?? '', /no branch is checked out/);
  gitIn(repository, 'checkout', '-q', 'main');
  await writeFile(join(repository, '.git/index.lock'), '');
  assert.match((await merge(sessionId)).message ?? '', /another git is at work/);
});

test('changes of the checkout that the merge does not touch stay as they are', async () => {
  const { sessionId, repository } = await workIn((place) => writeFile(join(place, 'a.txt'), 'agent\n'));
  await writeFile(join(repository, 'dir/b.txt'), 'unsaved\n');
  await writeFile(join(repository, 'untracked'), 'mine\n');
  assert.deepEqual((await merge(sessionId)).files, ['a.txt']);
  assert.deepEqual(statusOf(repository).split('\n'), ['M dir/b.txt', '?? untracked']);
});

test('a merge that was interrupted after any of its steps is completed by another one', async () => {
  const change = (place: string) => writeFile(join(place, 'a.txt'), 'agent\n');
  const { sessionId, repository } = await workIn(change);
  // As it is left when the files are written, and neither the index nor the branch.
  await change(repository);
  assert.equal((await merge(sessionId)).status, 200);
  assert.equal(statusOf(repository), '');
  const second = await workIn(change);
  // As it is left when the index is written as well.
  await change(second.repository);
  gitIn(second.repository, 'add', 'a.txt');
  assert.equal((await merge(second.sessionId)).status, 200);
  assert.equal(statusOf(second.repository), '');
});

test('a worktree is refused with a reason', async () => {
  const plain = join(root, 'plain');
  await mkdir(plain);
  const start = async (workingDirectory: string, worktree: unknown = true, more: object = {}) => {
    count += 1;
    const params = { sessionId: `r${count}`, taskPrompt: 'x', workingDirectory, routing: { worktree, ...more } };
    return (await turn('session.start', params)).error?.message ?? '';
  };
  assert.match(await start(plain), /routing\.worktree cannot be used with this folder: it is not a git repository/);
  assert.match(await start(''), /needs workingDirectory/);
  const gateway = { explicitExecutionTarget: 'gateway', preferredGatewayProviderId: 'openclaw' };
  assert.match(await start(plain, true, gateway), /cannot be used with a gateway/);
  const repository = await makeRepository(root, 'refusals', FILES);
  assert.match(await start(join(repository, 'dir')), /use the top folder/);
  assert.match(await start(repository, { base: 'missing' }), /names no branch, tag or commit of it: missing/);
  await writeFile(join(repository, 'a.txt'), 'unsaved\n');
  assert.match(await start(repository), /not committed \(a\.txt\)/);
  gitIn(repository, 'add', 'a.txt');
  assert.match(await start(repository), /not committed \(a\.txt\)/);
  assert.equal(await start(repository, { base: 'HEAD' }), '');
  gitIn(repository, 'worktree', 'add', '-q', join(root, 'linked'), 'HEAD');
  assert.match(await start(join(root, 'linked')), /is a worktree or a submodule itself/);
  const empty = join(root, 'empty');
  await mkdir(empty);
  gitIn(empty, 'init', '-q', '.');
  assert.match(await start(empty), /has no commit yet/);
  const error = (await turn('session.message', { sessionId: 's2', taskPrompt: 'x', routing: { worktree: true } }))
    .error;
  assert.match(error?.message ?? '', /belongs to session\.start/);
});

test('a worktree begins with the branch, tag or commit that is named', async () => {
  const repository = await makeRepository(root, 'bases', { 'a.txt': 'first\n' });
  const first = gitIn(repository, 'rev-parse', 'HEAD');
  gitIn(repository, 'tag', '-a', '-m', 'one', 'v1');
  gitIn(repository, 'branch', 'feature/x');
  gitIn(repository, 'pack-refs', '--all');
  await writeFile(join(repository, 'a.txt'), 'second\n');
  gitIn(repository, 'commit', '-qam', 'second');
  for (const base of ['v1', 'feature/x', first, 'HEAD', undefined]) {
    count += 1;
    const sessionId = `base ${count}`;
    const params = { sessionId, taskPrompt: 'x', workingDirectory: repository, routing: { worktree: { base } } };
    const { result, error } = await turn('session.start', params);
    const found = await text(result?.resolvedWorkingDirectory ?? error?.message ?? '', 'a.txt');
    assert.equal(found, base === 'HEAD' || base === undefined ? 'second\n' : 'first\n', String(base));
  }
});

test('two sessions work in one repository at the same time, and both are merged', async () => {
  const repository = await makeRepository(root, 'two', FILES);
  const both = Promise.withResolvers<void>();
  let here = 0;
  const start = async (sessionId: string, file: string) => {
    worker.work.set(sessionId, async (place) => {
      here += 1;
      if (here === 2) both.resolve();
      await both.promise;
      await writeFile(join(place, file), `${sessionId}\n`);
      assert.equal(gitIn(place, 'status', '--porcelain'), `M ${file}`);
    });
    const params = { sessionId, taskPrompt: sessionId, workingDirectory: repository, routing: { worktree: true } };
    assert.equal((await turn('session.start', params)).result?.success, true);
  };
  await Promise.all([start('two-a', 'a.txt'), start('two-b', 'dir/b.txt')]);
  const merged = await Promise.all([merge('two-a'), merge('two-b')]);
  assert.deepEqual(
    merged.map(({ status }) => status),
    [200, 200],
  );
  assert.deepEqual([await text(repository, 'a.txt'), await text(repository, 'dir/b.txt')], ['two-a\n', 'two-b\n']);
  assert.equal(statusOf(repository), '');
});

test('each step of a parallel run and of a race has its own worktree, and one is merged', async () => {
  const repository = await makeRepository(root, 'steps', FILES);
  worker.work.set('Go', (place) => writeFile(join(place, 'a.txt'), 'worker\n'));
  other.work.set('Go', (place) => writeFile(join(place, 'a.txt'), 'other\n'));
  const steps = [{ providerId: 'worker' }, { providerId: 'other' }];
  const common = { taskPrompt: 'Go', multiAgent: true, workingDirectory: repository };
  const parallel = { orchestrationMode: 'parallel', steps, worktree: true };
  const { result } = await turn('session.start', { ...common, sessionId: 'par', routing: parallel });
  const folders = result?.steps?.map(({ workingDirectory = '' }) => workingDirectory) ?? [];
  assert.deepEqual(await Promise.all(folders.map((one) => text(one, 'a.txt'))), ['worker\n', 'other\n']);
  assert.deepEqual(
    folders.map((one) => gitIn(one, 'symbolic-ref', '--short', 'HEAD')),
    ['trestle/par-0', 'trestle/par-1'],
  );
  assert.match((await merge('par')).message ?? '', /name one in `step`/);
  assert.match((await merge('par', { step: 2 })).message ?? '', /no worktree of step 2/);
  assert.deepEqual((await merge('par', { step: 1 })).files, ['a.txt']);
  assert.equal(await text(repository, 'a.txt'), 'other\n');
  assert.deepEqual(folders.map(existsSync), [false, true]);

  worker.work.set(
    'Go',
    (_place, signal) => new Promise((resolve) => signal.addEventListener('abort', () => resolve())),
  );
  other.work.set('Go', (place) => writeFile(join(place, 'dir/b.txt'), 'winner\n'));
  const race = { orchestrationMode: 'race', steps, worktree: true };
  const raced = await turn('session.start', { ...common, sessionId: 'race', routing: race });
  assert.equal(raced.result?.success, true);
  assert.deepEqual((await merge('race')).files, ['dir/b.txt']);
  assert.equal(await text(repository, 'dir/b.txt'), 'winner\n');
  // The step that is left goes on where it was.
  const next = await turn('session.message', { sessionId: 'race', taskPrompt: 'Go on' });
  assert.equal(next.result?.output, raced.result?.steps?.[1]?.workingDirectory);
  for (const sessionId of ['par', 'race']) await turn('session.close', { sessionId });
  assert.deepEqual([...folders, next.result?.output ?? ''].map(existsSync), [false, false, false]);
});

test('only those who may work in a session merge it', async () => {
  const { sessionId, repository } = await workIn((place) => writeFile(join(place, 'a.txt'), 'agent\n'));
  const review = clientOf(bridge, bearer(REVIEW_TOKEN));
  assert.equal((await review.merge(sessionId)).status, 404);
  assert.equal((await clientOf(bridge).merge(sessionId)).status, 401);
  assert.equal((await merge('missing')).status, 404);
  assert.equal(statusOf(repository), '');
  worker.work.set(
    'wait',
    (_place, signal) => new Promise((resolve) => signal.addEventListener('abort', () => resolve())),
  );
  const running = turn('session.message', { sessionId, taskPrompt: 'wait' });
  await until('the turn runs', () => worker.provider.running() === 1);
  assert.equal((await merge(sessionId)).error, 'turn_running');
  await turn('session.cancel', { sessionId });
  await running;
  const plain = { sessionId: 'no-worktree', taskPrompt: 'x', workingDirectory: repository };
  await turn('session.start', plain);
  assert.match((await merge('no-worktree')).message ?? '', /has no worktree/);
});

const UNMERGED = join(root, '.trestle', 'unmerged');

/** What stays behind of a session when it is closed. */
async function leftOf(sessionId: string): Promise<readonly string[]> {
  await turn('session.close', { sessionId });
  await until('the worktree to be gone', async () => {
    const places = await readdir(join(root, '.trestle', 'worktrees'));
    return !(await Promise.all(places.map((place) => branchOf(place)))).includes(`trestle/${sessionId}`);
  });
  const names = await readdir(UNMERGED).catch((): string[] => []);
  return names.filter((name) => name.startsWith(`trestle-${sessionId}-`));
}

async function branchOf(place: string): Promise<string> {
  const head = join(root, '.trestle', 'worktrees', place, '.git', 'HEAD');
  return (await readFile(head, 'utf8').catch(() => '')).replace('ref: refs/heads/', '').trim();
}

test('changes that were not merged stay behind as a patch when the session is closed', async () => {
  const { sessionId, repository } = await workIn(async (place) => {
    await writeFile(join(place, 'a.txt'), 'one\n2\nthree\n');
    await writeFile(join(place, 'picture'), Buffer.from([0, 1, 2, 255]));
    await writeFile(join(place, 'run.sh'), '#!/bin/sh\n');
    await chmod(join(place, 'run.sh'), 0o755);
    await rm(join(place, 'gone.txt'));
    await writeFile(join(place, 'ignored'), 'stays out');
    gitIn(place, 'add', 'a.txt');
    gitIn(place, 'commit', '-qm', 'a commit of the agent');
  });
  const [name = '', ...others] = await leftOf(sessionId);
  assert.match(name, /\.patch$/);
  assert.deepEqual(others, []);
  assert.equal(statusOf(repository), '', 'the checkout is left alone');
  gitIn(repository, 'apply', join(UNMERGED, name));
  assert.equal(await text(repository, 'a.txt'), 'one\n2\nthree\n');
  assert.deepEqual(await readFile(join(repository, 'picture')), Buffer.from([0, 1, 2, 255]));
  assert.equal((await stat(join(repository, 'run.sh'))).mode & 0o111, 0o111);
  assert.deepEqual([existsSync(join(repository, 'gone.txt')), existsSync(join(repository, 'ignored'))], [false, false]);
});

test('nothing stays behind of a worktree without changes, or that was merged', async () => {
  const { sessionId: idle } = await workIn(async () => undefined);
  assert.deepEqual(await leftOf(idle), []);
  const { sessionId: merged } = await workIn((place) => writeFile(join(place, 'a.txt'), 'changed\n'));
  assert.equal((await merge(merged)).status, 200);
  assert.deepEqual(await leftOf(merged), []);
});

test('a worktree whose repository is gone stays behind as it is', async () => {
  const { sessionId, repository } = await workIn((place) => writeFile(join(place, 'new.txt'), 'kept\n'));
  await rm(repository, { recursive: true });
  const [name = ''] = await leftOf(sessionId);
  assert.equal(await text(join(UNMERGED, name), 'new.txt'), 'kept\n');
});

test('a session that is started again has a new worktree, or none', async () => {
  const { sessionId, repository, folder } = await workIn((place) => writeFile(join(place, 'left'), 'x'));
  const again = { sessionId, taskPrompt: 'x', workingDirectory: repository };
  await turn('session.start', { ...again, routing: { worktree: true } });
  assert.deepEqual([existsSync(folder), existsSync(join(folder, 'left'))], [true, false]);
  assert.equal((await turn('session.start', again)).result?.resolvedWorkingDirectory, repository);
  assert.equal(existsSync(folder), false);
});
