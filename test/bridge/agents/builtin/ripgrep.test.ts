import assert from 'node:assert/strict';
import { mkdir, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { searchFilesTool } from '../../../../src/bridge/agents/builtin/tools/search-tools.ts';
import { filesByRipgrep } from '../../../../src/bridge/agents/builtin/tools/text-search.ts';
import { confine, toolContext, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { findRipgrep } from '../../../kit/ripgrep.ts';

const { folder: RIPGREP, missing } = findRipgrep();
const options = { skip: missing };
const PATH = '/usr/bin:/bin';

/** With and without ripgrep. */
const contextsOf = (root: string) => [
  toolContext(root, { environment: { PATH: `${RIPGREP}:${PATH}` } }),
  toolContext(root, { environment: { PATH: '' } }),
];

async function fill(root: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  }
}

const TREE = {
  '.gitignore': '*.log\n!keep.log\n/build/\n',
  '.ignore': 'src\n',
  '.hidden/a.txt': 'needle 1\n',
  'a-b/one.txt': 'needle 2\nother\nNEEDLE 3\n',
  'a/one.txt': 'x\nneedle (4) [x] $y .*\n',
  'a.txt': 'needle 5\n',
  'src/deep/.gitignore': 'own.txt\n',
  'src/deep/own.txt': 'needle 6\n',
  'src/deep/two.txt': 'needle 7\n',
  'build/out.txt': 'needle 8\n',
  'one.log': 'needle 9\n',
  'keep.log': 'needle 10\n',
  'node_modules/p/index.js': 'needle 11\n',
  '.git/config': 'needle 12\n',
  'src/node_modules/q.js': 'needle 13\n',
  'binary.bin': 'needle 14\n\0\0',
};

test('search finds the same lines in the same order with ripgrep and without', options, async (t) => {
  const root = await workingDirectory(t);
  await fill(root, TREE);
  for (const input of [
    { text: 'needle' },
    { text: 'needle', ignore_case: true },
    { text: 'needle', include_ignored: true },
    { text: 'needle (4) [x] $y .*' },
    { text: '--version' },
    { text: 'needle', files: '*.txt' },
    { text: 'needle', path: 'src' },
    { text: 'nowhere' },
  ]) {
    const [fast, slow] = await Promise.all(contextsOf(root).map((context) => searchFilesTool.run(input, context)));
    assert.deepEqual(fast, slow, JSON.stringify(input));
  }
  const { text } = await searchFilesTool.run({ text: 'needle' }, contextsOf(root)[0] as never);
  assert.match(text, /^\.hidden\/a\.txt:1: needle 1\n/);
});

test('ripgrep is used where it is installed, and not where it is not', options, async (t) => {
  const root = await workingDirectory(t);
  await fill(root, TREE);
  const wanted = { text: 'needle 7', ignoreCase: false, isIgnoring: true, maxDepth: 32 };
  const [fast, slow] = await Promise.all(contextsOf(root).map((context) => filesByRipgrep(wanted, context)));
  assert.deepEqual([fast, slow], [['src/deep/two.txt'], undefined]);
});

test(
  'what ripgrep names is read under our own rules: no link is followed, and nothing private is shown',
  options,
  async (t) => {
    const root = await workingDirectory(t);
    const outside = await workingDirectory(t);
    await fill(outside, { 'secret.txt': 'needle secret\n' });
    await fill(root, { 'a.txt': 'needle\n', 'private.txt': 'needle private\n' });
    await symlink(join(outside, 'secret.txt'), join(root, 'link.txt'));
    const [context] = contextsOf(root);
    assert.ok(context !== undefined);
    const inner = confine(root);
    const guarded = {
      ...inner,
      async open() {
        const folder = await inner.open();
        const { ino } = await stat(join(root, 'private.txt'), { bigint: true });
        return { ...folder, isPrivate: (one: { readonly ino: bigint }) => one.ino === ino };
      },
    };
    const { text } = await searchFilesTool.run({ text: 'needle' }, { ...context, root: guarded });
    assert.equal(text, 'a.txt:1: needle');
  },
);
