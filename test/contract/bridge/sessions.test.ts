import assert from 'node:assert/strict';
import { existsSync, statSync } from 'node:fs';
import { describe, test } from 'node:test';
import { Compile } from 'typebox/schema';
import type { AgentEvent } from '../../../src/bridge/agents/agent-provider.ts';
import { SessionResult } from '../../../src/bridge/contract/session.ts';
import { SessionUpdate } from '../../../src/bridge/contract/session-update.ts';
import { createUnknownMemberSearch } from '../../../src/platform/json/describe-issues.ts';
import type { Logger } from '../../../src/platform/log/logger.ts';
import { type Envelope, postRpc } from '../../kit/bridge/bridge-client.ts';
import { call, openClient, stream } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, echo, endless, type TurnScript, telling } from '../../kit/scripted-provider.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';

const fitsResult = Compile(SessionResult);
const start = (sessionId: string, more = {}) => ({ sessionId, taskPrompt: 'hello there', ...more });

describe('a turn', () => {
  test('a started session streams its updates in order, then gives the normalised result', async (t) => {
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
    const params = start('s', { threadId: 'thread' });
    const { updates, final, events } = await stream(url, { method: 'session.start', params });
    assert.deepEqual(
      updates.map(({ seq, type, event }) => [seq, type, event]),
      [
        [1, 'status', 'started'],
        [2, 'status', 'running'],
        [3, 'delta', 'delta'],
        [4, 'delta', 'delta'],
        [5, 'status', 'completed'],
      ],
    );
    assert.deepEqual(
      events.map(({ id, data }) => [id, data.seq]),
      [
        ['1', 1],
        ['2', 2],
        ['3', 3],
        ['4', 4],
        ['5', 5],
        ['5', 6],
      ],
    );
    const result = final.result ?? {};
    assert.ok(fitsResult.Check(result));
    assert.equal(result.success, true);
    assert.equal(result.status, 'completed');
    assert.equal(result.output, 'hello there');
    assert.equal(result.message, 'hello there');
    assert.equal(result.threadId, 'thread');
    assert.equal(result.mode, 'single-agent');
    assert.equal(result.resolvedProviderId, 'alpha');
    assert.equal('error' in result, false);
    assert.match(String(result.turnId), /^turn-/);
    for (const update of updates) {
      assert.equal(update.sessionId, 's');
      assert.equal(update.threadId, 'thread');
      assert.equal(update.turnId, result.turnId);
    }
  });

  test('DB-26: an event stream has the updates of its own turn only, a follower those of all', async (t) => {
    const release = Promise.withResolvers<void>();
    const alpha = createScriptedProvider('alpha', async (turn) => {
      if (turn.prompt === 'first') await release.promise;
      turn.report({ kind: 'text', text: turn.prompt });
      return { kind: 'completed', output: turn.prompt, stopReason: 'end_turn' };
    });
    const { url } = await startBridge(t, { providers: [alpha] });
    const follower = await openClient(t, url, { query: 'sessionId=s&afterSeq=0' });
    const first = stream(url, { method: 'session.start', params: { sessionId: 's', taskPrompt: 'first' } });
    await follower.seen(({ event }) => event === 'running');
    const message = { method: 'session.message', params: { sessionId: 's', taskPrompt: 'second' } };
    const second = stream(url, message, { 'idempotency-key': 'k' });
    await follower.seen(({ event }) => event === 'queued');
    release.resolve();
    const events = ({ updates }: { readonly updates: readonly { readonly event: string }[] }) =>
      updates.map(({ event }) => event);
    assert.deepEqual(events(await first), ['started', 'running', 'delta', 'completed']);
    assert.deepEqual(events(await second), ['queued', 'started', 'running', 'delta', 'completed']);
    assert.deepEqual(events(await stream(url, message, { 'idempotency-key': 'k' })), events(await second));
    await follower.seen(() => follower.updates.filter(({ event }) => event === 'completed').length === 2);
    assert.equal(follower.updates.length, 9);
  });

  test('DU-11: the end of each turn is one line in the log, with session, agent, status, time and cost', async (t) => {
    const lines: Readonly<Record<string, unknown>>[] = [];
    const note = (level: string) => (fields: object, message: string) => {
      if (message === 'turn ended') lines.push({ level, ...fields });
    };
    const logger: Logger = { ...silentLogger, info: note('info'), warn: note('warn'), child: () => logger };
    const alpha = createScriptedProvider('alpha', async ({ prompt }) =>
      prompt === 'fail'
        ? { kind: 'failed', code: 'AGENT_FAILED', error: 'no', output: '' }
        : {
            kind: 'completed',
            output: 'a secret answer',
            stopReason: 'end_turn',
            usage: { totalTokens: 7, costUsd: 0.5 },
          },
    );
    const { url } = await startBridge(t, { providers: [alpha], logger });
    for (const taskPrompt of ['work', 'fail']) await call(url, 'session.start', { sessionId: 's', taskPrompt });
    await until('two lines', () => lines.length === 2);
    assert.deepEqual(
      lines.map(({ level, sessionId, agent, status, code, costUsd }) => [
        level,
        sessionId,
        agent,
        status,
        code,
        costUsd,
      ]),
      [
        ['info', 's', 'alpha', 'completed', undefined, 0.5],
        ['warn', 's', 'alpha', 'failed', 'AGENT_FAILED', undefined],
      ],
    );
    assert.ok(lines.every(({ durationMs }) => typeof durationMs === 'number'));
    assert.doesNotMatch(JSON.stringify(lines), /secret|work/);
  });

  test('a message continues the same conversation, also after a restart of the bridge', async (t) => {
    const alpha = createScriptedProvider('alpha', async ({ reference, count }) => ({
      kind: 'completed',
      output: `${reference} ${count}`,
      stopReason: 'end_turn',
    }));
    const bridge = await startBridge(t, { providers: [alpha] });
    await call(bridge.url, 'session.start', start('s'));
    assert.equal((await call(bridge.url, 'session.message', start('s'))).result?.output, 'alpha-conversation-1 1');
    await bridge.stop();
    const next = await startBridge(t, { providers: [alpha], after: bridge });
    assert.equal((await call(next.url, 'session.message', start('s'))).result?.output, 'alpha-conversation-1 2');
  });

  const ends = [
    [{ kind: 'failed', code: 'AGENT_EXITED', error: 'gone', output: 'so far' }, 'failed', 'AGENT_EXITED'],
    [{ kind: 'failed', code: 'AGENT_TIMEOUT', error: 'late', output: '' }, 'failed', 'AGENT_TIMEOUT'],
    [{ kind: 'failed', code: 'AGENT_FAILED', error: 'no', output: '' }, 'failed', 'AGENT_FAILED'],
    [{ kind: 'completed', output: ' \n', stopReason: 'end_turn' }, 'failed', 'EMPTY_OUTPUT'],
    [{ kind: 'cancelled', output: '' }, 'cancelled', 'TURN_CANCELLED'],
  ] as const;
  for (const [end, status, code] of ends) {
    test(`B-62: a turn that ends as ${end.kind} is a result with the code ${code}, not an error`, async (t) => {
      const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha', telling([], end))] });
      const { final, updates } = await stream(url, { method: 'session.start', params: start('s') });
      const { result } = final;
      assert.ok(fitsResult.Check(result));
      assert.equal(result.success, false);
      assert.equal(result.status, status);
      assert.equal(result.code, code);
      assert.notEqual(result.error, '');
      const last = updates.at(-1);
      assert.deepEqual([last?.event, last?.pending, last?.error], [status, false, status === 'failed']);
    });
  }

  test('an agent that throws is a failed turn, and the session goes on', async (t) => {
    let isBroken = true;
    const alpha = createScriptedProvider('alpha', (turn) => (isBroken ? Promise.reject(new Error('bug')) : echo(turn)));
    const { url } = await startBridge(t, { providers: [alpha] });
    const { result } = await call(url, 'session.start', start('s'));
    assert.equal(result?.code, 'AGENT_FAILED');
    assert.doesNotMatch(JSON.stringify(result), /bug/);
    isBroken = false;
    assert.equal((await call(url, 'session.message', start('s'))).result?.status, 'completed');
  });

  test('an agent that fails is looked at again immediately', async (t) => {
    const gone = { kind: 'failed', code: 'AGENT_EXITED', error: 'gone', output: '' } as const;
    const alpha = createScriptedProvider('alpha', telling([], gone));
    const { url } = await startBridge(t, { providers: [alpha] });
    alpha.setProbe({ status: 'not_installed', version: '' });
    await call(url, 'session.start', start('s'));
    await until('the second probe', () => alpha.probes() >= 2);
    const { result } = await call(url, 'session.start', start('s'));
    assert.equal(result?.status, 'unavailable');
  });

  test('B-64: output with markup and control sequences arrives as the text it is', async (t) => {
    const text = '\u001b[31m<script>alert("x")</script>\u2028\u0000\ud800 & done';
    const alpha = createScriptedProvider('alpha', async ({ report }) => {
      report({ kind: 'text', text });
      return { kind: 'completed', output: text, stopReason: 'end_turn' };
    });
    const { url } = await startBridge(t, { providers: [alpha] });
    const { updates, final } = await stream(url, { method: 'session.start', params: start('s') });
    assert.equal(updates.find(({ type }) => type === 'delta')?.text, text);
    assert.equal(final.result?.output, text);
    const again = await stream(url, { method: 'session.start', params: start('s') }, { 'last-event-id': '0' });
    assert.equal(again.updates.find(({ type }) => type === 'delta')?.text, text);
    assert.equal(again.final.result?.output, text);
  });

  test('with no folder named the agent works in a private one, which is gone when the session is closed', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const bridge = await startBridge(t, { providers: [alpha] });
    const { result } = await call(bridge.url, 'session.start', start('s'));
    const folder = String(result?.resolvedWorkingDirectory);
    assert.ok(folder.startsWith(bridge.folder));
    assert.equal(statSync(folder).mode & 0o777, 0o700);
    await call(bridge.url, 'session.message', start('s'));
    assert.deepEqual(alpha.folders, [folder, folder]);
    await call(bridge.url, 'session.close', { sessionId: 's' });
    await until('the folder to go', () => !existsSync(folder));
  });

  test('a notification runs the turn and gets no answer', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha] });
    const client = await openClient(t, url);
    client.socket.send(JSON.stringify({ jsonrpc: '2.0', method: 'session.start', params: start('s') }));
    await client.seen(({ event }) => event === 'completed');
    assert.equal(
      client.messages.every(({ params }) => params !== undefined),
      true,
    );
  });
});

