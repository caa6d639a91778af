import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, realpath, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { createConfinement } from '../../../src/bridge/agents/builtin/tools/confinement.ts';
import { createPrivatePlaces } from '../../../src/bridge/sessions/private-places.ts';
import { createOwnerRoots, createWorkingDirectories } from '../../../src/bridge/sessions/working-directory.ts';
import { createTestFolderList } from '../../kit/bridge/test-checkpoints.ts';
import { temporaryFolder } from '../../kit/running-program.ts';

const ANN = 'user:usr_ann';
const BOB = 'user:usr_bob';
const refusal = (words: RegExp) => (error: { code: string; details: { reason: string } }) => {
  assert.match(error.details.reason, words);
  return true;
};

async function world(t: TestContext, personal = 'trestle/{user}') {
  const home = await realpath(await temporaryFolder(t));
  const data = join(home, 'data');
  const project = join(home, 'project');
  for (const folder of [data, project]) await mkdir(folder);
  const roots = createOwnerRoots({ listed: [], fallback: [home], personal: join(home, personal) });
  const places = createPrivatePlaces({ folders: [data], files: [] });
  const directories = createWorkingDirectories({ roots, dataDirectory: data, places });
  const confine = createConfinement({ places, isScratch: directories.isScratch });
  return { home, project, directories, folders: createTestFolderList(data, confine, roots, places) };
}

test('a person has a folder of their own, made for them alone, and no other', async (t) => {
  const { home, project, directories } = await world(t);
  const own = join(home, 'trestle', 'usr_ann');
  assert.equal(await directories.check(own, ANN), own);
  assert.equal((await stat(own)).mode & 0o777, 0o700);
  await mkdir(join(own, 'site'));
  assert.equal(await directories.check(join(own, 'site'), ANN), join(own, 'site'));
  await directories.check(join(home, 'trestle', 'usr_bob'), BOB);
  for (const folder of [project, home, join(home, 'trestle'), join(home, 'trestle', 'usr_bob')]) {
    await assert.rejects(directories.check(folder, ANN), refusal(/outside of your own folder/), folder);
  }
  await assert.rejects(directories.identify(project, ANN), refusal(/outside of your own folder/));
});

test('a team and a service account have folders of their own, and odd ids have none', async (t) => {
  const { home, directories } = await world(t);
  for (const [owner, id] of [
    ['team:team_1', 'team_1'],
    ['service:svc_1', 'svc_1'],
  ] as const) {
    const own = join(home, 'trestle', id);
    assert.equal(await directories.check(own, owner), own);
  }
  await assert.rejects(
    directories.check(join(home, 'trestle', 'team_1'), 'user:../team_1'),
    refusal(/belongs to people/),
  );
});

test('{team} stands for the id as {user} does, wherever it is in the path', async (t) => {
  const { home, directories } = await world(t, 'work/of-{team}/files');
  for (const [owner, id] of [
    ['team:team_1', 'team_1'],
    [ANN, 'usr_ann'],
  ] as const) {
    const own = join(home, 'work', `of-${id}`, 'files');
    assert.equal(await directories.check(own, owner), own);
    assert.equal((await stat(own)).mode & 0o777, 0o700);
    await assert.rejects(directories.check(own, 'review'), refusal(/belongs to people/));
  }
  const teams = join(home, 'work', 'of-team_1', 'files');
  await assert.rejects(directories.check(teams, ANN), refusal(/outside of your own folder/));
  await assert.rejects(directories.check(join(home, 'work'), 'team:team_1'), refusal(/outside of your own folder/));
});

test('the review token and nodes keep the shared folders, without those of people; the main token has all', async (t) => {
  const { home, project, directories } = await world(t);
  const own = join(home, 'trestle', 'usr_ann');
  await directories.check(own, ANN);
  for (const owner of ['review', 'node:n1', 'node:n1:main']) {
    assert.equal(await directories.check(project, owner), project);
    await assert.rejects(directories.check(own, owner), refusal(/belongs to people/));
  }
  assert.equal(await directories.check(own, 'main'), own);
});

test('the list of folders shows to each owner what they may use', async (t) => {
  const { home, folders } = await world(t);
  const own = join(home, 'trestle', 'usr_ann');
  assert.deepEqual((await folders.list(undefined, ANN)).roots, [own]);
  await mkdir(join(own, 'site'));
  await writeFile(join(own, 'notes'), '');
  assert.deepEqual(
    (await folders.list(own, ANN)).entries.map(({ name }) => name),
    ['site'],
  );
  const code = { code: 'FOLDER_REFUSED' };
  await assert.rejects(folders.list(home, ANN), code);
  await assert.rejects(folders.list(own, BOB), code);
  await assert.rejects(folders.list(own, 'review'), code);
  const names = async (owner: string) => (await folders.list(home, owner)).entries.map(({ name }) => name);
  assert.deepEqual(await names('review'), ['project']);
  assert.deepEqual(await names('main'), ['project', 'trestle']);
});

test('a folder says whether its repository has uncommitted changes, and starts nothing that the repository names', async (t) => {
  const { home, project, folders } = await world(t);
  const found = async () => (await folders.list(home, 'main')).entries.find(({ name }) => name === 'project')?.git;
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b.c', ...args], { cwd: project });
  git('init', '-q', '-b', 'feature/one');
  assert.deepEqual(await found(), { branch: 'feature/one' }, 'without a commit');
  await writeFile(join(project, 'known'), 'one');
  git('add', 'known');
  git('commit', '-q', '-m', 'one');
  assert.deepEqual(await found(), { branch: 'feature/one', dirty: false });
  const ran = join(home, 'ran');
  await writeFile(join(project, '.gitattributes'), '* filter=evil');
  git('config', 'filter.evil.clean', `touch ${ran}; cat`);
  git('config', 'core.fsmonitor', `touch ${ran}`);
  await writeFile(join(project, 'known'), 'two');
  assert.deepEqual(await found(), { branch: 'feature/one', dirty: true });
  assert.equal(existsSync(ran), false);
});
