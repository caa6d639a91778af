import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { AgentOffers } from '../../../../src/bridge/agents/agent-provider.ts';
import { startOtherBridge, TOKEN } from '../../../kit/bridge/other-bridge.ts';
import { startScripted } from '../scripted-agent.ts';

test('a turn streams its text and ends with it, the reason and the usage', async (t) => {
  const agent = await startScripted(t);
  const turn = agent.run({ prompt: 'say one two three', folder: agent.work });
  assert.deepEqual(await turn.end, {
    kind: 'completed',
    output: 'one two three',
    stopReason: 'end_turn',
    usage: { inputTokens: 3, outputTokens: 4, totalTokens: 7 },
  });
  assert.deepEqual(turn.events, [
    { kind: 'text', text: 'one ' },
    { kind: 'text', text: 'two ' },
    { kind: 'text', text: 'three' },
  ]);
});

test('DU-11: what a turn cost is the difference that it made to the conversation', async (t) => {
  const agent = await startScripted(t);
  const costs: (number | undefined)[] = [];
  let reference = '';
  for (const prompt of ['spend 0.25', 'spend 0.75', 'say nothing about it', 'spend 1']) {
    const turn = agent.run({ prompt, folder: agent.work, ...(reference !== '' && { reference }) });
    const end = await turn.end;
    reference ||= turn.reference();
    costs.push(end.kind === 'completed' ? end.usage?.costUsd : undefined);
  }
  assert.deepEqual(costs, [0.25, 0.5, undefined, 0.25]);
});

test('the reference is reported once, before any work', async (t) => {
  const agent = await startScripted(t);
  const turn = agent.run({
    prompt: 'say x',
    folder: agent.work,
    onEvent: () => assert.notEqual(turn.reference(), ''),
  });
  await turn.end;
  assert.deepEqual(Object.keys(JSON.parse(turn.reference())), ['conversation', 'folder', 'continues', 'deletes']);
});

test('B-67: kinds of updates are mapped to those of the contract, or left out', async (t) => {
  const agent = await startScripted(t);
  const turn = agent.run({ prompt: 'kinds', folder: agent.work });
  const call = {
    kind: 'tool_call',
    toolCallId: 't',
    title: 'read',
    toolKind: 'read',
    input: { path: 'a' },
    locations: [{ path: '/a', line: 3 }],
  };
  assert.deepEqual(await turn.end, {
    kind: 'completed',
    output: 'after',
    stopReason: 'end_turn',
    usage: { totalTokens: 55 },
  });
  assert.deepEqual(turn.events, [
    { kind: 'thinking', text: 'hm' },
    {
      kind: 'plan',
      entries: [
        { content: 'look', status: 'completed', priority: 'medium' },
        { content: 'do', status: 'pending', priority: 'medium' },
      ],
    },
    { kind: 'commands', commands: [] },
    { kind: 'status', text: 'slow: very' },
    { kind: 'text', text: 'before ' },
    { ...call, status: 'pending' },
    { ...call, status: 'completed', output: 'inside' },
    { kind: 'text', text: 'after' },
    { kind: 'usage', contextUsed: 55, contextSize: 100 },
  ]);
});

for (const reason of ['refusal', 'max_tokens', 'max_turn_requests']) {
  test(`a turn that stops for ${reason} is completed, and says so`, async (t) => {
    const agent = await startScripted(t);
    const end = await agent.run({ prompt: `stop ${reason}`, folder: agent.work }).end;
    assert.deepEqual(end, { kind: 'completed', output: '', stopReason: reason });
  });
}

test('B-63: permission is granted once, by kind, and shown', async (t) => {
  const agent = await startScripted(t);
  const turn = agent.run({ prompt: 'ask', folder: agent.work });
  const end = await turn.end;
  assert.equal(end.kind === 'completed' && end.output, 'answered selected once');
  assert.ok(existsSync(join(agent.work, 'made')));
  assert.deepEqual(turn.events.slice(0, 2), [
    { kind: 'permission', title: 'touch made', decision: 'allowed', toolCallId: 'call-1' },
    { kind: 'tool_call', toolCallId: 'call-1', title: 'touch made', status: 'completed', toolKind: 'execute' },
  ]);
});

test('B-63: permission is refused, and shown, where the configuration denies it', async (t) => {
  const agent = await startScripted(t, { permissions: 'deny' });
  const turn = agent.run({ prompt: 'ask', folder: agent.work });
  const end = await turn.end;
  assert.equal(end.kind === 'completed' && end.output, 'answered selected never');
  assert.equal(existsSync(join(agent.work, 'made')), false);
  const permission = turn.events.find(({ kind }) => kind === 'permission');
  assert.deepEqual(permission, { kind: 'permission', title: 'touch made', decision: 'denied', toolCallId: 'call-1' });
});

