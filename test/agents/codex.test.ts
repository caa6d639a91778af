import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Steer } from '../../src/bridge/agents/agent-provider.ts';
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

test('codex: reasons and messages reach the running turn, threads are copied, and one turn may only read', async (context) => {
  const t = newestFirst(context);
  const model = await startObedientModel();
  t.after(() => model.stop());
  const program = await setUpAgent(t, 'codex', model.url);
  const folder = await realFolder(t, 'work-');
  const agent = startAgent(t, program, { protocol: 'codex', folder });
  const denied = agent.run({
    prompt: 'RUN touch made',
    folder,
    ask: async () => ({ optionId: 'reject', reason: 'SAY gamma' }),
  });
  const refusal = await denied.end;
  assert.match(refusal.kind === 'completed' ? refusal.output : refusal.kind, /^Here is gamma from/);
  assert.equal(existsSync(join(folder, 'made')), false);
  const reference = denied.reference();

  let steer: Steer | undefined;
  const steered = agent.run({
    prompt: 'RUN touch made',
    folder,
    reference,
    steerable: (take) => {
      steer = take;
    },
    async ask() {
      assert.equal(await steer?.('SAY beta'), true);
      return { optionId: 'allow' };
    },
  });
  const end = await steered.end;
  assert.match(end.kind === 'completed' ? end.output : end.kind, /^Here is beta from/);
  assert.equal(existsSync(join(folder, 'made')), true);
  assert.equal(await steer?.('SAY late'), false);

  const forked = (await agent.provider.fork?.(reference, { owner: 'main', folder })) ?? { why: 'no fork' };
  assert.ok('reference' in forked, JSON.stringify(forked));
  const recalled = await agent.run({ prompt: 'RECALL', folder, reference: forked.reference }).end;
  assert.match(recalled.kind === 'completed' ? recalled.output : recalled.kind, /^Said: gamma beta/);

  for (const isReadOnly of [true, false]) {
    const name = isReadOnly ? 'read-only' : 'writable';
    await agent.run({ prompt: `RUN touch ${name}`, folder, reference, isReadOnly }).end;
    assert.equal(existsSync(join(folder, name)), !isReadOnly, name);
  }
});
