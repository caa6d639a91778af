import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CompleteChat } from '../../../../src/bridge/agents/builtin/complete-chat.ts';
import { scriptedAgent, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import type { ScriptedAnswer } from '../../../kit/scripted-answers.ts';
import { until } from '../../../kit/until.ts';
import { recordTurn } from '../recorded-turn.ts';

test('a turn costs what its calls cost, and nothing is said where one of them has no price', async (context) => {
  const root = await workingDirectory(context);
  const costsOf = async (first: ScriptedAnswer['costNano'], second: ScriptedAnswer['costNano']) => {
    const { agent } = scriptedAgent((index) =>
      index === 0
        ? { calls: [{ name: 'list_files', input: {} }], ...(first !== undefined && { costNano: first }) }
        : { text: ['done'], ...(second !== undefined && { costNano: second }) },
    );
    const end = await agent.startTurn(recordTurn(root, 'x'));
    assert.equal(end.kind, 'completed');
    return end.kind === 'completed' ? end.usage?.costUsd : undefined;
  };
  assert.equal(await costsOf(1_500_000_000, 250_000_000), 1.75);
  assert.equal(await costsOf(0, 0), 0);
  assert.equal(await costsOf(1_500_000_000, 'unknown'), undefined);
  assert.equal(await costsOf(undefined, undefined), undefined);
});

test('a cancelled turn costs what its stopped call costs, which is known a moment later', async (context) => {
  const complete: CompleteChat = async function* (_request, signal, { costs }) {
    costs?.begin();
    signal.addEventListener('abort', () => setTimeout(() => costs?.end(2_000_000_000), 20));
    yield { choices: [{ delta: { content: 'so' } }] };
    await new Promise(() => undefined);
  };
  const turn = recordTurn(await workingDirectory(context), 'x');
  const { agent } = scriptedAgent(() => ({}), { complete });
  const running = agent.startTurn(turn);
  await until('the first text', () => turn.text() === 'so');
  await agent.cancel(turn.turnId);
  const end = await running;
  assert.deepEqual(end.kind === 'cancelled' && end.usage?.costUsd, 2);
});
