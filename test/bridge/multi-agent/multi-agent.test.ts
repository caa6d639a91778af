import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { call, openClient, stream, type Update } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, endless, type ScriptedTurn, type TurnScript } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

/** Says who it is and what it was asked. */
const naming =
  (name: string): TurnScript =>
  async ({ prompt, report }) => {
    const output = `${name} heard "${prompt}"`;
    report({ kind: 'text', text: output });
    return { kind: 'completed', output, stopReason: 'end_turn', usage: { inputTokens: 2, outputTokens: 3 } };
  };
const failing: TurnScript = async () => ({ kind: 'failed', code: 'AGENT_FAILED', error: 'it broke', output: '' });
const run = (routing: object, more = {}) => ({
  sessionId: 's',
  taskPrompt: 'the task',
  multiAgent: true,
  routing,
  ...more,
});

interface Step {
  readonly index: number;
  readonly providerId: string;
  readonly status: string;
  readonly durationMs: number;
  readonly output?: string;
  readonly error?: string;
  readonly conversationTurn?: number;
}
const stepsOf = (result: Record<string, unknown> | undefined) => result?.steps as readonly Step[];
const codeOf = (error: { readonly data?: unknown } | undefined) => Object(error?.data).code;
const brief = (result: Record<string, unknown> | undefined) =>
  stepsOf(result).map(({ index, providerId, status }) => `${index} ${providerId} ${status}`);

describe('a sequence', () => {
  test('each step has a session of its own, and finds earlier outputs by their names', async (t) => {
    const alpha = createScriptedProvider('alpha', naming('alpha'));
    const beta = createScriptedProvider('beta', naming('beta'));
    const { url } = await startBridge(t, { providers: [alpha, beta] });
    const steps = [
      { providerId: 'alpha', outputAs: 'plan' },
      { providerId: 'beta', prompt: 'do {{plan}}' },
      { providerId: 'alpha', prompt: '{{input}}|{{previousOutput}}|{{unknown}}' },
    ];
    const { result } = await call(url, 'session.start', run({ steps }));
    assert.equal(result?.output, 'alpha heard "the task|beta heard "do alpha heard "the task""|{{unknown}}"');
    assert.deepEqual(brief(result), ['0 alpha completed', '1 beta completed', '2 alpha completed']);
    assert.deepEqual(
      [result?.mode, result?.orchestrationMode, result?.resolvedExecutionTarget, result?.status, result?.stopReason],
      ['multi-agent', 'sequence', 'multi-agent', 'completed', 'completed'],
    );
    assert.equal(result?.sharedWorkspace, result?.resolvedWorkingDirectory);
    assert.deepEqual(result?.usage, { inputTokens: 6, outputTokens: 9 });
    assert.equal(new Set([...alpha.folders, ...beta.folders]).size, 1);
    assert.deepEqual([alpha.closed.length, beta.closed.length], [0, 0], 'a message may follow');
    await call(url, 'session.close', { sessionId: 's' });
    await until('every agent session to be closed', async () => alpha.closed.length === 2 && beta.closed.length === 1);
  });

  test('it stops at the first failure, and says which step it was', async (t) => {
    const alpha = createScriptedProvider('alpha', failing);
    const beta = createScriptedProvider('beta');
    const { url } = await startBridge(t, { providers: [alpha, beta] });
    const steps = [{ providerId: 'alpha' }, { providerId: 'beta' }];
    const { result } = await call(url, 'session.start', run({ steps }));
    assert.deepEqual(brief(result), ['0 alpha failed']);
    assert.deepEqual(
      [result?.success, result?.status, result?.code, result?.error, result?.stopReason],
      [false, 'failed', 'AGENT_FAILED', 'Step 0 (alpha): it broke', 'step_failed'],
    );
    assert.equal(beta.asked.length, 0);
  });

  test('B-65: an output that looks like a template reaches the next step as it is', async (t) => {
    const alpha = createScriptedProvider('alpha', async () => ({
      kind: 'completed',
      output: '{{input}} {{plan}} $& {{previousOutput}}',
      stopReason: 'end_turn',
    }));
    const beta = createScriptedProvider('beta', naming('beta'));
    const { url } = await startBridge(t, { providers: [alpha, beta] });
    const steps = [
      { providerId: 'alpha', outputAs: 'plan' },
      { providerId: 'beta', prompt: '<{{plan}}>' },
    ];
    const { result } = await call(url, 'session.start', run({ steps }));
    assert.equal(result?.output, 'beta heard "<{{input}} {{plan}} $& {{previousOutput}}>"');
  });

  test('B-62: a step that hangs is stopped when its time is up', async (t) => {
    const alpha = createScriptedProvider('alpha', endless);
    const { url } = await startBridge(t, { providers: [alpha] });
    const { result } = await call(url, 'session.start', run({ steps: [{ providerId: 'alpha', timeoutMs: 50 }] }));
    assert.deepEqual(brief(result), ['0 alpha timed_out']);
    assert.equal(result?.code, 'AGENT_TIMEOUT');
    assert.equal(alpha.cancelled.length, 1);
    assert.equal(alpha.running(), 0);
  });

  test('an agent that is down fails its step', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const beta = createScriptedProvider('beta');
    beta.setProbe({ status: 'not_installed', version: '' });
    const { url } = await startBridge(t, { providers: [alpha, beta] });
    const { result } = await call(url, 'session.start', run({ steps: [{ providerId: 'beta' }] }));
    assert.equal(result?.code, 'PROVIDER_UNAVAILABLE');
    assert.equal(beta.asked.length, 0);
  });
});

