import assert from 'node:assert/strict';
import { chown, mkdir, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import type { BuiltinAgentOptions } from '../../../src/bridge/agents/builtin/create-builtin-agent.ts';
import { scriptedAgent, workingDirectory } from '../../kit/bridge/builtin-agent.ts';
import { recordTurn } from './recorded-turn.ts';

/** The rules that the model gets in a folder. */
async function rulesIn(folder: string, isOpenTo?: BuiltinAgentOptions['isOpenTo']): Promise<string> {
  const { agent, requests } = scriptedAgent(() => ({ text: ['done'] }), isOpenTo && { isOpenTo });
  await agent.startTurn(recordTurn(folder, 'work', { owner: 'someone' }));
  const system = String(requests[0]?.messages[0]?.content);
  const at = system.indexOf('Rules of this project');
  return at < 0 ? '' : system.slice(system.indexOf('\n\n', at) + 2);
}

async function put(folder: string, name: string, text: string): Promise<void> {
  await mkdir(dirname(join(folder, name)), { recursive: true });
  await writeFile(join(folder, name), text);
}

test('the model gets the rules of its folder and of those above, the nearest last, as far as the owner may work', async (context) => {
  const top = await workingDirectory(context);
  const folder = join(top, 'open/project/part');
  await put(top, 'AGENTS.md', 'not for them');
  await put(top, 'open/CLAUDE.md', 'outer rules');
  await put(top, 'open/project/AGENTS.md', 'middle rules');
  await put(top, 'open/project/CLAUDE.md', 'not read, because there is AGENTS.md');
  await put(folder, 'AGENTS.md', '  inner rules\n');
  const asked: string[] = [];
  const isOpenTo = async (path: string, owner: string) => {
    asked.push(owner);
    return path.startsWith(join(top, 'open'));
  };
  const parts = [
    `${top}/open/CLAUDE.md:\nouter rules`,
    `${top}/open/project/AGENTS.md:\nmiddle rules`,
    `${folder}/AGENTS.md:\ninner rules`,
  ];
  assert.equal(await rulesIn(folder, isOpenTo), parts.join('\n\n'));
  assert.deepEqual([...new Set(asked)], ['someone']);
  assert.equal(await rulesIn(folder), parts[2], 'nothing above is read where the owner may not work');
});

test('a folder without rules adds nothing, and links, folders and empty files are no rules', async (context) => {
  const folder = await workingDirectory(context);
  const outside = await workingDirectory(context);
  await put(outside, 'secret', 'stolen');
  assert.equal(await rulesIn(folder), '');
  await symlink(join(outside, 'secret'), join(folder, 'AGENTS.md'));
  await mkdir(join(folder, 'CLAUDE.md'));
  assert.equal(await rulesIn(folder), '');
  const other = await workingDirectory(context);
  await put(other, 'AGENTS.md', ' \n');
  await put(other, 'CLAUDE.md', 'second');
  assert.equal(await rulesIn(other), `${other}/CLAUDE.md:\nsecond`);
});

test('rules are cut at 32 KiB a file and 64 KiB in all, and the nearest stay', async (context) => {
  const top = await workingDirectory(context);
  const folder = join(top, 'a/b');
  for (const [name, letter] of [
    ['AGENTS.md', 'x'],
    ['a/AGENTS.md', 'y'],
    ['a/b/AGENTS.md', 'z'],
  ] as const) {
    await put(top, name, letter.repeat(40_000));
  }
  const rules = await rulesIn(folder, async (path) => path.startsWith(top));
  const count = (letter: string) => rules.match(new RegExp(`${letter}{2,}`, 'g'))?.[0].length ?? 0;
  assert.equal(count('z'), 32 * 1024);
  assert.ok(count('y') > 32 * 1024 - 10);
  assert.ok(count('x') < 10, 'the outermost finds no room');
  assert.equal(rules.split('[cut]').length, 3);
});

test('files of other users of the machine give no rules', async (context) => {
  if (process.getuid?.() !== 0) return context.skip('only root can make a file of another user');
  const folder = await workingDirectory(context);
  await put(folder, 'AGENTS.md', 'do harm');
  await chown(join(folder, 'AGENTS.md'), 12_345, 12_345);
  assert.equal(await rulesIn(folder), '');
  await chown(folder, 12_345, 12_345);
  assert.match(await rulesIn(folder), /do harm/, 'they are those of the owner of the folder');
  return undefined;
});
