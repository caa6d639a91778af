import assert from 'node:assert/strict';
import { mkdir, open, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { toolTable } from '../../../../src/bridge/agents/builtin/create-builtin-agent.ts';
import { toolContext, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';

const REFUSED = { code: 'TOOL_CALL_REFUSED' };

const run = (name: string, input: unknown, root: string) => {
  const tool = toolTable.find((candidate) => candidate.name === name);
  assert.ok(tool);
  return tool.run(input, toolContext(root));
};

test('a file is read in parts, and each part says how to go on', async (context) => {
  const root = await workingDirectory(context);
  await writeFile(join(root, 'a.txt'), Array.from({ length: 5000 }, (_, index) => `line ${index + 1}`).join('\n'));
  const first = await run('read_file', { path: 'a.txt' }, root);
  assert.match(first.text, /^line 1\n/);
  assert.match(first.text, /\nline 2000\n\[there is more: go on with start_line 2001\]$/);
  const last = await run('read_file', { path: 'a.txt', start_line: 4999 }, root);
  assert.equal(last.text, 'line 4999\nline 5000');
  assert.deepEqual(last.locations, [{ path: join(root, 'a.txt'), line: 4999 }]);
  const few = await run('read_file', { path: 'a.txt', start_line: 2, line_count: 2 }, root);
  assert.equal(few.text, 'line 2\nline 3\n[there is more: go on with start_line 4]');
  assert.equal(
    (await run('read_file', { path: 'a.txt', start_line: 9999 }, root)).text,
    '[the file has 5000 lines; line 9999 is not shown]',
  );
});

test('a huge file is read without holding it, and without reading all of it', async (context) => {
  const root = await workingDirectory(context);
  const file = await open(join(root, 'huge.txt'), 'w');
  await file.write('first\n');
  // Sixteen gigabytes with nothing in them.
  await file.truncate(16 * 1024 ** 3);
  await file.close();
  const before = process.memoryUsage().rss;
  assert.match(
    (await run('read_file', { path: 'huge.txt', line_count: 1 }, root)).text,
    /binary file of 17179869184 bytes/,
  );
  await writeFile(join(root, 'long-line.txt'), 'x'.repeat(40 * 1024 * 1024));
  const { text } = await run('read_file', { path: 'long-line.txt' }, root);
  assert.equal(text, `${'x'.repeat(4000)} [line cut]`);
  assert.ok(process.memoryUsage().rss - before < 200 * 1024 * 1024);
  await assert.rejects(run('edit_file', { path: 'huge.txt', old_text: 'first', new_text: '' }, root), REFUSED);
});

test('a binary file is named, not shown, and never edited', async (context) => {
  const root = await workingDirectory(context);
  await writeFile(join(root, 'picture.png'), Buffer.from([0x89, 0x50, 0, 1, 2]));
  await writeFile(join(root, 'latin.txt'), Buffer.from([0x63, 0x61, 0x66, 0xe9]));
  assert.equal((await run('read_file', { path: 'picture.png' }, root)).text, '[binary file of 5 bytes, not shown]');
  assert.equal((await run('read_file', { path: 'latin.txt' }, root)).text, 'caf\ufffd');
  for (const path of ['picture.png', 'latin.txt']) {
    await assert.rejects(run('edit_file', { path, old_text: 'ca', new_text: 'x' }, root), REFUSED);
  }
  assert.deepEqual(await readFile(join(root, 'latin.txt')), Buffer.from([0x63, 0x61, 0x66, 0xe9]));
});

test('characters that lie across the pieces in which a file is read stay whole', async (context) => {
  const root = await workingDirectory(context);
  const line = `${'a'.repeat(65_535)}é`;
  await writeFile(join(root, 'a.txt'), `${line}\nnext €\n`);
  const { text } = await run('search_files', { text: 'next €' }, root);
  assert.equal(text, 'a.txt:2: next €');
});

test('an edit needs a passage that stands there exactly once', async (context) => {
  const root = await workingDirectory(context);
  await writeFile(join(root, 'a.ts'), 'const a = 1;\nconst b = 1;\naa aa\n');
  const input = { path: 'a.ts', old_text: 'const b = 1;', new_text: 'const b = $&2;' };
  const { text, locations } = await run('edit_file', input, root);
  assert.equal(text, 'Replaced the passage at line 2.');
  assert.deepEqual(locations, [{ path: join(root, 'a.ts'), line: 2 }]);
  assert.equal(await readFile(join(root, 'a.ts'), 'utf8'), 'const a = 1;\nconst b = $&2;\naa aa\n');
  await assert.rejects(run('edit_file', { ...input, old_text: 'const' }, root), REFUSED);
  await assert.rejects(run('edit_file', { ...input, old_text: 'absent' }, root), REFUSED);
  // It overlaps itself, so there are two of it.
  await writeFile(join(root, 'b.ts'), 'aaa');
  await assert.rejects(run('edit_file', { path: 'b.ts', old_text: 'aa', new_text: '' }, root), REFUSED);
  await assert.rejects(run('edit_file', { path: 'c.ts', old_text: 'a', new_text: '' }, root), { code: 'ENOENT' });
});

test('a file is written with the folders to it', async (context) => {
  const root = await workingDirectory(context);
  const made = await run('write_file', { path: 'new/deep/a.txt', content: 'één' }, root);
  assert.equal(made.text, 'Made the file; it has 5 bytes.');
  const replaced = await run('write_file', { path: 'new/deep/a.txt', content: '' }, root);
  assert.equal(replaced.text, 'Replaced the file; it has 0 bytes.');
  await assert.rejects(run('write_file', { path: 'new/deep/a.txt/b', content: '' }, root), { code: 'ENOTDIR' });
});

test('listing and searching skip what machines made, unless it is asked for by name', async (context) => {
  const root = await workingDirectory(context);
  await mkdir(join(root, 'node_modules/package'), { recursive: true });
  await writeFile(join(root, 'node_modules/package/index.js'), 'needle');
  await writeFile(join(root, 'a.js'), 'a Needle here\n\nneedle');
  assert.equal((await run('list_files', { recursive: true }, root)).text, 'a.js\nnode_modules/');
  assert.equal((await run('search_files', { text: 'needle' }, root)).text, 'a.js:3: needle');
  const folded = await run('search_files', { text: 'NEEDLE', ignore_case: true, files: '*.js' }, root);
  assert.equal(folded.text, 'a.js:1: a Needle here\na.js:3: needle');
  assert.deepEqual(folded.locations, [
    { path: join(root, 'a.js'), line: 1 },
    { path: join(root, 'a.js'), line: 3 },
  ]);
  const named = await run('search_files', { text: 'needle', path: 'node_modules' }, root);
  assert.equal(named.text, 'package/index.js:1: needle');
  assert.equal((await run('search_files', { text: '.*', files: '*.ts' }, root)).text, '[nothing found]');
});

test('what a search or a listing finds is bounded, and says that it was cut', async (context) => {
  const root = await workingDirectory(context);
  await writeFile(join(root, 'many.txt'), 'needle\n'.repeat(1000));
  const found = (await run('search_files', { text: 'needle' }, root)).text.split('\n');
  assert.equal(found.length, 201);
  assert.match(found.at(-1) ?? '', /^\[cut/);
  await mkdir(join(root, 'many'));
  for (let count = 0; count < 1100; count += 1) await writeFile(join(root, 'many', `${count}`), '');
  const listed = (await run('list_files', { path: 'many' }, root)).text.split('\n');
  assert.equal(listed.length, 1001);
  assert.match(listed.at(-1) ?? '', /^\[cut after 1000/);
});
