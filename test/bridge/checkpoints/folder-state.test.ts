import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdir, readdir, readFile, rename, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { blobDigest, createFolderState } from '../../../src/bridge/checkpoints/folder-state.ts';
import { createGit } from '../../../src/bridge/checkpoints/run-git.ts';
import { startProcess } from '../../../src/platform/child-process/start-process.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { errorCode } from '../../../src/platform/errors/app-error.ts';
import { confine, git, gitIn, makeFolder, makeRepository, PATH, signal, stateOf, top } from './folder-fixture.ts';

/** Names and contents. Git notes at its objects when they were last of use. */
const everythingIn = async (folder: string) =>
  Promise.all(
    (await readdir(folder, { recursive: true })).toSorted().map(async (name) => {
      const isFile = (await stat(join(folder, name))).isFile();
      return [name, isFile ? blobDigest(await readFile(join(folder, name))) : ''];
    }),
  );

test('changed, new, deleted and linked files and modes are found; the repository itself stays as it is', async () => {
  const folder = await makeRepository({ 'a.txt': 'one\n', 'gone.txt': 'x\n', 'd/run': '1', '.gitignore': 'ignored\n' });
  const repository = await everythingIn(join(folder, '.git'));
  const state = stateOf(folder);
  const { tree: before } = await state.save(undefined, signal);
  assert.equal((await state.save(before, signal)).tree, before, 'nothing has changed');
  const long = `${'n'.repeat(250)}.txt`;
  await writeFile(join(folder, 'a.txt'), 'one\ntwo\n');
  await writeFile(join(folder, long), 'new\n');
  await writeFile(join(folder, 'bytes'), Buffer.of(0, 1, 2));
  await writeFile(join(folder, 'ignored'), 'not saved');
  await writeFile(join(folder, ':(top) [odd]\nname'), 'odd\n');
  await symlink('/etc/passwd', join(folder, 'link'));
  await rm(join(folder, 'gone.txt'));
  await chmod(join(folder, 'd/run'), 0o755);
  const { tree, savedBytes } = await state.save(before, signal);
  assert.ok(savedBytes > 10 && savedBytes < 100, String(savedBytes));
  const changes = await state.compare(before, tree, signal);
  assert.deepEqual(
    changes.map(({ path, before, after, added, removed, binary }) => [
      path.slice(0, 20),
      before?.mode,
      after?.mode,
      added,
      removed,
      binary,
    ]),
    [
      [':(top) [odd]\nname', undefined, '100644', 1, 0, false],
      ['a.txt', '100644', '100644', 1, 0, false],
      ['bytes', undefined, '100644', 0, 0, true],
      ['d/run', '100644', '100755', 0, 0, false],
      ['gone.txt', '100644', undefined, 0, 1, false],
      ['link', undefined, '120000', 1, 0, false],
      [long.slice(0, 20), undefined, '100644', 1, 0, false],
    ],
  );
  const oids = changes.flatMap(({ before, after }) => [before, after].flatMap((file) => file?.oid ?? []));
  const found = await state.read(oids, signal);
  const linkOid = changes.find(({ path }) => path === 'link')?.after?.oid ?? '';
  assert.equal(found.get(linkOid)?.toString(), '/etc/passwd', 'a link is saved, not what it leads to');
  const changed = changes.find(({ path }) => path === 'a.txt');
  assert.equal(
    await state.diff(changed?.before?.oid ?? '', changed?.after?.oid ?? '', signal),
    '@@ -1 +1,2 @@\n one\n+two\n',
  );
  assert.equal(await state.diff(null, changed?.before?.oid ?? '', signal), '@@ -0,0 +1 @@\n+one\n');
  assert.deepEqual(await everythingIn(join(folder, '.git')), repository, 'nothing was written to the repository');

  // The repository may forget its objects: what the changes need was copied.
  await state.keep(oids, signal);
  await rename(join(folder, '.git'), join(folder, '..', 'moved-away'));
  const kept = await state.read(oids, signal);
  assert.deepEqual([...kept.keys()].toSorted(), [...found.keys()].toSorted());
});