test('a question with a form is answered by a person, declined with a reason, and declined where there is none', async (t) => {
  const agent = await startScripted(t);
  const values = { place: 'staging', sure: false };
  for (const [reply, expected, decision] of [
    [{ optionId: undefined, values }, { action: 'accept', content: values }, 'answered'],
    [{ optionId: undefined, reason: 'ask Ann' }, { action: 'decline', _meta: { reason: 'ask Ann' } }, 'declined'],
    [undefined, { action: 'decline' }, 'declined'],
  ] as const) {
    const ask = reply === undefined ? {} : { ask: async () => reply };
    const turn = agent.run({ prompt: 'form', folder: agent.work, ...ask });
    const end = await turn.end;
    assert.deepEqual(JSON.parse(end.kind === 'completed' ? end.output : ''), expected);
    const event = turn.events.find(({ kind }) => kind === 'permission');
    const why = reply !== undefined && 'reason' in reply ? { reason: reply.reason } : {};
    assert.deepEqual(event, { kind: 'permission', title: 'Where to deploy?', decision, ...why });
  }
  const readOnly = await startScripted(t, { permissions: 'deny' });
  const ask = () => assert.fail('an agent that may only read asks nobody');
  const end = await readOnly.run({ prompt: 'form', folder: readOnly.work, ask }).end;
  assert.equal(end.kind === 'completed' && end.output, '{"action":"decline"}');
});

test('B-60: noise, split characters and unknown messages on the stream leave the turn unharmed', async (t) => {
  const complaints = t.mock.method(console, 'error', () => undefined);
  const agent = await startScripted(t);
  const turn = agent.run({ prompt: 'noise', folder: agent.work });
  const end = await turn.end;
  assert.equal(end.kind === 'completed' && end.output, 'first zwölf €🙂 refused -32601');
  assert.equal(complaints.mock.callCount(), 0);
  const next = await agent.run({ prompt: 'say fine', folder: agent.work, reference: turn.reference() }).end;
  assert.equal(next.kind === 'completed' && next.output, 'fine');
});

test('B-56: a prompt reaches the agent as data, and never an argument or a shell', async (t) => {
  const agent = await startScripted(t);
  const prompt = '--flag; rm -rf . $(touch made) `touch made`\n"quoted" \u0000 \\n -- ☃';
  const end = await agent.run({ prompt: `echo ${prompt}`, folder: agent.work }).end;
  assert.equal(end.kind === 'completed' && end.output, prompt);
  assert.equal(existsSync(join(agent.work, 'made')), false);
});

test('B-57: an agent gets the allowed variables and its own, and none of the bridge’s secrets', async (t) => {
  // While coverage is measured, Node itself hands this one on to every child.
  delete process.env.NODE_V8_COVERAGE;
  const secrets = {
    BRIDGE_AUTH_TOKEN: 'main-secret',
    BRIDGE_REVIEW_AUTH_TOKEN: 'review-secret',
    GATEWAY_TOOLS_TOKEN: 'tools-secret',
    TRESTLE_DATABASE_URL: 'postgres://u:p@h/d',
    OPENAI_API_KEY: 'sk-of-another',
    NODE_OPTIONS: '--no-warnings',
  };
  const agent = await startScripted(t, {
    ownEnvironment: { ...secrets, LANG: 'C.UTF-8' },
    environment: { AGENT_KEY: 'its own' },
  });
  const end = await agent.run({ prompt: 'environment', folder: agent.work }).end;
  const { variables, argv, folder } = JSON.parse(end.kind === 'completed' ? end.output : '{}');
  assert.deepEqual(Object.keys(variables).sort(), ['AGENT_KEY', 'HOME', 'LANG', 'PATH', '_CHILD_OF_TRESTLE']);
  assert.equal(variables.AGENT_KEY, 'its own');
  assert.deepEqual([argv, folder], [[], agent.folder]);
});

test('an agent that refuses a prompt ends the turn with its words', async (t) => {
  const agent = await startScripted(t);
  const end = await agent.run({ prompt: 'dance', folder: agent.work }).end;
  assert.deepEqual(end, { kind: 'failed', code: 'AGENT_FAILED', error: 'Internal error: cannot dance', output: '' });
});

