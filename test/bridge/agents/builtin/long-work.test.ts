import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { withSummary } from '../../../../src/bridge/agents/builtin/conversation.ts';
import { AppError } from '../../../../src/platform/errors/app-error.ts';
import { scriptedAgent, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { recordTurn } from '../recorded-turn.ts';

test('a plan is shown as an update, whole each time, also where the agent may only read', async (context) => {
  const steps = [
    { content: 'Look', status: 'completed' },
    { content: 'Change', status: 'in_progress', priority: 'high' },
  ];
  const { agent, requests } = scriptedAgent(
    (index) => (index > 0 ? { text: ['done'] } : { calls: [{ name: 'update_plan', input: { steps } }] }),
    { permissions: 'deny' },
  );
  const turn = recordTurn(await workingDirectory(context), 'work');
  await agent.startTurn(turn);
  assert.deepEqual(
    turn.events.filter(({ kind }) => kind === 'plan'),
    [
      {
        kind: 'plan',
        entries: [
          { content: 'Look', status: 'completed', priority: 'medium' },
          { content: 'Change', status: 'in_progress', priority: 'high' },
        ],
      },
    ],
  );
  assert.equal(turn.toolCalls().at(-1)?.title, 'Plan, 1 of 2 done');
  assert.equal(requests[1]?.messages.at(-1)?.content, 'The user sees the plan.');
});

const SUMMARY = /^You get the record of a conversation/;

/** Reads a large file again and again; answers requests for a summary with `summary`. */
function reader(reads: number, summary: () => { text?: string[]; error?: Error }) {
  let done = 0;
  return scriptedAgent(
    (_index, { messages }) => {
      if (SUMMARY.test(String(messages[0]?.content))) return summary();
      done += 1;
      return done > reads ? { text: ['done'] } : { calls: [{ name: 'read_file', input: { path: 'a.txt' } }] };
    },
    { contextCharacters: 100_000, maxRequests: 30 },
  );
}

async function withLargeFile(context: Parameters<typeof workingDirectory>[0]): Promise<string> {
  const root = await workingDirectory(context);
  await writeFile(join(root, 'a.txt'), `${'x'.repeat(99)}\n`.repeat(120));
  return root;
}

test('a long conversation is replaced by a summary of the model, which is kept and shown', async (context) => {
  const root = await withLargeFile(context);
  const { agent, requests, store } = reader(9, () => ({ text: ['Read a.txt; ', 'nothing found.'] }));
  const turn = recordTurn(root, 'Find the fault.');
  const end = await agent.startTurn(turn);
  assert.equal(end.kind === 'completed' && end.output, 'done');
  const asked = requests.filter(({ messages }) => SUMMARY.test(String(messages[0]?.content)));
  assert.equal(asked.length, 1);
  assert.equal(asked[0]?.tools, undefined);
  assert.match(String(asked[0]?.messages[1]?.content), /^User:\nFind the fault\.\n\nAgent:\nCalls read_file /);
  const after = requests[requests.indexOf(asked[0] ?? assert.fail()) + 1]?.messages ?? [];
  assert.equal(
    after[1]?.content,
    '[Summary of the conversation up to here]\nRead a.txt; nothing found.\n\nThe last request of the user, word for word:\nFind the fault.',
  );
  assert.deepEqual(
    after.slice(2).map(({ role }) => role),
    Array.from({ length: 4 }, () => ['assistant', 'tool']).flat(),
  );
  const told = turn.events.filter(({ kind }) => kind === 'status');
  assert.match(JSON.stringify(told), /replaced by a summary of \d+ characters/);
  // Each request counts, also that for the summary.
  assert.equal(end.kind === 'completed' && end.usage?.inputTokens, requests.length * 10);

  const [reference = ''] = turn.references;
  assert.ok(store.rows.get(reference)?.some((body) => body.includes('"role":"summary"')));
  await agent.continueTurn(reference, recordTurn(root, 'go on'));
  const next = requests.at(-1)?.messages ?? [];
  assert.match(String(next[1]?.content), /^\[Summary of the conversation/);
  assert.equal(next.at(-1)?.content, 'go on');
  assert.equal(
    next.some(({ content }) => content === 'Find the fault.'),
    false,
  );
});

test('without a summary the turn goes on with what fits, and does not ask again', async (context) => {
  const root = await withLargeFile(context);
  for (const summary of [() => ({ text: [' '] }), () => ({ error: new AppError('MODEL_FAILED', { reason: 'x' }) })]) {
    const { agent, requests } = reader(12, summary);
    const end = await agent.startTurn(recordTurn(root, 'work'));
    assert.equal(end.kind === 'completed' && end.output, 'done');
    assert.equal(requests.filter(({ messages }) => SUMMARY.test(String(messages[0]?.content))).length, 1);
  }
});

test('the last summary counts, with the messages that it keeps', () => {
  const user = (content: string) => ({ role: 'user' as const, content });
  const summary = (content: string, kept: number) => ({ role: 'summary' as const, content, kept });
  const stored = [user('a'), user('b'), summary('one', 1), user('c'), user('d'), summary('two', 2), user('e')];
  assert.deepEqual(
    withSummary(stored).map(({ content }) => content),
    ['[Summary of the conversation up to here]\ntwo', 'c', 'd', 'e'],
  );
  assert.deepEqual(withSummary([summary('cut', 9), user('x')]).length, 2);
  assert.deepEqual(withSummary([user('a')]), [user('a')]);
});
