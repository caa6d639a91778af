import assert from 'node:assert/strict';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { AgentTurn } from '../../../../src/bridge/agents/agent-provider.ts';
import { deniedPaths, type PermissionRule } from '../../../../src/bridge/workbench/permission-rules.ts';
import { environment, scriptedAgent, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { findRipgrep } from '../../../kit/ripgrep.ts';
import { recordTurn } from '../recorded-turn.ts';

const { folder: RIPGREP, missing } = findRipgrep();
const DENY_SECRETS: PermissionRule = { path: '**/.env*', decision: 'deny' };
const LEFT_OUT = (count: number) => `[${count} left out: permission rules deny reading ${count === 1 ? 'it' : 'them'}]`;

async function folderOf(t: TestContext, files: Readonly<Record<string, string>>): Promise<string> {
  const root = await workingDirectory(t);
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  }
  return root;
}

/** What the model gets for one tool call in a turn under rules. */
async function answerOf(
  root: string,
  name: string,
  input: object,
  rules: readonly PermissionRule[],
  more: Partial<AgentTurn> = {},
  path = environment.PATH,
): Promise<string> {
  const answer = (index: number) => (index === 0 ? { calls: [{ name, input }] } : { text: ['done'] });
  const { agent, requests } = scriptedAgent(answer, { environment: { ...environment, PATH: path } });
  const denied = async (kinds: readonly string[], folder: string) => deniedPaths(rules, kinds, folder);
  await agent.startTurn(recordTurn(root, 'look', { deniedPaths: denied, ...more }));
  return String(requests[1]?.messages.at(-1)?.content);
}

test('a file that a rule denies cannot be read, by any spelling of its path and through no link', async (t) => {
  const root = await folderOf(t, { '.env': 'KEY=secret', 'sub/.ENV.local': 'KEY=secret', 'plain.txt': 'plain' });
  await symlink('.env', join(root, 'link'));
  await symlink('sub', join(root, 'folder'));
  const paths = ['.env', './sub/../.env', join(root, '.env'), `/proc/self/root${root}/.env`];
  for (const path of [...paths, 'link', 'sub/.ENV.local', 'folder/.ENV.local', '.env.missing']) {
    const text = await answerOf(root, 'read_file', { path }, [DENY_SECRETS]);
    assert.match(text, /^Error: a permission rule denies reading ".*"; do without it and tell the user\.$/, path);
  }
  assert.equal(await answerOf(root, 'read_file', { path: 'plain.txt' }, [DENY_SECRETS]), 'plain');
  const byLink: PermissionRule = { path: 'folder/*', decision: 'deny' };
  assert.match(await answerOf(root, 'read_file', { path: 'folder/.ENV.local' }, [byLink]), /denies/, 'as it was asked');
  assert.match(
    await answerOf(root, 'edit_file', { path: '.env', old_text: 'KEY', new_text: '' }, [DENY_SECRETS]),
    /denies/,
  );
});

test('rules count by what the tool does: reading covers lists and searches, the rest is not reading', async (t) => {
  const root = await folderOf(t, { 'a/key': 'secret needle', 'b.txt': 'needle' });
  const read: PermissionRule = { kind: 'read', path: 'a/**', decision: 'deny' };
  const search: PermissionRule = { kind: 'search', path: 'a', decision: 'deny' };
  for (const rules of [
    [read],
    [search],
    [{ kind: 'search', path: 'a/key', isExact: true, decision: 'deny' } as const],
  ]) {
    const text = await answerOf(root, 'search_files', { text: 'needle' }, rules);
    assert.equal(text, `b.txt:1: needle\n${LEFT_OUT(1)}`);
  }
  assert.match(await answerOf(root, 'read_file', { path: 'a/key' }, [read]), /denies/);
  assert.equal(await answerOf(root, 'read_file', { path: 'a/key' }, [search]), 'secret needle');
  const others: PermissionRule[] = [
    { kind: 'edit', path: '**', decision: 'deny' },
    { command: ['cat'], path: '**', decision: 'deny' },
    { path: '**', decision: 'allow' },
  ];
  assert.equal(await answerOf(root, 'read_file', { path: 'a/key' }, others), 'secret needle');
  assert.equal(await answerOf(root, 'search_files', { text: 'secret' }, others), 'a/key:1: secret needle');
  const all: PermissionRule = { kind: 'read', decision: 'deny' };
  for (const [name, input] of [
    ['read_file', { path: 'b.txt' }],
    ['list_files', {}],
    ['find_files', { pattern: '*' }],
    ['search_files', { text: 'needle' }],
  ] as const) {
    assert.match(await answerOf(root, name, input, [all]), /denies reading/, name);
  }
});