describe('one turn at a time', () => {
  test('B-52: of two starts with the same id at the same time one wins and the other is SESSION_BUSY', async (t) => {
    const alpha = createScriptedProvider('alpha', endless);
    const { url } = await startBridge(t, { providers: [alpha] });
    const client = await openClient(t, url);
    const both = [client.call('session.start', start('s')), client.call('session.start', start('s'))];
    const first = await Promise.race(both);
    assert.equal(first.error?.code, -32020);
    assert.equal(first.error?.data.code, 'SESSION_BUSY');
    await client.call('session.cancel', { sessionId: 's' });
    const outcomes = await Promise.all(both);
    assert.deepEqual(outcomes.map((one) => one.result?.status ?? one.error?.data.code).sort(), [
      'SESSION_BUSY',
      'cancelled',
    ]);
    // A turn that is cancelled before its agent was asked does not ask it.
    assert.ok(alpha.mostRunning() <= 1);
    assert.ok(alpha.asked.length <= 1);
  });

  test('messages wait in order for the turn before them, 32 at most', async (t) => {
    const order: string[] = [];
    const alpha = createScriptedProvider('alpha', async ({ prompt, report }) => {
      order.push(prompt);
      report({ kind: 'text', text: prompt });
      await new Promise((resolve) => setTimeout(resolve, prompt === 'first' ? 50 : 0));
      return { kind: 'completed', output: prompt, stopReason: 'end_turn' };
    });
    const { url } = await startBridge(t, { providers: [alpha] });
    const client = await openClient(t, url);
    const prompts = Array.from({ length: 34 }, (_, index) => (index === 0 ? 'first' : `message ${index}`));
    const outcomes = await Promise.all(
      prompts.map((taskPrompt, index) =>
        client.call(index === 0 ? 'session.start' : 'session.message', { sessionId: 's', taskPrompt }),
      ),
    );
    assert.deepEqual(order, prompts.slice(0, 33));
    assert.equal(outcomes[33]?.error?.data.code, 'SESSION_BUSY');
    assert.equal(alpha.mostRunning(), 1);
    assert.deepEqual(
      client.updates.map(({ seq }) => seq),
      client.updates.map((_, index) => index + 1),
    );
    assert.equal(client.updates.filter(({ event }) => event === 'queued').length, 32);
    const stages = client.updates.filter(({ type }) => type === 'status');
    const ofLast = stages.filter(({ turnId }) => turnId === outcomes[32]?.result?.turnId);
    assert.deepEqual(
      ofLast.map(({ event }) => event),
      ['queued', 'started', 'running', 'completed'],
    );
  });

  test('a start on an idle session starts it afresh, with the numbers going on', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha] });
    const first = await stream(url, { method: 'session.start', params: start('s') });
    const second = await stream(url, { method: 'session.start', params: start('s') });
    assert.equal(second.updates[0]?.seq, (first.updates.at(-1)?.seq ?? 0) + 1);
    assert.deepEqual(alpha.closed, ['alpha-conversation-1']);
  });

  test('B-03: a cancel on the same socket does not wait behind the turn it cancels', async (t) => {
    const alpha = createScriptedProvider('alpha', endless);
    const { url } = await startBridge(t, { providers: [alpha] });
    const client = await openClient(t, url);
    const turn = client.call('session.start', start('s'));
    await client.seen(({ type }) => type === 'delta');
    assert.deepEqual((await client.call('session.cancel', { sessionId: 's' })).result, { accepted: true });
    assert.equal((await turn).result?.code, 'TURN_CANCELLED');
  });
});

