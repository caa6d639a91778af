import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decide, type PermissionRule, rulesFrom, subjectOf } from '../../../src/bridge/workbench/permission-rules.ts';

const FOLDER = '/work/project';
const about = (toolKind: string, input: unknown, title = 'something') =>
  subjectOf({ toolCallId: 't', title, toolKind, input, options: [] }, FOLDER);
const run = (command: unknown) => about('execute', { command });
const edit = (path: string) => about('edit', { path });

const allowStatus: PermissionRule = { kind: 'execute', command: ['git', 'status'], decision: 'allow' };
const denyRemove: PermissionRule = { command: ['rm'], decision: 'deny' };
const denySecrets: PermissionRule = { path: '**/.env*', decision: 'deny' };
const allowSources: PermissionRule = { kind: 'edit', path: 'src/**', decision: 'allow' };

/** [what is asked, rules, what the call asked for, the decision] */
const COMBINATIONS: readonly (readonly [
  ReturnType<typeof run>,
  readonly PermissionRule[],
  Parameters<typeof decide>[2],
  string,
])[] = [
  // Without rules the call decides, and without the call the default.
  [run('make'), [], undefined, 'allow'],
  [run('make'), [], 'ask', 'ask'],
  [run('make'), [], 'allow', 'allow'],
  [run('make'), [], 'deny', 'deny'],
  // A matching allow decides before the call is asked.
  [run('git status'), [allowStatus], 'ask', 'allow'],
  [run('git push'), [allowStatus], 'ask', 'ask'],
  // A deny wins over every allow, wherever it comes from.
  [run('git status'), [allowStatus], 'deny', 'deny'],
  [run('git status'), [allowStatus, { kind: 'execute', decision: 'deny' }], 'allow', 'deny'],
  [run('git status'), [{ decision: 'deny' }, allowStatus], undefined, 'deny'],
  [run('rm -rf build'), [{ command: ['rm'], decision: 'allow' }, denyRemove], 'allow', 'deny'],
  // A rule without conditions matches all; several conditions must all fit.
  [edit('a.txt'), [{ decision: 'allow' }], 'ask', 'allow'],
  [edit('src/a.ts'), [allowSources], 'ask', 'allow'],
  [edit('test/a.ts'), [allowSources], 'ask', 'ask'],
  [about('delete', { path: 'src/a.ts' }), [allowSources], 'ask', 'ask'],
];

test('a deny wins, then an allow decides, then the call, then the default', () => {
  for (const [subject, rules, setting, expected] of COMBINATIONS) {
    assert.equal(decide(subject, rules, setting), expected, JSON.stringify([subject, rules, setting]));
  }
});

test('an allow matches a plain command by its first words, in every form in which agents send one', () => {
  const isAllowed = (subject: ReturnType<typeof run>) => decide(subject, [allowStatus], 'ask') === 'allow';
  for (const command of [
    'git status',
    'git  status --short',
    '"git" \'status\'',
    ['git', 'status'],
    ['bash', '-lc', 'git status'],
    ['/bin/sh', '-c', 'git status'],
  ]) {
    assert.ok(isAllowed(run(command)), JSON.stringify(command));
  }
  assert.ok(isAllowed(about('execute', { command: 'git', args: ['status'] })));
  assert.ok(isAllowed(about('execute', {}, 'git status')), 'the title, where the input has no command');
});

test('hostile: nothing that a shell interprets matches an allow', () => {
  for (const command of [
    'git status; rm -rf /',
    'git status && rm x',
    'git status | sh',
    'git status > /etc/passwd',
    'git status $(rm x)',
    'git status `rm x`',
    'git status\nrm x',
    'git status & rm x',
    'git status "$(rm x)"',
    'git status "`rm x`"',
    'git status $IFS',
    `git status $\{IFS}x`,
    'git status \\\nrm',
    'git status *',
    'git status ~',
    'PAGER=rm git status',
    'bash -c "git status"',
    ['bash', '-c', 'git status; rm x'],
    ['bash', '-x', 'git', 'status'],
    ['sh', 'git', 'status'],
    ['git', 'statusx'],
    'git',
    'gitx status',
    '',
    ['git', 1],
    { nested: 'git status' },
    `git status ${'x'.repeat(40_000)}`,
  ]) {
    assert.notEqual(decide(run(command), [allowStatus], 'ask'), 'allow', JSON.stringify(command).slice(0, 80));
  }
});

test('hostile: a deny finds its words and paths behind other programs, in scripts and through dots', () => {
  for (const command of [
    'rm x',
    'ls; rm x',
    'sudo rm x',
    '/bin/rm x',
    ['bash', '-c', 'cd a && rm x'],
    'echo $(rm x)',
  ]) {
    assert.equal(decide(run(command), [denyRemove], 'allow'), 'deny', JSON.stringify(command));
  }
  for (const subject of [
    edit('.env'),
    edit('a/../.env.local'),
    edit('/work/project/deep/.env'),
    about('read', { file_path: '.env' }),
    about('move', { from: 'a', to: 'x/.env' }),
    about('read', { paths: ['a', '.env'] }),
    run('cat .env'),
    run('cat < ./.env'),
  ]) {
    assert.equal(decide(subject, [denySecrets], 'allow'), 'deny', JSON.stringify(subject));
  }
  assert.equal(decide(edit('environment.ts'), [denySecrets], 'allow'), 'allow');
  assert.equal(decide(run('rmdir x'), [denyRemove], 'allow'), 'allow');
});

test('an allow for paths needs every path to fit, and at least one', () => {
  const rule: PermissionRule = { path: 'src/**', decision: 'allow' };
  assert.equal(decide(about('move', { from: 'src/a', to: '/etc/b' }), [rule], 'ask'), 'ask');
  assert.equal(decide(about('edit', { path: 'src/../../x' }), [rule], 'ask'), 'ask');
  assert.equal(decide(about('other', {}), [rule], 'ask'), 'ask');
});

test('an answer is remembered for exactly the same command or path', () => {
  const [remembered] = rulesFrom(run('npm test'), 'allow');
  assert.ok(remembered !== undefined);
  assert.equal(decide(run('npm test'), [remembered], 'ask'), 'allow');
  assert.equal(decide(run('npm test -- --all'), [remembered], 'ask'), 'ask');
  const [path] = rulesFrom(edit('a*.ts'), 'allow');
  assert.ok(path !== undefined);
  assert.equal(decide(edit('a*.ts'), [path], 'ask'), 'allow');
  assert.equal(decide(edit('ab.ts'), [path], 'ask'), 'ask', 'a path is no pattern');
  assert.deepEqual(rulesFrom(run('a | b'), 'allow'), []);
  const [denied] = rulesFrom(run('a | b'), 'deny');
  assert.ok(denied !== undefined && decide(run('a | b'), [denied], 'allow') === 'deny');
  assert.deepEqual(rulesFrom(about('other', {}), 'allow'), []);
});
