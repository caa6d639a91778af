import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Envelope } from '../../kit/bridge/bridge-client.ts';
import { call } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import {
  createScriptedProvider,
  echo,
  endless,
  type ScriptedProvider,
  type ScriptedTurn,
  type TurnScript,
} from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

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
  readonly output?: string;
}
const stepsOf = (result: Record<string, unknown> | undefined) => result?.steps as readonly Step[];
const codeOf = (error: { readonly data?: unknown } | undefined) => Object(error?.data).code;
const brief = (result: Record<string, unknown> | undefined) =>
  stepsOf(result).map(({ index, providerId, status }) => `${index} ${providerId} ${status}`);

describe('a session of a multi-agent run', () => {
  const steps = [{ providerId: 'alpha' }];

  /** Says what it was asked, and how often it was asked before in this agent session. */
  const counting =
    (name: string): TurnScript =>
    async ({ prompt, count }) => ({ kind: 'completed', output: `${name}${count} ${prompt}`, stopReason: 'end_turn' });
  const sequence = [
    { providerId: 'alpha', prompt: 'begin', outputAs: 'plan' },
    { providerId: 'beta', prompt: 'do {{plan}}' },
    { providerId: 'alpha', prompt: 'check {{input}}' },
  ];
  const message = (more: object = {}) => ({ sessionId: 's', taskPrompt: 'more', ...more });
  const team = () => [createScriptedProvider('alpha', counting('a')), createScriptedProvider('beta', counting('b'))];
  const lostAt = ({ error }: Envelope) => [error?.code, Object(error?.data).providerId];

  test('DB-32: a message continues the agent session of each step, also after a restart', async (t) => {
    const [alpha, beta] = team();
    const providers = [alpha, beta] as ScriptedProvider[];
    const first = await startBridge(t, { providers });
    await call(first.url, 'session.start', run({ steps: sequence }));
    const { result } = await call(first.url, 'session.message', message());
    assert.deepEqual(
      stepsOf(result).map(({ output }) => output),
      ['a1 more', 'b1 do a1 more', 'a1 check more'],
    );
    assert.deepEqual([result?.mode, result?.resolvedExecutionTarget], ['multi-agent', 'multi-agent']);
    await first.stop();
    const second = await startBridge(t, { providers, after: first });
    const asked = [
      message(),
      message({ multiAgent: true }),
      message({ mode: 'multi-agent', routing: { orchestrationMode: 'parallel' } }),
      run({ steps: [...sequence].reverse() }, { taskPrompt: 'more' }),
    ];
    for (const [index, params] of asked.entries()) {
      const count = index + 2;
      const again = await call(second.url, 'session.message', params);
      const outputs = stepsOf(again.result).map(({ output }) => output?.slice(0, 2));
      assert.deepEqual(outputs, [`a${count}`, `b${count}`, `a${count}`], JSON.stringify(params));
    }
    assert.deepEqual([alpha?.closed, beta?.closed], [[], []]);
    await call(second.url, 'session.close', { sessionId: 's' });
    await until('all agent sessions to be closed', async () => alpha?.closed.length === 2 && beta?.closed.length === 1);
  });

  test('DB-32: a step that cannot continue is the continuation error with its agent, and no new session', async (t) => {
    const [alpha, beta] = team();
    const { url } = await startBridge(t, { providers: [alpha, beta] as ScriptedProvider[] });
    await call(url, 'session.start', run({ steps: sequence.slice(0, 1) }));
    const asked = alpha?.asked.length;
    const wider = [{ providerId: 'alpha' }, { providerId: 'beta' }];
    for (const [steps, providerId] of [
      [wider, 'beta'],
      [[{ providerId: 'alpha' }, { providerId: 'alpha' }], 'alpha'],
    ] as const) {
      assert.deepEqual(lostAt(await call(url, 'session.message', run({ steps }))), [-32002, providerId]);
    }
    assert.deepEqual([alpha?.asked.length, beta?.asked.length], [asked, 0], 'nothing runs');
    const other = message({ routing: { explicitProviderId: 'alpha' } });
    assert.deepEqual(lostAt(await call(url, 'session.message', other)), [-32002, 'multi-agent']);
    alpha?.forget();
    for (const params of [message(), run({ steps: sequence.slice(0, 1) })]) {
      const { error } = await call(url, 'session.message', params);
      assert.deepEqual(error?.data, {
        code: 'SESSION_CONTINUATION_UNAVAILABLE',
        sessionId: 's',
        threadId: 's',
        providerId: 'alpha',
      });
    }
  });

  test('DB-32: in every other mode too, a lost step is an error; in a race it is a failed step', async (t) => {
    const [alpha, beta] = team();
    const { url } = await startBridge(t, { providers: [alpha, beta] as ScriptedProvider[] });
    const both = [{ providerId: 'alpha' }, { providerId: 'beta' }];
    for (const orchestrationMode of ['sequence', 'parallel', 'conversation', 'race']) {
      const sessionId = orchestrationMode;
      const start = run({
        orchestrationMode: orchestrationMode === 'race' ? 'parallel' : orchestrationMode,
        steps: both,
      });
      await call(url, 'session.start', { ...start, sessionId });
      beta?.forget();
      const params = message({ sessionId, multiAgent: true, routing: { orchestrationMode } });
      const answer = await call(url, 'session.message', params);
      if (orchestrationMode !== 'race') assert.deepEqual(lostAt(answer), [-32002, 'beta'], orchestrationMode);
      else assert.deepEqual(brief(answer.result), ['0 alpha completed', '1 beta failed']);
    }
    alpha?.forget();
    assert.deepEqual(lostAt(await call(url, 'session.message', message({ sessionId: 'race' }))), [-32002, 'alpha']);
  });

  test('DB-32: the winner of a race goes on alone, and a step that was never asked opens its first session', async (t) => {
    const slow = createScriptedProvider('slow', endless);
    const fast = createScriptedProvider('fast', counting('f'));
    const broken = createScriptedProvider('broken', async ({ count }) =>
      count === 0 ? failing({} as ScriptedTurn) : echo({ prompt: 'mended', report: () => undefined } as never),
    );
    const { url } = await startBridge(t, { providers: [slow, fast, broken] });
    const race = { orchestrationMode: 'race', steps: [{ providerId: 'slow' }, { providerId: 'fast' }] };
    await call(url, 'session.start', run(race));
    const { result } = await call(url, 'session.message', message());
    assert.deepEqual([result?.output, ...brief(result)], ['f1 more', '0 slow failed', '1 fast completed']);
    assert.equal(slow.asked.length, 1);
    const halted = run({ steps: [{ providerId: 'broken' }, { providerId: 'fast' }] }, { sessionId: 'halted' });
    await call(url, 'session.start', halted);
    const next = await call(url, 'session.message', message({ sessionId: 'halted' }));
    assert.deepEqual(
      [next.result?.output, ...brief(next.result)],
      ['f0 more', '0 broken completed', '1 fast completed'],
    );
  });

  test('is not what a session of one agent becomes', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha] });
    await call(url, 'session.start', { sessionId: 's', taskPrompt: 'alone' });
    const { error } = await call(url, 'session.message', run({ steps }));
    assert.equal(error?.code, -32002);
    assert.equal(alpha.asked.length, 1);
  });

  test('a run is refused by name before anything is stored or started', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha] });
    const refused = await call(url, 'session.start', run({ orchestrationMode: 'tournament', steps }));
    assert.equal(codeOf(refused.error), 'MULTI_AGENT_INVALID_MODE');
    const empty = await call(url, 'session.start', { sessionId: 's', multiAgent: true, routing: { steps } });
    assert.equal(codeOf(empty.error), 'MULTI_AGENT_PROMPT_REQUIRED');
    const single = await call(url, 'session.start', { sessionId: 's' });
    assert.equal(codeOf(single.error), 'INVALID_PARAMS');
    assert.match(single.error?.message ?? '', /taskPrompt/);
    assert.equal(alpha.asked.length, 0);
  });
});