test('two conversations at the same time share a process and do not mix', async (t) => {
  const agent = await startScripted(t);
  const turns = ['red', 'blue'].map((word) => agent.run({ prompt: `say ${word}`, folder: agent.work }));
  await Promise.all(turns.map((turn) => turn.end));
  const ends = await Promise.all(
    turns.map((turn) => agent.run({ prompt: 'recall', folder: agent.work, reference: turn.reference() }).end),
  );
  assert.deepEqual(
    ends.map((end) => end.kind === 'completed' && end.output),
    ['say red|recall', 'say blue|recall'],
  );
  assert.equal(agent.started.length, 1);
});

test('DB-33: a model is chosen by the agent’s name for it, and one that the agent lacks fails the turn', async (t) => {
  const agent = await startScripted(t, { flags: ['--models'] });
  const first = agent.run({ prompt: 'model', folder: agent.work, model: 'large' });
  await first.end;
  assert.deepEqual([first.text(), first.usedModel()], ['vendor/large', 'vendor/large']);
  const second = agent.run({ prompt: 'model', folder: agent.work, model: 'huge', reference: first.reference() });
  assert.deepEqual(await second.end, {
    kind: 'failed',
    code: 'AGENT_FAILED',
    error: 'This agent does not offer the model "huge". Its models: vendor/small, vendor/large.',
    output: '',
  });
  assert.deepEqual([second.events, second.usedModel()], [[], '']);
  const third = agent.run({ prompt: 'model', folder: agent.work, reference: first.reference() });
  await third.end;
  assert.deepEqual([third.text(), third.usedModel()], ['vendor/large', 'vendor/large']);
  const fixed = await startScripted(t);
  const refused = await fixed.run({ prompt: 'say x', folder: fixed.work, model: 'large' }).end;
  assert.match(refused.kind === 'failed' ? refused.error : '', /does not let its model be chosen/);
});

test('the model thinks as much as a turn asks for, with its model too, and as before when the next one does not ask', async (t) => {
  const agent = await startScripted(t, { flags: ['--models'] });
  const offers: AgentOffers[] = [];
  const first = agent.run({ prompt: 'thinking', folder: agent.work, offers: (all) => offers.push(all) });
  await first.end;
  assert.equal(first.text(), 'off');
  assert.deepEqual(
    offers[0]?.thinking.map(({ id }) => id),
    ['off', 'deep'],
  );
  const next = { prompt: 'thinking', folder: agent.work, reference: first.reference() };
  for (const [given, seen] of [
    [{ thinking: 'deep', model: 'large' }, 'deep'],
    [{ thinking: 'deep' }, 'deep'],
    [{}, 'off'],
  ] as const) {
    const turn = agent.run({ ...next, ...given });
    await turn.end;
    assert.equal(turn.text(), seen, JSON.stringify(given));
  }
  const unknown = await agent.run({ ...next, thinking: 'deeper' }).end;
  const refusal =
    'This agent does not have the thinking level "deeper". Its levels: off, deep. Choose another one for the session.';
  assert.equal(unknown.kind === 'failed' && unknown.error, refusal);
  const fixed = await startScripted(t);
  const refused = await fixed.run({ prompt: 'say x', folder: fixed.work, thinking: 'deep' }).end;
  assert.match(refused.kind === 'failed' ? refused.error : '', /Its levels: none\./);
});

test('DB-33: a result names the model that was used, not the one that was asked for', async (t) => {
  const agent = await startScripted(t, { flags: ['--models'], isInstalled: true });
  const url = await startOtherBridge(t, agent.provider);
  const start = async (sessionId: string, explicitModel: string | undefined) => {
    const routing = { explicitProviderId: 'scripted', ...(explicitModel !== undefined && { explicitModel }) };
    const response = await fetch(`${url}/acp/rpc`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${TOKEN}` },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: '1',
        method: 'session.start',
        params: { sessionId, taskPrompt: 'model', routing },
      }),
    });
    const { result } = (await response.json()) as { result: { status: string; resolvedModel: string } };
    return [result.status, result.resolvedModel];
  };
  assert.deepEqual(await start('a', 'large'), ['completed', 'vendor/large']);
  assert.deepEqual(await start('b', undefined), ['completed', 'vendor/small']);
  assert.deepEqual(await start('c', 'huge'), ['failed', '']);
});

test('a conversation keeps its folder, and says so when it is asked to work elsewhere', async (t) => {
  const agent = await startScripted(t);
  const first = agent.run({ prompt: 'say x', folder: agent.work });
  await first.end;
  const turn = agent.run({ prompt: 'ask', folder: agent.folder, reference: first.reference() });
  await turn.end;
  assert.deepEqual(turn.events[0], {
    kind: 'status',
    text: `The conversation stays in ${agent.work}: this agent cannot move it.`,
  });
  assert.ok(existsSync(join(agent.work, 'made')));
});