test('lists and searches leave denied files out and say how many, whatever the files contain', async (t) => {
  const root = await folderOf(t, {
    '.env': 'needle KEY=secret',
    'app/.env.local': 'other',
    'app/a.txt': 'needle',
    'secrets/deep/key': 'needle secret',
  });
  await symlink('app', join(root, 'link'));
  const rules: PermissionRule[] = [DENY_SECRETS, { path: 'secrets/', decision: 'deny' }];
  const ask = (name: string, input: object, path = '') => answerOf(root, name, input, rules, {}, path);
  assert.equal(await ask('list_files', { recursive: true }), `app/\napp/a.txt\nlink\n${LEFT_OUT(3)}`);
  assert.equal(await ask('list_files', { path: 'link' }), `a.txt\n${LEFT_OUT(1)}`);
  assert.equal(await ask('find_files', { pattern: '*e*' }), `[nothing found]\n${LEFT_OUT(3)}`);
  assert.match(await ask('list_files', { path: 'secrets/deep' }), /denies reading/);
  const searched = ['search_files without ripgrep', ''] as const;
  const ways =
    missing === false ? [searched, ['search_files with ripgrep', `${RIPGREP}:/usr/bin:/bin`] as const] : [searched];
  for (const [way, path] of ways) {
    assert.equal(await ask('search_files', { text: 'needle' }, path), `app/a.txt:1: needle\n${LEFT_OUT(3)}`, way);
    // Otherwise the number would tell what is in the files.
    assert.equal(await ask('search_files', { text: 'KEY=' }, path), `[nothing found]\n${LEFT_OUT(3)}`, way);
    assert.equal(await ask('search_files', { text: 'absent' }, path), `[nothing found]\n${LEFT_OUT(3)}`, way);
    assert.equal(
      await ask('search_files', { pattern: 'secret|needle' }, path),
      `app/a.txt:1: needle\n${LEFT_OUT(3)}`,
      way,
    );
  }
});

test('denied rules files, skills and attached files are not read for the model', async (t) => {
  const root = await folderOf(t, {
    'AGENTS.md': 'denied words',
    'CLAUDE.md': 'other words',
    '.agents/skills/a/SKILL.md': '---\nname: hidden\n---\n',
    '.claude/skills/b/SKILL.md': '---\nname: shown\n---\n',
  });
  const files = await folderOf(t, { '.env': 'KEY=secret' });
  const rules: PermissionRule[] = [
    DENY_SECRETS,
    { path: 'AGENTS.md', decision: 'deny' },
    { path: '.agents/', decision: 'deny' },
  ];
  const { agent, requests } = scriptedAgent(() => ({ text: ['done'] }));
  await agent.startTurn(
    recordTurn(root, 'look', { deniedPaths: async (kinds, folder) => deniedPaths(rules, kinds, folder) }),
  );
  const system = String(requests[0]?.messages[0]?.content);
  assert.match(system, /other words[\s\S]*- shown:/);
  assert.doesNotMatch(system, /denied words|hidden/);
  const text = await answerOf(root, 'read_file', { path: join(files, '.env') }, rules, { fileFolder: files });
  assert.match(text, /denies reading/);
});

test('agents that a turn asks read under the same rules', async (t) => {
  const root = await folderOf(t, { '.env': 'KEY=secret' });
  const asked: unknown[] = [];
  const { agent } = scriptedAgent(
    (_index, { messages }) => {
      const last = messages.at(-1);
      const isAsked = messages.some(({ role, content }) => role === 'user' && content === 'read it');
      if (last?.role === 'tool') {
        if (isAsked) asked.push(last.content);
        return { text: ['done'] };
      }
      if (isAsked) return { calls: [{ name: 'read_file', input: { path: '.env' } }] };
      return { calls: [{ name: 'ask_agent', input: { prompt: 'read it' } }] };
    },
    {
      agentsToAsk: () => ({
        providers: new Map([['builtin', agent]]),
        placesOf: () => assert.fail('the built-in agent needs no place'),
      }),
    },
  );
  const denied = async (kinds: readonly string[], folder: string) => deniedPaths([DENY_SECRETS], kinds, folder);
  await agent.startTurn(recordTurn(root, 'look', { deniedPaths: denied }));
  assert.match(String(asked), /denies reading/);
});
