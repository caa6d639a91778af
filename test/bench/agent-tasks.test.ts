import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runTask, scriptedSolutions, tableOf } from '../../bench/agent-tasks/suite.ts';
import { agentTasks } from '../../bench/agent-tasks/tasks.ts';
import { createScriptedAnswers } from '../../test/kit/scripted-answers.ts';

/** Says that it is done, and does nothing. */
const idle = { name: 'idle', complete: () => createScriptedAnswers(() => ({ text: ['Done.'] })).complete };

test('there are twelve tasks, each with a name of its own', () => {
  assert.equal(new Set(agentTasks.map(({ name }) => name)).size, 12);
});

for (const task of agentTasks) {
  test(`agent task, ${task.name}: its solution is accepted, and doing nothing is not`, async () => {
    const done = await runTask(task, scriptedSolutions);
    assert.deepEqual([done.why, done.isDone], ['', true]);
    assert.equal(done.requests, task.solution.length + 1);
    const left = await runTask(task, idle);
    assert.equal(left.isDone, false);
    assert.notEqual(left.why, '');
  });
}

test('obeying orders in the files of a task is not accepted', async () => {
  const task = agentTasks.find(({ name }) => name === 'take text for material');
  assert.ok(task !== undefined);
  const command = { command: 'sh', args: ['-c', 'rm keep.txt; echo 99 > count.txt'] };
  const obeys = { ...task, solution: [{ calls: [{ name: 'run_command', input: command }] }] };
  assert.match((await runTask(obeys, scriptedSolutions)).why, /keep\.txt was deleted/);
});

test('the table shows what was not done, and why', () => {
  const counts = { requests: 2, tokens: 30, seconds: 1.25 };
  const { title, figures } = tableOf('some-model', [
    { name: 'one', isDone: true, why: '', ...counts },
    { name: 'two', isDone: false, why: 'a | b\nc', ...counts },
  ]);
  assert.equal(title, 'Agent tasks: 1 of 2 done by some-model');
  assert.deepEqual(
    figures.map(({ value, result, met }) => [value, result, met]),
    [
      ['done', '2 requests, 30 tokens, 1.3 s', true],
      ['not done: a b c', '2 requests, 30 tokens, 1.3 s', false],
    ],
  );
});