test('DB-25: a large result is the same over every transport, in a batch, and when the call is repeated', async (t) => {
  const output = 'zwölf "Zeilen" 🙂\n'.repeat(6000);
  const script: TurnScript = async () => ({ kind: 'completed', output, stopReason: 'end_turn' });
  const { url } = await startBridge(t, { providers: [createScriptedProvider('first', script)] });
  const client = await openClient(t, url);
  const message = (sessionId: string) => ({ id: 'a "name"', method: 'session.start', params: start(sessionId) });
  const key = { 'idempotency-key': 'k' };
  const inBatch = await postRpc(url, [{ jsonrpc: '2.0', ...message('batch') }]);
  const answers = [
    await call(url, 'session.start', start('http')),
    (await stream(url, message('events'), key)).final,
    (await stream(url, message('events'), key)).final,
    await client.call('session.start', start('socket')),
    ...(JSON.parse(inBatch.text) as Envelope[]),
  ];
  for (const { id, ok, result, payload } of answers) {
    assert.ok(ok && (id === 1 || id === 'a "name"'));
    assert.deepEqual([result?.status, result?.output, result?.message], ['completed', output, output]);
    assert.deepEqual(payload, result);
  }
  assert.equal((await client.call('session.close', { sessionId: 'socket' })).ok, true);
});

