import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startScripted } from '../scripted-agent.ts';

for (const [way, flags] of [
  ['resumed', ['--state', 'FOLDER']],
  ['loaded, without its history being said again', ['--state', 'FOLDER', '--load']],
] as const) {
  test(`a conversation of an earlier process is ${way}`, async (t) => {
    const first = await startScripted(t, { flags });
    const turn = first.run({ prompt: 'say one', folder: first.work });
    await turn.end;
    await first.provider.stop();
    const second = await startScripted(t, { flags, folder: first.folder });
    const again = second.run({ prompt: 'recall', folder: first.work, reference: turn.reference() });
    await again.end;
    assert.equal(again.text(), 'say one|recall');
    const third = second.run({ prompt: 'recall', folder: first.work, reference: turn.reference() });
    await third.end;
    assert.equal(third.text(), 'say one|recall|recall');
    assert.equal(second.started.length, 1);
  });
}

test('a conversation that fails to resume is lost, and no other is opened', async (t) => {
  const agent = await startScripted(t, { flags: ['--state', 'FOLDER'] });
  const reference = JSON.stringify({ conversation: 'gone', folder: agent.work, continues: true });
  const end = await agent.run({ prompt: 'say x', folder: agent.work, reference }).end;
  assert.deepEqual(end, { kind: 'lost', detail: 'Internal error: service failure' });
});

test('an agent that cannot resume is not even started for a conversation of an earlier process', async (t) => {
  const first = await startScripted(t);
  const turn = first.run({ prompt: 'say one', folder: first.work });
  await turn.end;
  await first.provider.stop();
  const second = await startScripted(t);
  const end = await second.run({ prompt: 'recall', folder: second.work, reference: turn.reference() }).end;
  assert.equal(end.kind, 'lost');
  assert.equal(second.started.length, 0);
});

test('the agent that calls itself gemini-cli is never asked to load, whatever it announces', async (t) => {
  const agent = await startScripted(t, { flags: ['--state', 'FOLDER', '--load', '--name', 'gemini-cli'] });
  const turn = agent.run({ prompt: 'say one', folder: agent.work });
  await turn.end;
  assert.equal(JSON.parse(turn.reference()).continues, false);
});

test('a living agent that no longer knows the conversation has lost it', async (t) => {
  const agent = await startScripted(t);
  const turn = agent.run({ prompt: 'forget', folder: agent.work });
  await turn.end;
  const end = await agent.run({ prompt: 'say x', folder: agent.work, reference: turn.reference() }).end;
  assert.equal(end.kind, 'lost');
  const again = await agent.run({ prompt: 'say x', folder: agent.work, reference: turn.reference() }).end;
  assert.equal(again.kind, 'lost');
  assert.equal(agent.started.length, 1);
});

test('a reference that is none of ours is a lost conversation', async (t) => {
  const agent = await startScripted(t);
  for (const reference of ['', 'nonsense', '[]', 'null', '{"conversation":1}']) {
    const end = await agent.run({ prompt: 'say x', folder: agent.work, reference }).end;
    assert.equal(end.kind, 'lost');
  }
  assert.equal(agent.started.length, 0);
});
