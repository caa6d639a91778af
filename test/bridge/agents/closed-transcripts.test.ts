import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { startScripted } from './scripted-agent.ts';

const STATE = ['--state', 'FOLDER'];

/** Runs a turn, ends the process if wanted, closes the conversation, and tells what is left of it. */
async function closeAfterTurn(t: Parameters<typeof startScripted>[0], given: object, isRestarted: boolean) {
  const first = await startScripted(t, given);
  const turn = first.run({ prompt: 'say x', folder: first.work });
  await turn.end;
  const stored = async () => (await readdir(first.folder)).filter((name) => /^(conversation|thread)-/.test(name));
  assert.equal((await stored()).length, 1, 'the agent has stored the conversation');
  if (isRestarted) await first.provider.stop();
  const agent = isRestarted ? await startScripted(t, { ...given, folder: first.folder }) : first;
  const left: string[] = [];
  await agent.provider.close(turn.reference(), { owner: 'main', left: (what) => left.push(what) });
  return { stored: await stored(), left };
}

for (const isRestarted of [false, true]) {
  const when = isRestarted ? 'after a restart' : 'in the same process';
  test(`DB-8: what an agent has stored is deleted with its session ${when}, where the agent can`, async (t) => {
    const acp = { flags: [...STATE, '--delete', 'yes'] };
    assert.deepEqual(await closeAfterTurn(t, acp, isRestarted), { stored: [], left: [] });
    const codex = { protocol: 'codex', flags: STATE };
    assert.deepEqual(await closeAfterTurn(t, codex, isRestarted), { stored: [], left: [] });
  });

  test(`DB-8: what an agent keeps after the close is reported ${when}`, async (t) => {
    const failing = await closeAfterTurn(t, { flags: [...STATE, '--delete', 'fail'] }, isRestarted);
    assert.deepEqual([failing.stored.length, failing.left.length], [1, 1]);
    assert.match(failing.left[0] ?? '', /could not delete it: .*read-only/);
    const unable = await closeAfterTurn(t, { flags: STATE }, isRestarted);
    assert.deepEqual(unable.left, ['the agent offers no way to delete a conversation']);
    const archived = await closeAfterTurn(t, { protocol: 'codex', flags: [...STATE, '--archive'] }, isRestarted);
    assert.match(archived.stored.join(), /\.archived$/);
    assert.deepEqual(archived.left, ['Codex has archived the thread, and not deleted it']);
  });
}

test('DB-8: closing a conversation that its agent never stored leaves nothing and starts nothing', async (t) => {
  const agent = await startScripted(t, { protocol: 'codex' });
  const turn = agent.run({ prompt: 'say x', folder: agent.work });
  await turn.end;
  const left: string[] = [];
  await agent.provider.close(turn.reference(), { owner: 'main', left: (what) => left.push(what) });
  assert.deepEqual([left, agent.living(), agent.started.length], [[], 0, 1]);
});
