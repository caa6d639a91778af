import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { createCompleteOverHttp } from '../../../../src/bridge/agents/builtin/complete-over-http.ts';
import { echo } from '../../../../src/completions/apis/demo-models.ts';
import { systemClock } from '../../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../../src/platform/clock/randomness.ts';
import { scriptedAgent, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { type ModelReply, startScriptedModel } from '../../../kit/scripted-model.ts';
import { recordTurn } from '../recorded-turn.ts';

test('over a real model API the agent finds, fixes and checks a fault in a folder', async (context) => {
  const root = await workingDirectory(context);
  await writeFile(join(root, 'sum.js'), 'export const sum = (a, b) => a - b;\n');
  await writeFile(
    join(root, 'check.js'),
    "import { sum } from './sum.js';\nif (sum(2, 2) !== 4) { console.error('wrong'); process.exit(1); }\nconsole.log('right');\n",
  );
  await writeFile(join(root, 'package.json'), '{"type":"module"}');
  const script: readonly ModelReply[] = [
    { thinking: 'Where is it?', toolCall: { name: 'search_files', arguments: { text: 'sum =' } } },
    { toolCall: { name: 'run_command', arguments: { command: process.execPath, args: ['check.js'] } } },
    { toolCall: { name: 'edit_file', arguments: { path: 'sum.js', old_text: 'a - b', new_text: 'a + b' } } },
    { toolCall: { name: 'run_command', arguments: { command: process.execPath, args: ['check.js'] } } },
    { text: ['Mended', ' the sum.'] },
  ];
  const model = await startScriptedModel(({ toolResults }) => script[toolResults.length] ?? { text: ['lost'] });
  context.after(() => model.stop());
  const complete = createCompleteOverHttp({
    baseUrl: `${model.url}/v1`,
    apiKey: 'key',
    clock: systemClock,
    randomness: systemRandomness,
  });
  const { agent } = scriptedAgent(() => ({}), { complete });
  const turn = recordTurn(root, 'The sum is wrong.');
  const end = await agent.startTurn(turn);
  assert.equal(end.kind === 'completed' && end.output, 'Mended the sum.');
  assert.deepEqual(end.kind === 'completed' && end.usage, { inputTokens: 55, outputTokens: 35, totalTokens: 90 });
  assert.equal(await readFile(join(root, 'sum.js'), 'utf8'), 'export const sum = (a, b) => a + b;\n');
  const results = model.requests.at(-1)?.toolResults ?? [];
  assert.match(results[0] ?? '', /^sum\.js:1: export const sum/);
  assert.match(results[1] ?? '', /^\[exit code 1\]\n\[standard error\]\nwrong$/);
  assert.equal(results[3], '[exit code 0]\nright\n');
  assert.deepEqual(turn.events[0], { kind: 'thinking', text: 'Where is it?' });
  const permissions = turn.events.filter((event) => event.kind === 'permission');
  assert.equal(permissions.length, 3);
  const ended = turn.toolCalls().filter(({ status }) => status === 'completed');
  assert.deepEqual(
    ended.map(({ exitCode }) => exitCode),
    [undefined, 1, undefined, 0],
  );
  const texts = { oldText: 'export const sum = (a, b) => a - b;\n', newText: 'export const sum = (a, b) => a + b;\n' };
  assert.deepEqual(ended[2]?.changes, [
    { path: ended[2]?.locations?.[0]?.path, ...texts, added: 1, removed: 1, truncated: false },
  ]);
});

test('on demo/echo the agent says the prompt again, word by word', async (context) => {
  const { agent } = scriptedAgent(() => ({}), {
    model: 'demo/echo',
    async *complete(request) {
      for (const piece of echo(request).pieces) yield { choices: [{ delta: { content: piece } }] };
    },
  });
  const turn = recordTurn(await workingDirectory(context), 'Hello, Trestle, how are you?');
  const end = await agent.startTurn(turn);
  assert.equal(end.kind === 'completed' && end.output, 'Hello, Trestle, how are you?');
  assert.deepEqual(
    turn.events.map((event) => event.kind === 'text' && event.text),
    ['Hello,', ' Trestle,', ' how', ' are', ' you?'],
  );
});
