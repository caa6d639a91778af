import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { link, mkdir, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { toolTable } from '../../../../src/bridge/agents/builtin/create-builtin-agent.ts';
import { locate, openFolder, replaceFile, withFile } from '../../../../src/bridge/agents/builtin/tools/confinement.ts';
import { confine, toolContext, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';

const REFUSED = { code: 'TOOL_CALL_REFUSED' };

/** A root, and beside it a folder with a secret that must never be read or changed. */
async function places(context: TestContext) {
  const parent = await workingDirectory(context);
  const root = join(parent, 'root');
  const outside = join(parent, 'outside');
  await mkdir(root);
  await mkdir(outside);
  await writeFile(join(outside, 'secret.txt'), 'the secret');
  return { root, outside };
}

const run = (name: string, input: unknown, root: string) => {
  const tool = toolTable.find((candidate) => candidate.name === name);
  assert.ok(tool);
  return tool.run(input, toolContext(root));
};

test('B-55: no tool reaches outside by dots, absolute paths, links or NUL bytes', async (context) => {
  const { root, outside } = await places(context);
  await symlink(outside, join(root, 'link'));
  await symlink(join(outside, 'secret.txt'), join(root, 'file-link'));
  await symlink(join(outside, 'not-there.txt'), join(root, 'dangling'));
  const files = [
    '../outside/secret.txt',
    join(outside, 'secret.txt'),
    'link/secret.txt',
    'file-link',
    'a/../../outside/secret.txt',
    'secret\0.txt',
  ];
  for (const path of files) {
    await assert.rejects(run('read_file', { path }, root), REFUSED, path);
    await assert.rejects(run('edit_file', { path, old_text: 'secret', new_text: 'x' }, root), REFUSED, path);
    await assert.rejects(run('write_file', { path, content: 'x' }, root), REFUSED, path);
  }
  for (const path of [
    '../outside/new.txt',
    'link/new.txt',
    'link/deep/new.txt',
    join(outside, 'new.txt'),
    'dangling',
  ]) {
    await assert.rejects(run('write_file', { path, content: 'x' }, root), (error: { code: string }) =>
      [REFUSED.code, 'ELOOP'].includes(error.code),
    );
  }
  for (const path of ['..', '../outside', 'link', outside, '/']) {
    await assert.rejects(run('list_files', { path }, root), REFUSED, path);
    await assert.rejects(run('search_files', { text: 'secret', path }, root), REFUSED, path);
    await assert.rejects(run('run_command', { command: 'true', working_directory: path }, root), REFUSED, path);
  }
  assert.deepEqual(await readdir(outside), ['secret.txt']);
  assert.equal(await readFile(join(outside, 'secret.txt'), 'utf8'), 'the secret');
});

test('B-55: listing and searching name a link but do not follow it', async (context) => {
  const { root, outside } = await places(context);
  await symlink(outside, join(root, 'link'));
  await writeFile(join(root, 'own.txt'), 'no secret here');
  const listed = await run('list_files', { recursive: true }, root);
  assert.equal(listed.text, 'link\nown.txt');
  const found = await run('search_files', { text: 'secret' }, root);
  assert.equal(found.text, 'own.txt:1: no secret here');
});

test('a link that stays inside is followed, and a path with dots that stays inside is fine', async (context) => {
  const { root } = await places(context);
  await mkdir(join(root, 'real'));
  await writeFile(join(root, 'real', 'a.txt'), 'inside');
  await symlink('real', join(root, 'alias'));
  assert.equal((await run('read_file', { path: 'alias/../alias/a.txt' }, root)).text, 'inside');
  assert.equal((await run('read_file', { path: join(root, 'real', 'a.txt') }, root)).text, 'inside');
  await run('write_file', { path: 'alias/b.txt', content: 'new' }, root);
  assert.equal(await readFile(join(root, 'real', 'b.txt'), 'utf8'), 'new');
});

test('B-55: a folder that becomes a link between the check and the use is not followed', async (context) => {
  const { root, outside } = await places(context);
  await mkdir(join(root, 'folder'));
  const names = await locate(confine(root), 'folder/secret.txt');
  await rename(join(root, 'folder'), join(root, 'moved'));
  await symlink(outside, join(root, 'folder'));
  await assert.rejects(openFolder(confine(root), names.slice(0, -1)), (error: { code: string }) =>
    ['ELOOP', 'ENOTDIR'].includes(error.code),
  );
});

test('B-55: a folder that becomes a link after it was opened is still the folder that was opened', async (context) => {
  const { root, outside } = await places(context);
  await mkdir(join(root, 'folder'));
  const folder = await openFolder(confine(root), ['folder']);
  await rename(join(root, 'folder'), join(root, 'moved'));
  await symlink(outside, join(root, 'folder'));
  await writeFile(folder.entry('written.txt'), 'x');
  await folder.close();
  assert.deepEqual(await readdir(join(root, 'moved')), ['written.txt']);
  assert.deepEqual(await readdir(outside), ['secret.txt']);
});

test('B-55: while somebody swaps a folder for a link all the time, nothing outside is read or written', async (context) => {
  const { root, outside } = await places(context);
  const swapped = join(root, 'swapped');
  await mkdir(swapped);
  await writeFile(join(swapped, 'secret.txt'), 'harmless');
  let isOver = false;
  const swapper = (async () => {
    while (!isOver) {
      // While it is away the tool may make the folder anew: then a step fails, and the next round puts it right.
      await rename(swapped, join(root, 'aside')).catch(() => undefined);
      await symlink(outside, swapped).catch(() => undefined);
      await rm(swapped, { recursive: true, force: true }).catch(() => undefined);
      await rename(join(root, 'aside'), swapped).catch(() => undefined);
    }
  })();
  const seen = new Set<string>();
  for (let count = 0; count < 300; count += 1) {
    const text = await withFile(confine(root), 'swapped/secret.txt', async ({ handle }) =>
      String(await handle.readFile()),
    ).catch(() => 'refused');
    seen.add(text);
    await replaceFile(confine(root), 'swapped/new.txt', 'x', `.temporary-${count}`).catch(() => undefined);
  }
  isOver = true;
  await swapper;
  assert.equal(seen.has('the secret'), false);
  assert.deepEqual(await readdir(outside), ['secret.txt']);
});

test('pipes, devices and folders are not read or written as files', async (context) => {
  const { root } = await places(context);
  execFileSync('sh', ['-c', 'mkfifo "$0"', join(root, 'pipe')]);
  await mkdir(join(root, 'folder'));
  for (const path of ['pipe', 'folder', '.']) {
    await assert.rejects(run('read_file', { path }, root), REFUSED, path);
    await assert.rejects(run('write_file', { path, content: 'x' }, root), REFUSED, path);
  }
  assert.equal((await run('search_files', { text: 'x' }, root)).text, '[nothing found]');
});

test('a working directory that was replaced by a link is refused', async (context) => {
  const { root, outside } = await places(context);
  await rm(root, { recursive: true });
  await symlink(outside, root);
  await assert.rejects(run('read_file', { path: 'secret.txt' }, root), REFUSED);
});

test('a path or a name of absurd length is refused', async (context) => {
  const { root } = await places(context);
  await assert.rejects(run('read_file', { path: 'a/'.repeat(3000) }, root), REFUSED);
  await assert.rejects(run('write_file', { path: 'a'.repeat(300), content: '' }, root), (error: { code: string }) =>
    ['ENAMETOOLONG', REFUSED.code].includes(error.code),
  );
});

test('a file that is replaced keeps its mode, and its other names keep the old content', async (context) => {
  const { root, outside } = await places(context);
  await link(join(outside, 'secret.txt'), join(root, 'hard-link'));
  await run('write_file', { path: 'hard-link', content: 'changed' }, root);
  assert.equal(await readFile(join(outside, 'secret.txt'), 'utf8'), 'the secret');
  await writeFile(join(root, 'run.sh'), 'old', { mode: 0o755 });
  await run('edit_file', { path: 'run.sh', old_text: 'old', new_text: 'new' }, root);
  assert.equal((await stat(join(root, 'run.sh'))).mode & 0o777, 0o755);
  assert.deepEqual((await readdir(root)).sort(), ['hard-link', 'run.sh']);
});
