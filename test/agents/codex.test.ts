import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startAgent } from '../kit/bridge/agent-under-test.ts';
import { describeAgent } from './agent-behaviour.ts';
import { startObedientModel } from './obedient-model.ts';
import { newestFirst, realFolder, setUpAgent } from './real-agent.ts';

describeAgent('codex', {
  protocol: 'codex',
  continuesElsewhere: true,
  otherModel: { asked: 'second-model', seen: 'second-model' },
  unknownModel: 'passed on',
  usage: { inputTokens: 11, outputTokens: 7, totalTokens: 18 },
});

test('codex: a thread in which nothing was said is lost with its process', async (context) => {
  const t = newestFirst(context);
  const model = await startObedientModel();
  t.after(() => model.stop());
  const agent = await setUpAgent(t, 'codex', model.url);
  const folder = await realFolder(t, 'work-');
  const first = startAgent(t, agent, { protocol: 'codex', folder });
  const turn = first.run({
    prompt: 'SAY alpha',
    folder,
    onOpened: () => process.kill(-(first.started[0]?.pid ?? 0), 'SIGKILL'),
  });
  const end = await turn.end;
  assert.equal(end.kind === 'failed' && end.code, 'AGENT_EXITED');
  const lost = await first.run({ prompt: 'RECALL', folder, reference: turn.reference() }).end;
  assert.equal(lost.kind, 'lost');
  assert.match(lost.kind === 'lost' ? lost.detail : '', /no rollout found/);
});

test('codex: a warning is a status, not a part of the text', async (context) => {
  const t = newestFirst(context);
  const model = await startObedientModel();
  t.after(() => model.stop());
  const agent = await setUpAgent(t, 'codex', model.url);
  const folder = await realFolder(t, 'work-');
  const turn = startAgent(t, agent, { protocol: 'codex', folder }).run({ prompt: 'SAY alpha', folder });
  await turn.end;
  assert.ok(turn.events.some(({ kind, ...event }) => kind === 'status' && JSON.stringify(event).includes('metadata')));
  assert.equal(turn.text(), 'Here is alpha from first-model.');
});
