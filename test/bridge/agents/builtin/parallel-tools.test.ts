import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTick } from 'node:timers/promises';
import { Type } from 'typebox';
import type { McpTools } from '../../../../src/bridge/agents/builtin/mcp-tools.ts';
import { defineTool, type Tool } from '../../../../src/bridge/agents/builtin/tools/tool.ts';
import { scriptedAgent, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { recordTurn } from '../recorded-turn.ts';

/** Tools of the test: each notes when it begins and ends, and does its work in between. */
function notedTools(work: (name: string) => Promise<unknown>) {
  const notes: string[] = [];
  const make = (name: string, needsPermission: boolean): Tool =>
    defineTool({
      name,
      description: name,
      parameters: Type.Object({ as: Type.String() }),
      toolKind: needsPermission ? 'edit' : 'read',
      needsPermission,
      title: ({ as }) => as,
      async run({ as }) {
        notes.push(`+${as}`);
        await work(as);
        notes.push(`-${as}`);
        return { text: `result of ${as}` };
      },
    });
  const found = { tools: [make('look', false), make('change', true)], problems: [], release: () => undefined };
  const mcp: McpTools = { find: async () => found, endWhere: () => undefined, stop: async () => undefined };
  return { mcp, notes };
}

const call = (name: string, as: string) => ({ name, input: { as }, id: as });

test('calls that only read run at the same time, and their results stand in the order of the calls', async (context) => {
  const second = Promise.withResolvers<void>();
  const { mcp, notes } = notedTools(async (as) => {
    // The first one ends after the second has begun: one after another, this would never end.
    if (as === 'a') await second.promise;
    else second.resolve();
  });
  const { agent, requests } = scriptedAgent(
    (index) => (index > 0 ? { text: ['done'] } : { calls: [call('look', 'a'), call('look', 'b')] }),
    { mcp },
  );
  const turn = recordTurn(await workingDirectory(context), 'work');
  assert.equal((await agent.startTurn(turn)).kind, 'completed');
  assert.deepEqual(notes, ['+a', '+b', '-b', '-a']);
  const results = requests[1]?.messages.slice(3);
  assert.deepEqual(
    results?.map(({ content }) => content),
    ['result of a', 'result of b'],
  );
});

test('what changes something runs alone, in its place between the calls that read', async (context) => {
  const { mcp, notes } = notedTools(() => nextTick());
  const calls = [call('look', 'a'), call('change', 'b'), call('change', 'c'), call('look', 'd'), call('look', 'e')];
  const { agent } = scriptedAgent((index) => (index > 0 ? { text: ['done'] } : { calls }), { mcp });
  await agent.startTurn(recordTurn(await workingDirectory(context), 'work'));
  assert.deepEqual(notes.slice(0, 6), ['+a', '-a', '+b', '-b', '+c', '-c']);
  assert.deepEqual(notes.slice(6, 8), ['+d', '+e']);
});

test('at most eight calls run at the same time', async (context) => {
  let running = 0;
  let most = 0;
  const { mcp } = notedTools(async () => {
    running += 1;
    most = Math.max(most, running);
    await nextTick();
    running -= 1;
  });
  const calls = Array.from({ length: 20 }, (_, index) => call('look', `n${index}`));
  const { agent } = scriptedAgent((index) => (index > 0 ? { text: ['done'] } : { calls }), { mcp });
  await agent.startTurn(recordTurn(await workingDirectory(context), 'work'));
  assert.equal(most, 8);
});

test('a fault of one call ends the turn after the others of its batch have ended', async (context) => {
  const { mcp, notes } = notedTools(async (as) => {
    if (as === 'bad') throw new Error('a fault of ours');
    for (let tick = 0; tick < 5; tick += 1) await nextTick();
  });
  const calls = [call('look', 'bad'), call('look', 'slow')];
  const { agent } = scriptedAgent(() => ({ calls }), { mcp });
  await assert.rejects(agent.startTurn(recordTurn(await workingDirectory(context), 'work')), /a fault of ours/);
  assert.ok(notes.includes('-slow'));
});
