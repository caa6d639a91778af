import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { createFolderState } from '../../../src/bridge/checkpoints/folder-state.ts';
import { createGit } from '../../../src/bridge/checkpoints/run-git.ts';
import { startProcess } from '../../../src/platform/child-process/start-process.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { errorCode } from '../../../src/platform/errors/app-error.ts';
import { confine, gitIn, makeFolder, makeRepository, PATH, signal, stateOf, top } from './folder-fixture.ts';

const ATTACKS: Readonly<Record<string, (folder: string, attack: string) => Promise<void>>> = {
  async 'a program in place of the file system monitor'(folder, attack) {
    gitIn(folder, 'config', 'core.fsmonitor', attack);
  },
  async hooks(folder, attack) {
    for (const hook of [
      'post-index-change',
      'post-checkout',
      'pre-commit',
      'reference-transaction',
      'fsmonitor-watchman',
    ]) {
      await mkdir(join(folder, '.git/hooks'), { recursive: true });
      await writeFile(join(folder, '.git/hooks', hook), `#!/bin/sh\n${attack}\n`, { mode: 0o755 });
      await writeFile(join(folder, hook), `#!/bin/sh\n${attack}\n`, { mode: 0o755 });
    }
    gitIn(folder, 'config', 'core.hooksPath', '.');
  },
  async 'filters that clean, smudge and process'(folder, attack) {
    for (const kind of ['clean', 'smudge', 'process']) gitIn(folder, 'config', `filter.evil.${kind}`, attack);
    gitIn(folder, 'config', 'filter.evil.required', 'true');
    await writeFile(join(folder, '.gitattributes'), '* filter=evil\n');
  },
  async 'filters in the attributes of the repository alone'(folder, attack) {
    gitIn(folder, 'config', 'filter.evil.clean', attack);
    await mkdir(join(folder, '.git/info'), { recursive: true });
    await writeFile(join(folder, '.git/info/attributes'), '* filter=evil\n');
  },
  async 'external diffs and text conversions'(folder, attack) {
    for (const key of ['diff.external', 'diff.evil.command', 'diff.evil.textconv', 'merge.evil.driver']) {
      gitIn(folder, 'config', key, attack);
    }
    await writeFile(join(folder, '.gitattributes'), '* diff=evil merge=evil\n');
  },
  async 'a pager, an editor, an ssh command, a credential helper and aliases'(folder, attack) {
    for (const key of ['core.pager', 'pager.diff', 'core.editor', 'core.sshCommand', 'core.askPass', 'core.gitProxy']) {
      gitIn(folder, 'config', key, attack);
    }
    gitIn(folder, 'config', 'credential.helper', `!${attack}`);
    for (const name of ['ls-files', 'update-index', 'diff-tree', 'write-tree', 'diff']) {
      gitIn(folder, 'config', `alias.${name}`, `!${attack}`);
    }
  },
  async 'settings from an included file, and a missing object that a remote has'(folder, attack) {
    await writeFile(join(folder, 'included'), `[core]\n\tfsmonitor = ${attack}\n`);
    gitIn(folder, 'config', 'include.path', join(folder, 'included'));
    gitIn(folder, 'config', 'remote.origin.url', `ext::${attack}`);
    gitIn(folder, 'config', 'remote.origin.promisor', 'true');
    gitIn(folder, 'config', 'extensions.partialClone', 'origin');
    gitIn(folder, 'config', 'protocol.ext.allow', 'always');
    const objects = join(folder, '.git/objects');
    for (const name of await readdir(objects)) {
      if (name.length === 2) await rm(join(objects, name), { recursive: true, force: true });
    }
  },
  async 'a submodule with settings of its own'(folder, attack) {
    const inner = join(folder, 'sub');
    await mkdir(inner);
    await writeFile(join(inner, 'file'), '1');
    gitIn(inner, 'init', '-q', '.');
    gitIn(inner, 'add', '-A');
    gitIn(inner, 'commit', '-qm', 'inner');
    gitIn(folder, 'add', 'sub');
    await writeFile(
      join(folder, '.gitmodules'),
      '[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n\tupdate = !touch x\n',
    );
    gitIn(inner, 'config', 'core.fsmonitor', attack);
    gitIn(inner, 'config', 'filter.evil.clean', attack);
    await writeFile(join(inner, '.gitattributes'), '* filter=evil\n');
    await writeFile(join(inner, 'file'), '22');
  },
  async 'settings for another work tree, for one work tree alone, and for folders that are safe'(folder, attack) {
    await writeFile(
      join(folder, 'more-settings'),
      `[core]\n\tfsmonitor = ${attack}\n[filter "evil"]\n\tclean = ${attack}\n`,
    );
    await writeFile(join(folder, 'attributes'), '* filter=evil\n');
    gitIn(folder, 'config', 'core.attributesFile', join(folder, 'attributes'));
    gitIn(folder, 'config', 'includeIf.gitdir:/.path', join(folder, 'more-settings'));
    gitIn(folder, 'config', 'safe.directory', '*');
    gitIn(folder, 'config', 'core.repositoryformatversion', '1');
    gitIn(folder, 'config', 'extensions.worktreeConfig', 'true');
    await writeFile(join(folder, '.git/config.worktree'), `[core]\n\tworktree = /etc\n\tfsmonitor = ${attack}\n`);
    await writeFile(join(folder, '.git/commondir'), '.\n');
  },
  async 'a folder of git elsewhere'(folder, attack) {
    gitIn(folder, 'config', 'core.fsmonitor', attack);
    await rename(join(folder, '.git'), `${folder}-git`);
    await writeFile(join(folder, '.git'), `gitdir: ${folder}-git\n`);
  },
  async 'a link in place of the folder of git'(folder, attack) {
    gitIn(folder, 'config', 'core.fsmonitor', attack);
    await rename(join(folder, '.git'), `${folder}-git`);
    await symlink(`${folder}-git`, join(folder, '.git'));
  },
};

