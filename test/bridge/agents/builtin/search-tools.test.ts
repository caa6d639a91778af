import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { toolTable } from '../../../../src/bridge/agents/builtin/create-builtin-agent.ts';
import { readGlob } from '../../../../src/bridge/agents/builtin/tools/walk-folder.ts';
import { toolContext, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { until } from '../../../kit/until.ts';

async function run(name: string, input: unknown, context: ReturnType<typeof toolContext>): Promise<string[]> {
  const tool = toolTable.find((found) => found.name === name);
  return (await tool?.run(input, context))?.text.split('\n') ?? [];
}

async function fill(root: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  }
}

test('globs match names and paths as people expect', () => {
  const rows: readonly [glob: string, fits: readonly string[], others: readonly string[]][] = [
    ['*.ts', ['a.ts', '.ts'], ['a.tsx', 'src/a.ts', '']],
    ['**/*.ts', ['a.ts', 'src/a.ts', 'a/b/c.ts'], ['a.js']],
    ['src/**', ['src', 'src/a', 'src/a/b'], ['lib/a']],
    ['src/**/test/*.{ts,tsx}', ['src/test/a.ts', 'src/a/b/test/c.tsx'], ['src/test/a/b.ts', 'src/test/a.js']],
    ['a?c', ['abc'], ['ac', 'a/c', 'abbc']],
    ['[a-c]x[!0-9]', ['bxy'], ['dxy', 'bx1']],
    ['a\\*b', ['a*b'], ['axb']],
    ['{', ['{'], []],
    ['[', ['['], []],
    ['*a*b*', ['xaybz', 'ab'], ['ba']],
  ];
  for (const [glob, fits, others] of rows) {
    const matches = readGlob(glob);
    for (const path of fits) assert.equal(matches?.(path), true, `${glob} fits ${path}`);
    for (const path of others) assert.equal(matches?.(path), false, `${glob} does not fit ${path}`);
  }
  assert.equal(readGlob('{a,b}'.repeat(20)), undefined, 'a million alternatives');
  assert.equal(readGlob(`${'*a'.repeat(200)}b`)?.('a'.repeat(5000)), false, 'no pattern takes long');
});

test('what .gitignore files leave out is what git leaves out', async (context) => {
  const root = await workingDirectory(context);
  const rules = [
    '# a comment',
    '*.log',
    '!keep.log',
    '/top.txt',
    'build/',
    'docs/*.tmp',
    'a/**/z',
    '\\#odd',
    'sp\\ ',
    '[Bb]in',
    'x{1}',
  ];
  await fill(root, {
    '.gitignore': rules.join('\n'),
    'sub/.gitignore': 'own.txt\n!special.log\n',
    'one.log': '',
    'keep.log': '',
    'top.txt': '',
    'sub/top.txt': '',
    'build/out.js': '',
    'sub/build/out.js': '',
    'sub/own.txt': '',
    'own.txt': '',
    'sub/special.log': '',
    'sub/other.log': '',
    'docs/a.tmp': '',
    'docs/in/a.tmp': '',
    'a/z': '',
    'a/b/c/z': '',
    '#odd': '',
    'Bin/tool': '',
    'sub/bin': '',
    'x{1}': '',
    x1: '',
  });
  execFileSync('git', ['init', '--quiet'], { cwd: root });
  const told = execFileSync('git', ['ls-files', '--others', '--exclude-standard', '-z'], {
    cwd: root,
    encoding: 'utf8',
  });
  const expected = told
    .split('\0')
    .filter((path) => path !== '')
    .sort();
  const found = await run('find_files', { pattern: '*' }, toolContext(root));
  assert.deepEqual(found.toSorted(), expected);
  const listed = await run('list_files', { recursive: true }, toolContext(root));
  assert.deepEqual(listed.filter((path) => !path.endsWith('/')).toSorted(), expected);
});

test('searches leave out what is ignored, unless it is asked for; a folder that is named is searched', async (context) => {
  const root = await workingDirectory(context);
  const text = 'the needle is here';
  await fill(root, {
    '.gitignore': 'out/\n',
    'a.txt': text,
    'out/b.txt': text,
    'deep/.gitignore': '*.txt',
    'deep/c.txt': text,
  });
  const given = toolContext(root);
  assert.deepEqual(await run('search_files', { text: 'needle' }, given), ['a.txt:1: the needle is here']);
  assert.equal((await run('search_files', { text: 'needle', include_ignored: true }, given)).length, 3);
  assert.deepEqual(await run('search_files', { text: 'needle', path: 'out' }, given), ['b.txt:1: the needle is here']);
  assert.deepEqual(await run('find_files', { pattern: '*.txt', path: 'deep' }, given), ['[nothing found]']);
  assert.deepEqual(await run('list_files', {}, given), ['.gitignore', 'a.txt', 'deep/', 'out/']);
});

test('a search takes a regular expression, and files by a pattern', async (context) => {
  const root = await workingDirectory(context);
  await fill(root, { 'src/a.ts': 'x\nexport const Sum = 1;\n', 'src/b.js': 'export const sum = 2;', 'c.ts': 'sum' });
  const given = toolContext(root);
  const search = (input: object) => run('search_files', input, given);
  assert.deepEqual(await search({ pattern: '^export\\s+const \\w+um\\b', ignore_case: true }), [
    'src/a.ts:2: export const Sum = 1;',
    'src/b.js:1: export const sum = 2;',
  ]);
  assert.deepEqual(await search({ pattern: 'sum', ignore_case: true, files: 'src/**/*.ts' }), [
    'src/a.ts:2: export const Sum = 1;',
  ]);
  assert.deepEqual(await search({ pattern: 'nothing$' }), ['[nothing found]']);
  for (const input of [{}, { text: 'a', pattern: 'b' }, { pattern: '(' }, { text: 'a', files: '{a,b}'.repeat(20) }]) {
    await assert.rejects(search(input), { code: 'TOOL_CALL_REFUSED' }, JSON.stringify(input));
  }
});

test('an expression that takes for ever holds up nothing, and is ended', async (context) => {
  const root = await workingDirectory(context);
  await fill(root, { 'a.txt': `${'a'.repeat(200)}b` });
  const timers: (() => void)[] = [];
  const clock = {
    after(_ms: number, call: () => void) {
      timers.push(call);
      return () => undefined;
    },
  };
  const hanging = { pattern: '^(a+)+$' };
  const timed = assert.rejects(run('search_files', hanging, toolContext(root, { clock })), {
    code: 'TOOL_CALL_REFUSED',
  });
  await until('the timer of the search', () => timers.length === 1);
  // Long enough for the thread to be at work in most runs; the result is the same before.
  await pause(200);
  timers[0]?.();
  await timed;
  const stop = new AbortController();
  // As a refusal where the thread is at work, as the abort itself before.
  const cancelled = assert.rejects(run('search_files', hanging, toolContext(root, {}, stop.signal)));
  await pause(200);
  stop.abort();
  await cancelled;
});
