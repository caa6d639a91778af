import assert from 'node:assert/strict';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { scriptedAgent, workingDirectory } from '../../kit/bridge/builtin-agent.ts';
import { recordTurn } from './recorded-turn.ts';
import { startScripted } from './scripted-agent.ts';

async function addSkill(root: string, folder: string, text: string): Promise<void> {
  await mkdir(join(root, folder), { recursive: true });
  await writeFile(join(root, folder, 'SKILL.md'), text);
}

test('DB-14: the built-in agent gets the skills of its folder, those that were asked for first', async (context) => {
  const root = await workingDirectory(context);
  await addSkill(root, '.agents/skills/a', '---\nname: alpha\ndescription: >-\n  Writes\n  letters.\n---\nsecret body');
  await addSkill(root, '.claude/skills/beta', '---\nname: beta\ndescription: Counts beans.\n---\n');
  await addSkill(root, '.claude/skills/odd', '---\nname: [\n---\n');
  await mkdir(join(root, '.agents/skills/empty'));
  const outside = await workingDirectory(context);
  await addSkill(outside, 'stolen', '---\nname: stolen\n---\n');
  await symlink(join(outside, 'stolen'), join(root, '.agents/skills/stolen'));
  const { agent, requests } = scriptedAgent(() => ({ text: ['done'] }));
  await agent.startTurn(recordTurn(root, 'work', { skills: ['beta', 'gone'] }));
  const system = String(requests[0]?.messages[0]?.content);
  const lines = system.slice(system.indexOf('Skills.')).split('\n').slice(1);
  assert.deepEqual(lines, [
    '- beta (asked for): Counts beans. [.claude/skills/beta/SKILL.md]',
    '- alpha: Writes letters. [.agents/skills/a/SKILL.md]',
    '- odd: no description [.claude/skills/odd/SKILL.md]',
    'The user also asks for these skills, which are not in this folder: gone.',
  ]);
});

test('DB-14: a folder without skills adds nothing to what the model gets', async (context) => {
  const root = await workingDirectory(context);
  const { agent, requests } = scriptedAgent(() => ({ text: ['done'] }));
  await agent.startTurn(recordTurn(root, 'work'));
  assert.doesNotMatch(String(requests[0]?.messages[0]?.content), /[Ss]kill/);
});

for (const protocol of ['acp', 'codex'] as const) {
  test(`DB-14: the skills of a call reach an agent of another maker in its prompt: ${protocol}`, async (t) => {
    const agent = await startScripted(t, { protocol });
    const plain = agent.run({ prompt: 'say x', folder: agent.work });
    await plain.end;
    const asked = { prompt: 'recall', folder: agent.work, reference: plain.reference() };
    await agent.run({ ...asked, skills: ['b', 'a\nb', 'x'.repeat(500)] }).end;
    const told = agent.run(asked);
    await told.end;
    const expected = `say x|Use these skills if you have them: b, a b, ${'x'.repeat(64)}.\n\nrecall|recall`;
    assert.ok(told.text().startsWith(expected), told.text());
  });
}