/** Attacks that fit into one repository are tried together, because each repository costs many processes. */
const GROUPS = [
  [
    'a submodule with settings of its own',
    'a program in place of the file system monitor',
    'hooks',
    'external diffs and text conversions',
    'a pager, an editor, an ssh command, a credential helper and aliases',
  ],
  ['filters that clean, smudge and process', 'a link in place of the folder of git'],
  ['filters in the attributes of the repository alone'],
  ['settings from an included file, and a missing object that a remote has'],
  ['settings for another work tree, for one work tree alone, and for folders that are safe'],
  ['filters that clean, smudge and process', 'a folder of git elsewhere'],
];

test('every attack is tried', () => {
  assert.deepEqual([...new Set(GROUPS.flat())].toSorted(), Object.keys(ATTACKS).toSorted());
});

for (const names of GROUPS) {
  test(`a hostile repository runs nothing: ${names.join('; ')}`, async () => {
    const folder = await makeRepository({ 'a.txt': 'one\n', 'b.txt': 'two\n' });
    for (const [index, name] of names.entries()) {
      await ATTACKS[name]?.(folder, await writeAttack(folder, String(index)));
    }
    const state = stateOf(folder);
    const { tree: before } = await state.save(undefined, signal);
    await writeFile(join(folder, 'a.txt'), 'changed\n');
    await writeFile(join(folder, 'new.txt'), 'new\n');
    await rm(join(folder, 'b.txt'));
    const { tree } = await state.save(before, signal);
    // An object of the repository may be missing: then there is an error, and still no program.
    const changes = await state.compare(before, tree, signal).catch((error: unknown) => {
      assert.equal(errorCode(error), 'GIT_FAILED');
      return [];
    });
    const others = changes.filter(({ path }) => !['a.txt', 'b.txt', 'new.txt'].includes(path));
    assert.deepEqual(others, [], 'only what was changed in this folder');
    for (const { before, after } of changes.slice(0, 2)) {
      await state.diff(before?.oid ?? null, after?.oid ?? null, signal).catch(() => '');
    }
    const oids = changes.flatMap(({ before }) => before?.oid ?? []);
    await state.keep(oids, signal).catch(() => undefined);
    const ran = names.filter((_, index) => existsSync(`${folder}-marker-${index}`));
    assert.deepEqual(ran, []);
  });
}