test('a folder without a repository is saved within limits, and so is a repository that was not committed yet', async () => {
  const folder = await makeFolder({ a: '1', 'b/c': '2', 'node_modules/left/out': '3' });
  const state = stateOf(folder);
  const { tree: empty } = await state.save(undefined, signal);
  await writeFile(join(folder, 'b/c'), '3');
  const { tree } = await state.save(empty, signal);
  assert.deepEqual(
    (await state.compare(empty, tree, signal)).map(({ path }) => path),
    ['b/c'],
  );
  const failure = async (limits: { maxFiles: number; maxBytes: number }) => {
    const error = await stateOf(folder, limits)
      .save(undefined, signal)
      .then(String, (thrown: unknown) => thrown);
    assert.equal(errorCode(error), 'CHECKPOINT_FAILED', String(error));
  };
  await failure({ maxFiles: 1, maxBytes: 1_000_000 });
  await failure({ maxFiles: 100, maxBytes: 1 });
  const fresh = await makeFolder({ a: '1' });
  gitIn(fresh, 'init', '-q', '.');
  assert.match((await stateOf(fresh).save(undefined, signal)).tree, /^[0-9a-f]{40}$/);
});

test('files that git converts are saved as they lie in the folder', async () => {
  const folder = await makeRepository({
    '.gitattributes': '*.crlf text eol=crlf\n*.big filter=shrink\n*.id ident\n',
    'a.crlf': 'one\r\ntwo\r\n',
    'b.big': 'the whole content\n',
    'c.id': '$Id$\n',
    plain: 'x\n',
  });
  // As a filter leaves it: git has stored something else, and takes the file for unchanged.
  const pointer = execFileSync('git', ['hash-object', '-w', '--stdin'], { cwd: folder, input: 'pointer\n' });
  const [, size] = /size: (\d+)/.exec(gitIn(folder, 'ls-files', '--debug', 'b.big')) ?? [];
  assert.equal(size, '18');
  const index = await readFile(join(folder, '.git/index'));
  const real = Buffer.from(blobDigest(Buffer.from('the whole content\n')), 'hex');
  const at = index.indexOf(real);
  assert.ok(at > 0);
  Buffer.from(pointer.toString().trim(), 'hex').copy(index, at);
  createHash('sha1')
    .update(index.subarray(0, -20))
    .digest()
    .copy(index, index.length - 20);
  await writeFile(join(folder, '.git/index'), index);
  const state = stateOf(folder);
  const { tree: before } = await state.save(undefined, signal);
  for (const name of ['a.crlf', 'b.big', 'c.id']) await writeFile(join(folder, name), 'changed\n');
  const { tree } = await state.save(before, signal);
  const changes = await state.compare(before, tree, signal);
  const contents = await state.read(
    changes.map(({ before }) => before?.oid ?? ''),
    signal,
  );
  assert.deepEqual(
    changes.map(({ path, before }) => [path, contents.get(before?.oid ?? '')?.toString()]),
    [
      ['a.crlf', 'one\r\ntwo\r\n'],
      ['b.big', 'the whole content\n'],
      ['c.id', '$Id$\n'],
    ],
  );
});

test('line ends that a setting converts are noticed by a sample, and every file is read then', async () => {
  const folder = await makeFolder({ 'a.txt': 'one\r\ntwo\r\n' });
  await utimes(join(folder, 'a.txt'), 1_700_000_000, 1_700_000_000);
  gitIn(folder, 'init', '-q', '.');
  gitIn(folder, '-c', 'core.autocrlf=true', 'add', '-A');
  assert.equal(gitIn(folder, 'cat-file', '-p', ':a.txt'), 'one\ntwo\n');
  const state = stateOf(folder);
  const { tree: before } = await state.save(undefined, signal);
  await writeFile(join(folder, 'a.txt'), 'changed\n');
  const [change] = await state.compare(before, (await state.save(before, signal)).tree, signal);
  assert.equal(change?.before?.oid, blobDigest(Buffer.from('one\r\ntwo\r\n')));
});

