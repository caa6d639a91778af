import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AgentOffers } from '../../../../src/bridge/agents/agent-provider.ts';
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

test('a conversation is copied where the agent offers it, and nowhere else', async (t) => {
  const agent = await startScripted(t, { flags: ['--fork'] });
  const first = agent.run({ prompt: 'say one', folder: agent.work });
  await first.end;
  const forked = (await agent.provider.fork?.(first.reference(), { owner: 'main', folder: agent.work })) ?? {
    why: 'no fork',
  };
  assert.ok('reference' in forked, JSON.stringify(forked));
  for (const reference of [first.reference(), forked.reference]) {
    const turn = agent.run({ prompt: 'recall', folder: agent.work, reference });
    await turn.end;
    assert.equal(turn.text(), 'say one|recall');
  }
  const other = await startScripted(t);
  const turn = other.run({ prompt: 'say one', folder: other.work });
  await turn.end;
  const refused = await other.provider.fork?.(turn.reference(), { owner: 'main', folder: other.work });
  assert.deepEqual(refused, { why: 'this agent cannot copy conversations' });
});

test('a turn runs in the mode that was chosen, and the agent says what it offers', async (t) => {
  const agent = await startScripted(t, { flags: ['--modes'] });
  const offers: AgentOffers[] = [];
  const first = agent.run({ prompt: 'write one', folder: agent.work, mode: 'plan', offers: (all) => offers.push(all) });
  await first.end;
  assert.equal(first.text(), 'in mode plan');
  const modes = ['build', 'plan'].map((id) => ({ id, name: id }));
  assert.deepEqual(offers, [{ modes, models: [], thinking: [], commands: [] }]);
  const reference = first.reference();
  const stays = agent.run({ prompt: 'write two', folder: agent.work, reference });
  await stays.end;
  assert.equal(stays.text(), 'in mode plan', 'a mode stays until another one is chosen');
  const reading = agent.run({ prompt: 'write three', folder: agent.work, reference, mode: 'build', isReadOnly: true });
  await reading.end;
  assert.equal(reading.text(), 'in mode plan', 'a turn that may only read does');
  const unknown = await agent.run({ prompt: 'write four', folder: agent.work, reference, mode: 'dance' }).end;
  const error =
    'This agent does not have the mode "dance". Its modes: build, plan. Choose another one for the session.';
  assert.equal(unknown.kind === 'failed' && unknown.error, error);
});