test('steps tell live which of them speaks, between the events of the run', async (t) => {
  const alpha = createScriptedProvider('alpha', naming('alpha'));
  const { url } = await startBridge(t, { providers: [alpha] });
  const params = run({ steps: [{ providerId: 'alpha' }, { providerId: 'alpha' }] });
  const { updates } = await stream(url, { method: 'session.start', params });
  const told = updates.map(({ event, stepIndex, providerId }: Update) =>
    [event, stepIndex, providerId].join(' ').trim(),
  );
  assert.deepEqual(told, [
    'started',
    'running',
    'multi_agent_started',
    'multi_agent_step_started 0 alpha',
    'delta 0 alpha',
    'multi_agent_step_completed 0 alpha',
    'multi_agent_step_started 1 alpha',
    'delta 1 alpha',
    'multi_agent_step_completed 1 alpha',
    'multi_agent_completed',
    'completed',
  ]);
  assert.deepEqual(
    updates.map(({ seq }) => seq),
    updates.map((_, index) => index + 1),
  );
});

test('the start of a conversation says how many speeches it has at most', async (t) => {
  const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha', naming('alpha'))] });
  const params = run({ orchestrationMode: 'conversation', participants: ['alpha', 'alpha'], maxTurns: 3 });
  const { updates } = await stream(url, { method: 'session.start', params });
  const { maxTurns } = Object(updates.find(({ event }) => event === 'multi_agent_started'));
  assert.equal(maxTurns, 3);
});

describe('steps at the same time', () => {
  test('parallel runs all and succeeds only if all do', async (t) => {
    const alpha = createScriptedProvider('alpha', naming('alpha'));
    const beta = createScriptedProvider('beta', naming('beta'));
    const broken = createScriptedProvider('broken', failing);
    const { url } = await startBridge(t, { providers: [alpha, beta, broken] });
    const both = { orchestrationMode: 'parallel', steps: [{ providerId: 'alpha' }, { providerId: 'beta' }] };
    const { result } = await call(url, 'session.start', run(both));
    assert.equal(result?.output, '[alpha]: alpha heard "the task"\n\n[beta]: beta heard "the task"');
    assert.equal(result?.status, 'completed');
    const three = { ...both, steps: [...both.steps, { providerId: 'broken' }] };
    const { result: worse } = await call(url, 'session.start', run(three, { sessionId: 'worse' }));
    assert.deepEqual(brief(worse), ['0 alpha completed', '1 beta completed', '2 broken failed']);
    assert.deepEqual([worse?.status, worse?.error], ['failed', 'Step 2 (broken): it broke']);
  });

  test('B-65: in a race the first that completes wins, and the others are stopped and let go of', async (t) => {
    const slow = createScriptedProvider('slow', endless);
    const broken = createScriptedProvider('broken', failing);
    const fast = createScriptedProvider('fast', naming('fast'));
    const { url } = await startBridge(t, { providers: [slow, broken, fast] });
    const steps = [{ providerId: 'slow' }, { providerId: 'broken' }, { providerId: 'fast' }, { providerId: 'slow' }];
    const { result } = await call(url, 'session.start', run({ orchestrationMode: 'race', steps }));
    assert.equal(result?.output, 'fast heard "the task"');
    assert.deepEqual(brief(result), ['0 slow cancelled', '1 broken failed', '2 fast completed', '3 slow cancelled']);
    assert.deepEqual([slow.running(), slow.closed.length], [0, 2]);
  });

  test('a race that nobody wins has failed', async (t) => {
    const broken = createScriptedProvider('broken', failing);
    const { url } = await startBridge(t, { providers: [broken] });
    const routing = { orchestrationMode: 'race', steps: [{ providerId: 'broken' }, { providerId: 'broken' }] };
    const { result } = await call(url, 'session.start', run(routing));
    assert.deepEqual([result?.status, result?.code], ['failed', 'AGENT_FAILED']);
  });
});

