import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Steer } from '../../../../src/bridge/agents/agent-provider.ts';
import { AppError } from '../../../../src/platform/errors/app-error.ts';
import { scriptedAgent, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { isAlive } from '../../../kit/processes.ts';
import { until } from '../../../kit/until.ts';
import { recordTurn } from '../recorded-turn.ts';

const TOOLS =
  'read_file list_files find_files search_files edit_file write_file run_command start_command read_command stop_command update_plan';
const USAGE = { inputTokens: 10, outputTokens: 5, totalTokens: 15 };

test('an answer is streamed piece by piece, thinking apart from text', async (context) => {
  const { agent, requests } = scriptedAgent(() => ({ thinking: 'hm', text: ['Hello', ' there'] }));
  const turn = recordTurn(await workingDirectory(context), 'Say hello');
  const end = await agent.startTurn(turn);
  assert.deepEqual(end, { kind: 'completed', output: 'Hello there', stopReason: 'end_turn', usage: USAGE });
  assert.deepEqual(turn.events, [
    { kind: 'thinking', text: 'hm' },
    { kind: 'text', text: 'Hello' },
    { kind: 'text', text: ' there' },
  ]);
  assert.equal(turn.references.length, 1);
  const [request] = requests;
  assert.equal(request?.model, 'scripted');
  assert.deepEqual(
    request?.messages.map(({ role }) => role),
    ['system', 'user'],
  );
  assert.equal(request?.tools?.map((tool) => tool.function.name).join(' '), TOOLS);
  const found = await agent.probe(new AbortController().signal);
  assert.deepEqual(found, { status: 'ok', version: '1.2.3', model: 'scripted' });
});

test('a turn that names a model gets that one', async (context) => {
  const { agent, requests } = scriptedAgent(() => ({ text: ['ok'] }));
  await agent.startTurn(recordTurn(await workingDirectory(context), 'x', { model: 'other' }));
  assert.equal(requests[0]?.model, 'other');
});

test('a tool call is shown from asked to done, and the model gets its result', async (context) => {
  const root = await workingDirectory(context);
  await writeFile(join(root, 'a.txt'), 'content');
  const { agent, requests } = scriptedAgent((index) =>
    index === 0
      ? { text: ['Let me look.'], calls: [{ name: 'read_file', input: { path: 'a.txt' } }] }
      : { text: ['It says content.'] },
  );
  const turn = recordTurn(root, 'What is in a.txt?');
  const end = await agent.startTurn(turn);
  assert.equal(end.kind === 'completed' && end.output, 'It says content.');
  assert.equal(turn.text(), 'Let me look.\n\nIt says content.');
  const shown = { kind: 'tool_call', title: 'Read a.txt', toolKind: 'read', input: { path: 'a.txt' } };
  const [pending, running, done] = turn.toolCalls();
  const id = pending?.toolCallId;
  assert.deepEqual(pending, { ...shown, toolCallId: id, status: 'pending' });
  assert.deepEqual(running, { ...shown, toolCallId: id, status: 'in_progress' });
  const locations = [{ path: join(root, 'a.txt'), line: 1 }];
  assert.deepEqual(done, { ...shown, toolCallId: id, status: 'completed', output: 'content', locations });
  assert.equal(
    turn.events.some(({ kind }) => kind === 'permission'),
    false,
  );
  assert.deepEqual(requests[1]?.messages.slice(2), [
    {
      role: 'assistant',
      content: 'Let me look.',
      tool_calls: [{ id: 'call_0', type: 'function', function: { name: 'read_file', arguments: '{"path":"a.txt"}' } }],
    },
    { role: 'tool', tool_call_id: 'call_0', content: 'content' },
  ]);
});

test('all tool calls of one answer are done, in order, and each is answered under its own id', async (context) => {
  const root = await workingDirectory(context);
  const { agent, requests } = scriptedAgent((index) =>
    index > 0
      ? { text: ['done'] }
      : {
          calls: [
            { name: 'write_file', input: { path: 'a.txt', content: 'one' }, id: 'same' },
            { name: 'edit_file', input: { path: 'a.txt', old_text: 'one', new_text: 'two' }, id: 'same' },
            { name: 'read_file', input: { path: 'a.txt' }, id: 'not usable !' },
          ],
        },
  );
  const turn = recordTurn(root, 'work');
  await agent.startTurn(turn);
  assert.equal(await readFile(join(root, 'a.txt'), 'utf8'), 'two');
  const [, , asked, ...results] = requests[1]?.messages ?? [];
  const ids = asked?.role === 'assistant' ? (asked.tool_calls ?? []).map(({ id }) => id) : [];
  assert.equal(new Set(ids).size, 3);
  assert.deepEqual(
    results.map((message) => message.role === 'tool' && message.tool_call_id),
    ids,
  );
  assert.equal(results.at(-1)?.content, 'two');
  const permissions = turn.events.filter((event) => event.kind === 'permission');
  assert.deepEqual(
    permissions.map(({ title, decision }) => [title, decision]),
    [
      ['Write a.txt', 'allowed'],
      ['Edit a.txt', 'allowed'],
    ],
  );
});

test('B-63: with permissions denied nothing is written or run, the model sees it, and each denial is shown', async (context) => {
  const root = await workingDirectory(context);
  await writeFile(join(root, 'a.txt'), 'kept');
  const { agent, requests } = scriptedAgent(
    (index) =>
      index > 0
        ? { text: ['I may not.'] }
        : {
            calls: [
              { name: 'write_file', input: { path: 'a.txt', content: 'x' } },
              { name: 'edit_file', input: { path: 'a.txt', old_text: 'kept', new_text: 'x' } },
              { name: 'run_command', input: { command: 'touch', args: ['b.txt'] } },
              { name: 'read_file', input: { path: 'a.txt' } },
            ],
          },
    { permissions: 'deny' },
  );
  const turn = recordTurn(root, 'work');
  await agent.startTurn(turn);
  assert.equal(await readFile(join(root, 'a.txt'), 'utf8'), 'kept');
  const results =
    requests[1]?.messages.filter(({ role }) => role === 'tool').map(({ content }) => String(content)) ?? [];
  assert.equal(results.filter((text) => text.startsWith('Refused:')).length, 3);
  assert.equal(results.at(-1), 'kept');
  const denials = turn.events.filter((event) => event.kind === 'permission' && event.decision === 'denied');
  assert.equal(denials.length, 3);
  assert.equal(turn.toolCalls().filter(({ status }) => status === 'failed').length, 3);
  assert.match(String(requests[0]?.messages[0]?.content), /may only read/);
});

for (const chosen of ['allow', 'reject', undefined] as const) {
  test(`DB-7: the built-in agent does what the person allows and nothing else: ${chosen}`, async (context) => {
    const root = await workingDirectory(context);
    await writeFile(join(root, 'a.txt'), 'kept');
    const { agent } = scriptedAgent((index) =>
      index > 0
        ? { text: ['done'] }
        : {
            calls: [
              { name: 'write_file', input: { path: 'a.txt', content: 'new' } },
              { name: 'read_file', input: { path: 'a.txt' } },
            ],
          },
    );
    const asked: string[] = [];
    const ask = async ({ toolKind }: { toolKind: string }) => {
      asked.push(toolKind);
      return { optionId: chosen };
    };
    const turn = recordTurn(root, 'work', { ask });
    await agent.startTurn(turn);
    assert.equal(await readFile(join(root, 'a.txt'), 'utf8'), chosen === 'allow' ? 'new' : 'kept');
    assert.deepEqual(asked, ['edit'], 'reading needs no permission');
    const decisions = turn.events.flatMap((event) => (event.kind === 'permission' ? [event.decision] : []));
    assert.deepEqual(decisions, [chosen === 'allow' ? 'allowed' : 'denied']);
  });
}

test('the model learns why a person denied a tool, and a turn that may only read has no tools that write', async (context) => {
  const root = await workingDirectory(context);
  const { agent, requests } = scriptedAgent((index) =>
    index % 2 === 1 ? { text: ['done'] } : { calls: [{ name: 'write_file', input: { path: 'a.txt', content: 'x' } }] },
  );
  const ask = async () => ({ optionId: 'reject', reason: 'put it into docs/ instead' });
  const turn = recordTurn(root, 'work', { ask });
  await agent.startTurn(turn);
  assert.equal(
    requests[1]?.messages.at(-1)?.content,
    'Refused: the user does not permit this. The user says: put it into docs/ instead',
  );
  assert.equal(turn.events.find((event) => event.kind === 'permission')?.reason, 'put it into docs/ instead');
  const offered = (index: number) => requests[index]?.tools?.map((tool) => tool.function.name) ?? [];
  assert.ok(offered(0).includes('write_file'));
  const reading = recordTurn(root, 'work', { ask, isReadOnly: true });
  await agent.startTurn(reading);
  assert.deepEqual(offered(2), ['read_file', 'list_files', 'find_files', 'search_files', 'update_plan']);
  assert.match(String(requests[2]?.messages[0]?.content), /may only read/);
  assert.match(String(requests[3]?.messages.at(-1)?.content), /^Refused: here you may not/);
  assert.equal(reading.events.filter((event) => event.kind === 'permission')[0]?.decision, 'denied');
  await agent.startTurn(recordTurn(root, 'work', { ask: async () => ({ optionId: undefined }) }));
  assert.match(String(requests[5]?.messages.at(-1)?.content), /^Refused: .* nobody has given or denied it\. Do not/);
});

test('a message to the running turn reaches the model with its next request, also when it was about to end', async (context) => {
  const steers: Steer[] = [];
  const taken: boolean[] = [];
  const say = async (text: string) => void taken.push((await steers[0]?.(text)) ?? false);
  const { agent, requests, store } = scriptedAgent((index) => {
    if (index < 2) void say(['between two steps', 'before the end'][index] ?? '');
    return index === 0 ? { calls: [{ name: 'list_files', input: {} }] } : { text: [`answer ${index}`] };
  });
  const steerable = (steer: Steer) => void steers.push(steer);
  const turn = recordTurn(await workingDirectory(context), 'work', { steerable });
  const end = await agent.startTurn(turn);
  assert.equal(end.kind === 'completed' && end.output, 'answer 2');
  const told = (index: number) => requests[index]?.messages.at(-1);
  assert.deepEqual(told(1), { role: 'user', content: 'between two steps' });
  assert.deepEqual(told(2), { role: 'user', content: 'before the end' });
  await say('after the end');
  assert.deepEqual(taken, [true, true, false]);
  const kept = store.rows.get(turn.references[0] ?? '')?.map((body) => (JSON.parse(body) as { role: string }).role);
  assert.deepEqual(kept, ['user', 'assistant', 'tool', 'user', 'assistant', 'user', 'assistant']);
});

test('unknown tools and garbage for arguments are answered with the fix, and the turn goes on', async (context) => {
  const { agent, requests } = scriptedAgent((index) =>
    index > 0
      ? { text: ['sorry'] }
      : {
          calls: [
            { name: 'rm_everything', input: {} },
            { name: 'read_file', input: '{"path": "a' },
            { name: 'read_file', input: { path: 7 } },
            { name: 'read_file', input: '[]' },
            { name: 'read_file', input: `${'['.repeat(5000)}` },
            { name: 'read_file', input: { path: 'not-there.txt' } },
            { name: '__proto__', input: '{"__proto__": 1}' },
          ],
        },
  );
  const turn = recordTurn(await workingDirectory(context), 'work');
  const end = await agent.startTurn(turn);
  assert.equal(end.kind, 'completed');
  const results = requests[1]?.messages.filter(({ role }) => role === 'tool').map(({ content }) => content ?? '') ?? [];
  const expected = [
    /^Error: there is no tool "rm_everything". There are: read_file, list_files,/,
    /^Error: the arguments are not valid JSON: .*Send one JSON object\.$/,
    /^Error: the arguments do not fit: path must be a string\.$/,
    /^Error: the arguments do not fit: params must be an object\.$/,
    /^Error: the arguments are not valid JSON: it is nested deeper/,
    /^Error: There is no such file or folder/,
    /^Error: there is no tool "__proto__"/,
  ];
  assert.equal(results.length, expected.length);
  for (const [index, pattern] of expected.entries()) assert.match(String(results[index]), pattern);
  assert.equal(turn.toolCalls().filter(({ status }) => status === 'failed').length, 7);
});

test('tool calls in odd pieces are put together: without index, without id, or all together', async (context) => {
  const root = await workingDirectory(context);
  const { agent, requests } = scriptedAgent((index) =>
    index > 0
      ? { text: ['done'] }
      : {
          deltas: [
            { tool_calls: [{ id: 'a', function: { name: 'list_files', arguments: '{"pa' } }] },
            { tool_calls: [{ function: { arguments: 'th":"."}' } }] },
            { tool_calls: [{ id: 'b', function: { name: 'list_files' } }] },
            { tool_calls: [{ index: 7, function: { name: 'list_files', arguments: '{}' } }] },
          ],
        },
  );
  await agent.startTurn(recordTurn(root, 'work'));
  const results = requests[1]?.messages.filter(({ role }) => role === 'tool').map(({ content }) => content);
  assert.deepEqual(results, ['[the folder is empty]', '[the folder is empty]', '[the folder is empty]']);
});

test('a model that never stops asking is stopped, and the next turn can go on', async (context) => {
  const { agent, requests } = scriptedAgent(() => ({ calls: [{ name: 'list_files', input: {} }] }), { maxRequests: 3 });
  const root = await workingDirectory(context);
  const turn = recordTurn(root, 'loop');
  const end = await agent.startTurn(turn);
  assert.equal(end.kind === 'completed' && end.stopReason, 'max_turn_requests');
  assert.equal(
    end.kind === 'completed' && end.output,
    'I stopped after 3 requests to the model, before the work was done.',
  );
  assert.equal(requests.length, 3);
  await agent.continueTurn(turn.references[0] ?? '', recordTurn(root, 'go on'));
  const roles = requests[3]?.messages.map(({ role }) => role);
  assert.deepEqual(roles, ['system', 'user', 'assistant', 'tool', 'assistant', 'tool', 'assistant', 'tool', 'user']);
});

test('a model that sends endless text or endless calls is given up', async (context) => {
  const root = await workingDirectory(context);
  const long = scriptedAgent(() => ({ text: Array.from({ length: 200 }, () => 'x'.repeat(10_000)) }));
  const first = await long.agent.startTurn(recordTurn(root, 'x'));
  assert.equal(
    first.kind === 'failed' && first.error,
    'The model could not answer: it sent a text of more than 1048576 characters',
  );
  const calls = Array.from({ length: 100 }, () => ({ name: 'list_files', input: {} }));
  const second = await scriptedAgent(() => ({ calls })).agent.startTurn(recordTurn(root, 'x'));
  assert.match(second.kind === 'failed' ? second.error : '', /more than 64 tool calls/);
});

test('a model that fails in the middle ends the turn with its reason, and what was said is kept', async (context) => {
  const root = await workingDirectory(context);
  const error = new AppError('MODEL_FAILED', { reason: 'the connection was cut' });
  const { agent, requests } = scriptedAgent((index) =>
    index === 0 ? { text: ['I will'], error } : { text: ['again'] },
  );
  const turn = recordTurn(root, 'work');
  const end = await agent.startTurn(turn);
  assert.deepEqual(end, {
    kind: 'failed',
    code: 'AGENT_FAILED',
    error: 'The model could not answer: the connection was cut',
    output: 'I will',
  });
  await agent.continueTurn(turn.references[0] ?? '', recordTurn(root, 'go on'));
  assert.deepEqual(
    requests[1]?.messages.slice(1).map(({ content }) => content),
    ['work', 'I will', 'go on'],
  );
});

test('a fault of ours is thrown, not told as a failure of the agent', async (context) => {
  const { agent } = scriptedAgent(() => ({ error: new TypeError('a bug') }));
  await assert.rejects(agent.startTurn(recordTurn(await workingDirectory(context), 'x')), TypeError);
});

test('an answer with nothing in it is an empty output', async (context) => {
  const { agent, store } = scriptedAgent(() => ({}));
  const turn = recordTurn(await workingDirectory(context), 'x');
  const end = await agent.startTurn(turn);
  assert.equal(end.kind === 'completed' && end.output, '');
  assert.equal(store.rows.get(turn.references[0] ?? '')?.length, 1);
});

test('the reason why a model stopped is handed on', async (context) => {
  const root = await workingDirectory(context);
  const reasons: Record<string, string> = { stop: 'end_turn', length: 'max_tokens', content_filter: 'refusal' };
  for (const [finish, stopReason] of Object.entries(reasons)) {
    const end = await scriptedAgent(() => ({ text: ['x'], finish })).agent.startTurn(recordTurn(root, 'x'));
    assert.equal(end.kind === 'completed' && end.stopReason, stopReason);
  }
});

test('cancel ends a model that is silent, immediately and permanently', async (context) => {
  const { agent } = scriptedAgent(() => ({ text: ['begun'], hangs: true }));
  const turn = recordTurn(await workingDirectory(context), 'x');
  const ending = agent.startTurn(turn);
  await turn.when(({ kind }) => kind === 'text');
  await agent.cancel(turn.turnId);
  assert.deepEqual(await ending, { kind: 'cancelled', output: 'begun' });
  await agent.cancel(turn.turnId);
  await agent.cancel('turn-unknown');
});

test('B-53: cancel kills a running command, and the conversation can be continued', async (context) => {
  const root = await workingDirectory(context);
  const { agent, requests } = scriptedAgent((index) =>
    index === 0
      ? {
          calls: [
            { name: 'run_command', input: { command: 'sh', args: ['-c', "trap '' TERM; echo $$ > pid; sleep 600"] } },
          ],
        }
      : { text: ['ok'] },
  );
  const turn = recordTurn(root, 'wait');
  const ending = agent.startTurn(turn);
  const pid = async () => Number(await readFile(join(root, 'pid'), 'utf8').catch(() => '0'));
  await until('the command to run', async () => (await pid()) > 0);
  await agent.cancel(turn.turnId);
  assert.equal(isAlive(await pid()), false);
  assert.equal((await ending).kind, 'cancelled');
  const next = await agent.continueTurn(turn.references[0] ?? '', recordTurn(root, 'and now?'));
  assert.equal(next.kind, 'completed');
  const roles = requests[1]?.messages.map(({ role }) => role);
  assert.deepEqual(roles, ['system', 'user', 'assistant', 'tool', 'user']);
});

test('stop ends all turns, and later ones end as cancelled', async (context) => {
  const root = await workingDirectory(context);
  const { agent } = scriptedAgent(() => ({ text: ['begun'], hangs: true }));
  const turns = [recordTurn(root, 'a'), recordTurn(root, 'b')];
  const endings = turns.map((turn) => agent.startTurn(turn));
  await Promise.all(turns.map((turn) => turn.when(({ kind }) => kind === 'text')));
  await agent.stop();
  assert.deepEqual(
    (await Promise.all(endings)).map(({ kind }) => kind),
    ['cancelled', 'cancelled'],
  );
  assert.equal((await agent.startTurn(recordTurn(root, 'c'))).kind, 'cancelled');
});

test('a closed conversation is lost, as is one that never was', async (context) => {
  const root = await workingDirectory(context);
  const { agent, requests } = scriptedAgent(() => ({ text: ['ok'] }));
  const turn = recordTurn(root, 'x');
  await agent.startTurn(turn);
  const [reference = ''] = turn.references;
  await agent.close(reference);
  for (const name of [reference, 'conversation-unknown']) {
    assert.equal((await agent.continueTurn(name, recordTurn(root, 'y'))).kind, 'lost');
  }
  assert.equal(requests.length, 1);
});