test('repositories inside the folder are left alone, and those that borrow objects are read file by file', async () => {
  const inner = await makeRepository({ inner: '1\n' });
  const folder = await makeRepository({ outer: '1\n' });
  await rename(inner, join(folder, 'inner'));
  gitIn(folder, '-c', 'protocol.file.allow=always', 'add', 'inner');
  gitIn(folder, 'commit', '-qm', 'with an inner repository');
  await writeFile(join(folder, 'inner/inner'), 'changed\n');
  await writeFile(join(folder, '.git/objects/info/alternates'), join(top, 'elsewhere'));
  const state = stateOf(folder);
  const { tree: before } = await state.save(undefined, signal);
  assert.equal(existsSync(join(state.gitFolder, 'objects/info/alternates')), false);
  await writeFile(join(folder, 'inner/more'), '1');
  await writeFile(join(folder, 'outer'), '2\n');
  const { tree } = await state.save(before, signal);
  assert.deepEqual(
    (await state.compare(before, tree, signal)).map(({ path }) => path),
    ['outer'],
  );
});

test('an index that names paths outside of the folder is not used', async () => {
  await writeFile(join(top, 'secret'), 'secret\n');
  const folder = await makeRepository({ 'aa/secret': 'x\n' });
  const index = await readFile(join(folder, '.git/index'));
  const at = index.indexOf('aa/secret');
  Buffer.from('../secret').copy(index, at);
  createHash('sha1')
    .update(index.subarray(0, -20))
    .digest()
    .copy(index, index.length - 20);
  await writeFile(join(folder, '.git/index'), index);
  const state = stateOf(folder);
  const { tree: before } = await state.save(undefined, signal);
  await writeFile(join(top, 'secret'), 'changed\n');
  await writeFile(join(folder, 'aa/secret'), 'y\n');
  const { tree } = await state.save(before, signal);
  assert.deepEqual(
    (await state.compare(before, tree, signal)).map(({ path }) => path),
    ['aa/secret'],
  );
  const found = await state.read([blobDigest(Buffer.from('secret\n'))], signal);
  assert.equal(found.size, 0, 'what is outside was not read');
});

test('files that change, vanish or turn into folders during a save do no harm', async () => {
  const folder = await makeFolder({ a: '1', b: '1', c: '1' });
  const racing = createGit({
    path: PATH,
    clock: systemClock,
    async start(options) {
      if (options.args[0] === 'update-index' && existsSync(join(folder, 'a'))) {
        await rm(join(folder, 'a'));
        await rm(join(folder, 'b'));
        await mkdir(join(folder, 'b'));
        await writeFile(join(folder, 'b/inside'), '1');
      }
      return startProcess(options);
    },
  });
  const gitFolder = join(top, 'data', 'racing');
  const state = createFolderState({ git: racing, root: confine(folder), gitFolder, maxFiles: 10, maxBytes: 100 });
  const { tree } = await state.save(undefined, signal);
  const { tree: settled } = await state.save(tree, signal);
  const { tree: again } = await state.save(settled, signal);
  assert.equal(again, settled);
  // What a killed save leaves behind does not stop the next one.
  await writeFile(join(gitFolder, 'index.lock'), '');
  await writeFile(join(folder, 'd'), '1');
  assert.notEqual((await state.save(settled, signal)).tree, settled);
});

test('git is ended when its time is over, when it prints too much, and it is said when there is none', async () => {
  const folder = await makeFolder({ a: 'x'.repeat(10_000) });
  const state = stateOf(folder);
  await state.save(undefined, signal);
  const place = { gitFolder: state.gitFolder, workTree: confine(folder) };
  const oid = blobDigest(Buffer.from('x'.repeat(10_000)));
  await assert.rejects(git.run(['cat-file', 'blob', oid], { ...place, signal, maxOutputBytes: 100 }), /GIT_FAILED/);
  const stopped = new AbortController();
  // Waits for its input, which does not end.
  const running = createGit({
    path: PATH,
    clock: systemClock,
    async start(options) {
      const started = await startProcess(options);
      started.stdin.end = () => started.stdin;
      return started;
    },
  }).run(['cat-file', '--batch'], { ...place, signal: stopped.signal });
  stopped.abort();
  await assert.rejects(running, /GIT_FAILED/);
  const none = createGit({ path: join(top, 'nowhere'), clock: systemClock });
  await assert.rejects(none.run(['version'], { ...place, signal }), ({ details }: { details: { reason: string } }) =>
    details.reason.includes('not installed'),
  );
});
