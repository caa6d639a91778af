import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { startAgent } from '../kit/bridge/agent-under-test.ts';
import { describeAgent } from './agent-behaviour.ts';
import { startObedientModel } from './obedient-model.ts';
import { newestFirst, realFolder, setUpAgent } from './real-agent.ts';

describeAgent('gemini', {
  protocol: 'acp',
  continuesElsewhere: false,
  otherModel: { asked: 'gemini-2.5-pro', seen: 'gemini-2.5-pro' },
  unknownModel: 'reported',
  usage: { inputTokens: 11, outputTokens: 7, totalTokens: 18 },
});

test('gemini: permission is given once, although it offers "always" first, and its call comes unannounced', async (context) => {
  const t = newestFirst(context);
  const model = await startObedientModel();
  t.after(() => model.stop());
  const agent = await setUpAgent(t, 'gemini', model.url);
  const folder = await realFolder(t, 'work-');
  const provider = startAgent(t, agent, { protocol: 'acp', folder });
  const first = provider.run({ prompt: 'RUN touch one', folder });
  await first.end;
  const second = provider.run({ prompt: 'RUN touch two', folder, reference: first.reference() });
  await second.end;
  for (const { events } of [first, second]) {
    assert.deepEqual(
      events.flatMap((event) => (event.kind === 'permission' ? [event.decision] : [])),
      ['allowed'],
    );
    assert.deepEqual(
      events.flatMap((event) => (event.kind === 'tool_call' ? [event.status] : [])),
      ['completed'],
    );
  }
});

test('gemini: with permissions denied it works in its mode plan, which refuses commands without a question', async (context) => {
  const t = newestFirst(context);
  const model = await startObedientModel();
  t.after(() => model.stop());
  const agent = await setUpAgent(t, 'gemini', model.url);
  const folder = await realFolder(t, 'work-');
  const state = await realFolder(t, 'state-');
  const provider = startAgent(t, agent, { protocol: 'acp', permissions: 'deny', folder: state });
  const turn = provider.run({ prompt: 'RUN touch made', folder });
  assert.equal((await turn.end).kind, 'completed');
  assert.deepEqual(await readdir(folder), []);
  const said = turn.events.flatMap((event) => (event.kind === 'status' ? [event.text] : []));
  assert.equal(said.join('\n').includes('no read-only mode'), false, said.join('\n'));
  const asked = turn.events.filter((event) => event.kind === 'permission');
  assert.deepEqual(asked, [], 'its mode refuses the command by itself');
  const tools = turn.events.flatMap((event) => (event.kind === 'tool_call' ? [event.status] : []));
  assert.equal(tools.includes('completed'), false, tools.join());
});