describe('a conversation', () => {
  const heard: string[] = [];
  const speaking =
    (name: string, said: (turn: ScriptedTurn) => string): TurnScript =>
    async (turn) => {
      heard.push(`${name}: ${turn.prompt}`);
      return { kind: 'completed', output: said(turn), stopReason: 'end_turn' };
    };

  test('each speaker continues its own session and hears what the others said since it last spoke', async (t) => {
    heard.length = 0;
    const alpha = createScriptedProvider(
      'alpha',
      speaking('alpha', ({ count }) => `a${count}`),
    );
    const beta = createScriptedProvider(
      'beta',
      speaking('beta', ({ count }) => `b${count}`),
    );
    const { url } = await startBridge(t, { providers: [alpha, beta] });
    const routing = { orchestrationMode: 'conversation', participants: ['alpha', { providerId: 'beta' }], maxTurns: 5 };
    const { result } = await call(url, 'session.start', run(routing));
    assert.deepEqual(heard, [
      'alpha: the task',
      'beta: the task\n\n[alpha]: a0',
      'alpha: [beta]: b0',
      'beta: [alpha]: a1',
      'alpha: [beta]: b1',
    ]);
    assert.deepEqual(
      stepsOf(result).map(({ index, conversationTurn }) => [index, conversationTurn]),
      [
        [0, 1],
        [1, 2],
        [0, 3],
        [1, 4],
        [0, 5],
      ],
    );
    assert.deepEqual([result?.output, result?.stopReason], ['a2', 'max_turns']);
  });

  test('B-65: it lasts one round unless more are asked for, and never longer than that', async (t) => {
    const alpha = createScriptedProvider('alpha', naming('alpha'));
    const { url } = await startBridge(t, { providers: [alpha] });
    const routing = { orchestrationMode: 'conversation', participants: ['alpha', 'alpha', 'alpha'] };
    const { result } = await call(url, 'session.start', run(routing));
    assert.equal(stepsOf(result).length, 3);
  });

  test('a single participant gets its task again in each round', async (t) => {
    const heard: string[] = [];
    const alpha = createScriptedProvider('alpha', async ({ prompt }) => {
      heard.push(prompt);
      return { kind: 'completed', output: 'still at it', stopReason: 'end_turn' };
    });
    const { url } = await startBridge(t, { providers: [alpha] });
    const routing = { orchestrationMode: 'conversation', participants: ['alpha'], maxTurns: 3 };
    await call(url, 'session.start', run(routing));
    assert.equal(heard.length, 3);
    assert.deepEqual([...new Set(heard)], [heard[0]]);
    assert.notEqual(heard[0], '');
  });

  test('it ends with a stop condition, whatever its case', async (t) => {
    const alpha = createScriptedProvider(
      'alpha',
      speaking('alpha', ({ count }) => (count === 1 ? 'status: Done' : 'no')),
    );
    const { url } = await startBridge(t, { providers: [alpha] });
    const routing = { orchestrationMode: 'conversation', participants: ['alpha'], maxTurns: 9 };
    const { result } = await call(url, 'session.start', run(routing));
    assert.deepEqual([stepsOf(result).length, result?.stopReason], [2, 'stop_condition']);
  });
});

test('to cancel the session stops every step, and the run has been cancelled', async (t) => {
  const alpha = createScriptedProvider('alpha', endless);
  const { url } = await startBridge(t, { providers: [alpha] });
  const client = await openClient(t, url);
  const steps = [{ providerId: 'alpha' }, { providerId: 'alpha' }];
  const answer = client.call('session.start', run({ orchestrationMode: 'parallel', steps }));
  await client.seen(({ event, stepIndex }) => event === 'delta' && stepIndex === 1);
  await client.call('session.cancel', { sessionId: 's' });
  const { result } = await answer;
  assert.deepEqual([result?.status, result?.code, result?.stopReason], ['cancelled', 'TURN_CANCELLED', 'cancelled']);
  assert.deepEqual(brief(result), ['0 alpha cancelled', '1 alpha cancelled']);
  assert.equal(alpha.running(), 0);
});

describe('B-51: a gateway task is no multi-agent run, on any transport', () => {
  const params = run({ explicitExecutionTarget: 'gateway', preferredGatewayProviderId: 'openclaw', steps: [] });
  for (const asked of [params, { ...params, multiAgent: false, mode: 'multi-agent' }]) {
    test(`nothing is started with ${JSON.stringify({ multiAgent: asked.multiAgent })}`, async (t) => {
      const alpha = createScriptedProvider('alpha');
      const { url } = await startBridge(t, { providers: [alpha] });
      const client = await openClient(t, url);
      const answers = [
        await call(url, 'session.start', asked),
        (await stream(url, { method: 'session.start', params: asked })).final,
        await client.call('session.start', asked),
        await call(url, 'session.message', asked),
      ];
      for (const { error } of answers) {
        assert.equal(error?.code, -32602);
        assert.equal(codeOf(error), 'GATEWAY_MULTI_AGENT_CONFLICT');
      }
      assert.equal(alpha.asked.length, 0);
    });
  }
});