async function writeAttack(folder: string, name: string): Promise<string> {
  const attack = `${folder}-attack-${name}`;
  await writeFile(attack, `#!/bin/sh\ntouch '${folder}-marker-${name}'\ncat\n`, { mode: 0o755 });
  return attack;
}

test('the attacks are real: plain git runs one of them', async () => {
  const folder = await makeRepository({ 'a.txt': 'one\n' });
  const attack = await writeAttack(folder, 'plain');
  await ATTACKS['filters that clean, smudge and process']?.(folder, attack);
  await writeFile(join(folder, 'a.txt'), 'changed\n');
  try {
    gitIn(folder, 'add', '-A');
  } catch {
    // The filter does not speak the protocol; it has run all the same.
  }
  assert.equal(existsSync(`${folder}-marker-plain`), true);
});

test('nothing of our own environment reaches git', async () => {
  const folder = await makeFolder({ a: '1' });
  const seen: Record<string, string>[] = [];
  process.env.GIT_EXTERNAL_DIFF = '/bin/false';
  const watched = createGit({
    path: PATH,
    clock: systemClock,
    start(options) {
      seen.push({ ...options.env });
      return startProcess(options);
    },
  });
  const gitFolder = join(top, 'data', 'watched');
  await createFolderState({ git: watched, root: confine(folder), gitFolder, maxFiles: 10, maxBytes: 100 }).save(
    undefined,
    signal,
  );
  delete process.env.GIT_EXTERNAL_DIFF;
  assert.ok(seen.length > 1);
  for (const env of seen) {
    assert.equal(env.GIT_EXTERNAL_DIFF, undefined);
    assert.equal(env.HOME, '/nonexistent');
    assert.equal(env.GIT_CONFIG_GLOBAL, '/dev/null');
    assert.equal(env.GIT_DIR, gitFolder);
  }
});

test('a folder that was replaced by a link is not read through the link', async () => {
  const folder = await makeFolder({ 'a.txt': 'a\n' });
  const elsewhere = await makeFolder({ 'secret.txt': 'a secret of somebody else\n' });
  const state = stateOf(folder);
  const before = await state.save(undefined, signal);
  await rename(folder, `${folder}-moved`);
  await symlink(elsewhere, folder);
  await assert.rejects(state.save(before.tree, signal), (error) => errorCode(error) === 'GIT_FAILED');
  await rm(folder);
  await rename(`${folder}-moved`, folder);
  assert.equal((await state.save(before.tree, signal)).tree, before.tree);
});

test('git stays in its folder when the path becomes a link while git runs', async () => {
  const folder = await makeFolder({ 'a.txt': 'a\n' });
  const elsewhere = await makeFolder({ 'secret.txt': 'a secret of somebody else\n' });
  const swapped = createGit({
    path: PATH,
    clock: systemClock,
    async start(options) {
      await rename(folder, `${folder}-moved`);
      await symlink(elsewhere, folder);
      const running = await startProcess(options);
      const exited = running.exited.then(async (exit) => {
        await rm(folder);
        await rename(`${folder}-moved`, folder);
        return exit;
      });
      return { ...running, exited };
    },
  });
  const gitFolder = join(top, 'data', 'git-of-a-race');
  const state = createFolderState({ git: swapped, root: confine(folder), gitFolder, maxFiles: 100, maxBytes: 1000 });
  const empty = await stateOf(await makeFolder()).save(undefined, signal);
  const { tree } = await state.save(undefined, signal);
  const paths = (await state.compare(empty.tree, tree, signal)).map(({ path }) => path);
  assert.deepEqual(paths, ['a.txt']);
});