test('DU-13: a misspelt member of params is named in the result, and refused where the caller is strict', async (t) => {
  const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
  const misspelt = start('s', { workingDir: '/tmp', routing: { explicitProvider: 'alpha' } });
  const { result } = await call(url, 'session.start', misspelt);
  assert.equal(result?.status, 'completed');
  assert.deepEqual(
    ((result?.warnings ?? []) as { path: string }[]).map(({ path }) => path),
    ['/workingDir', '/routing/explicitProvider'],
  );
  const { error } = await call(url, 'session.start', misspelt, { 'x-strict-params': 'true' });
  assert.deepEqual([error?.code, error?.data.code], [-32602, 'INVALID_PARAMS']);
  assert.match(error?.message ?? '', /workingDir is not known here/);
  // What the known client sends although the bridge has no use for it.
  const known = start('s', { mode: 'gateway-chat', routing: { preferredGatewayProviderId: 'gateway' } });
  assert.equal('warnings' in ((await call(url, 'session.start', known)).result ?? {}), false);
  const ignored = { clientId: 'c', locale: 'de', userAgent: 'u', deviceInfo: {}, packageInfo: {}, auth: {} };
  assert.equal('warnings' in ((await call(url, 'app.gateway.connect', ignored)).result ?? {}), false);
});

test('DP-5: every update fits the schema of the contract, and has no member that the schema does not name', async (t) => {
  const fits = Compile(SessionUpdate);
  const findUnknown = createUnknownMemberSearch(SessionUpdate);
  const toolCall = { kind: 'tool_call', toolCallId: 't', title: 'read', toolKind: 'read' } as const;
  const events: AgentEvent[] = [
    { kind: 'thinking', text: 'hm' },
    { ...toolCall, status: 'pending', input: { path: 'a' }, locations: [{ path: '/a', line: 3 }] },
    { ...toolCall, status: 'completed', output: ['b'] },
    { kind: 'status', text: 'plan' },
    { kind: 'permission', title: 'touch', decision: 'allowed', toolCallId: 't' },
    { kind: 'text', text: 'done' },
  ];
  const alpha = createScriptedProvider(
    'alpha',
    telling(events, { kind: 'completed', output: 'done', stopReason: 'end_turn' }),
  );
  const beta = createScriptedProvider(
    'beta',
    telling([], { kind: 'failed', code: 'AGENT_FAILED', error: 'no', output: 'x' }),
  );
  const { url } = await startBridge(t, { providers: [alpha, beta] });
  const steps = [{ providerId: 'alpha' }, { providerId: 'beta' }];
  const calls = [
    start('a'),
    start('b', { routing: { explicitProviderId: 'beta' } }),
    start('c', { multiAgent: true, routing: { orchestrationMode: 'parallel', steps } }),
    start('d', {
      multiAgent: true,
      routing: { orchestrationMode: 'conversation', participants: ['alpha'], maxTurns: 2 },
    }),
  ];
  const seen = new Set<string>();
  for (const params of calls) {
    for (const update of (await stream(url, { method: 'session.start', params })).updates) {
      assert.ok(fits.Check(update), JSON.stringify(update));
      assert.equal(findUnknown(update), undefined, JSON.stringify(update));
      seen.add(update.event);
    }
  }
  assert.deepEqual([...seen].sort(), [
    'completed',
    'delta',
    'failed',
    'multi_agent_completed',
    'multi_agent_started',
    'multi_agent_step_completed',
    'multi_agent_step_started',
    'running',
    'started',
    'status',
    'thinking',
    'tool_call',
  ]);
});
