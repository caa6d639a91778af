import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { call, openClient, stream } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { freePort } from '../../kit/free-port.ts';
import { type ScriptedGatewayOptions, type ScriptedRun, startScriptedGateway } from '../../kit/scripted-gateway.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const ROUTING = { explicitExecutionTarget: 'gateway', preferredGatewayProviderId: 'openclaw' };
const task = (sessionId: string, taskPrompt: string) => ({ sessionId, taskPrompt, routing: ROUTING });

async function startBoth(context: TestContext, options: ScriptedGatewayOptions = {}) {
  const gateway = await startScriptedGateway(context, options);
  const settings = `gateway: { url: "${gateway.url}", token: gateway-token-1 }\n`;
  const provider = createScriptedProvider('first');
  const bridge = await startBridge(context, { providers: [provider], settings });
  return { gateway, bridge, provider };
}

test('a gateway task streams what happens there and ends with the answer', async (context) => {
  const { gateway, bridge } = await startBoth(context, {
    onChat(run) {
      run.tell('run_status', { phase: 'starting_model' });
      run.tell('thinking', { delta: 'hm' });
      run.tell('tool', { phase: 'start', toolCallId: 't1', name: 'exec', args: { command: 'ls' } });
      run.tell('tool', { phase: 'result', toolCallId: 't1', name: 'exec', result: 'a file', isError: false });
      run.tell('assistant', { delta: 'Hello ', text: 'Hello ' });
      run.tell('assistant', { delta: 'there', text: 'Hello there' });
      run.tell('usage', { outputTokens: 7 });
      run.finish('Hello there');
    },
  });
  const { final, updates } = await stream(bridge.url, { method: 'session.start', params: task('s1', 'hello') });
  const { result } = final;
  assert.equal(result?.success, true);
  assert.equal(result?.status, 'completed');
  assert.equal(result?.output, 'Hello there');
  assert.equal(result?.mode, 'gateway-chat');
  assert.equal(result?.resolvedExecutionTarget, 'gateway');
  assert.equal(result?.resolvedGatewayProviderId, 'openclaw');
  assert.equal(result?.resolvedProviderId, '');
  assert.deepEqual(result?.usage, { outputTokens: 7 });
  assert.deepEqual(result?.artifacts, []);
  const kinds = updates.flatMap(({ structuredEvent }) => (structuredEvent === undefined ? [] : [structuredEvent.kind]));
  assert.deepEqual(kinds, ['status', 'thinking', 'tool_call', 'tool_call', 'text', 'text']);
  assert.equal(updates.map(({ text }) => text ?? '').join(''), 'Hello there');
  const [done] = updates.filter(({ structuredEvent }) => structuredEvent?.status === 'completed');
  assert.equal(done?.structuredEvent?.toolKind, 'execute');
  assert.equal(done?.structuredEvent?.output, 'a file');
  const sent = gateway.requests.find(({ method }) => method === 'chat.send');
  assert.equal(sent?.params.idempotencyKey, result?.turnId);
  assert.equal(sent?.params.message, 'hello');
});

test('an answer of which no event told is streamed as a whole', async (context) => {
  const { bridge } = await startBoth(context);
  const { final, updates } = await stream(bridge.url, { method: 'session.start', params: task('s1', 'hello') });
  assert.equal(final.result?.output, 'echo: hello');
  assert.equal(updates.map(({ text }) => text ?? '').join(''), 'echo: hello');
});

test('a gateway session goes on there, with and without a word about the gateway, and nowhere else', async (context) => {
  const { gateway, bridge, provider } = await startBoth(context);
  await call(bridge.url, 'session.start', task('s1', 'one'));
  const second = await call(bridge.url, 'session.message', task('s1', 'two'));
  const third = await call(bridge.url, 'session.message', { sessionId: 's1', taskPrompt: 'three' });
  assert.equal(second.result?.output, 'echo: two');
  assert.equal(third.result?.output, 'echo: three');
  assert.equal(third.result?.resolvedGatewayProviderId, 'openclaw');
  const sent = gateway.requests.filter(({ method }) => method === 'chat.send');
  assert.equal(new Set(sent.map(({ params }) => params.sessionKey)).size, 1);
  const toAgent = { sessionId: 's1', taskPrompt: 'four', routing: { explicitProviderId: 'first' } };
  assert.equal((await call(bridge.url, 'session.message', toAgent)).error?.code, -32002);
  assert.deepEqual(provider.asked, []);
});

test('a session that the gateway has lost is a continuation error, and nothing is begun', async (context) => {
  const { gateway, bridge } = await startBoth(context);
  await call(bridge.url, 'session.start', task('s1', 'one'));
  gateway.forgetSessions();
  const { error } = await call(bridge.url, 'session.message', task('s1', 'two'));
  assert.equal(error?.code, -32002);
  assert.deepEqual(error?.data, {
    code: 'SESSION_CONTINUATION_UNAVAILABLE',
    sessionId: 's1',
    threadId: 's1',
    providerId: 'openclaw',
  });
  assert.equal(gateway.begun.length, 1);
});

test('events of one session reach only the clients of that session', async (context) => {
  const runs: ScriptedRun[] = [];
  const { bridge } = await startBoth(context, { onChat: (run) => runs.push(run) });
  const one = await openClient(context, bridge.url);
  const two = await openClient(context, bridge.url);
  const answers = [one.call('session.start', task('a', 'first')), two.call('session.start', task('b', 'second'))];
  await until('both runs', () => runs.length === 2);
  for (const run of runs) run.tell('assistant', { delta: `for ${run.message}` });
  // One of nobody, and one that only pretends to belong to a session.
  runs[0]?.event('agent', { runId: 'foreign', stream: 'assistant', data: { delta: 'foreign' } });
  runs[0]?.event('agent', { stream: 'assistant', data: { delta: 'nobody' }, sessionKey: runs[1]?.sessionKey });
  for (const run of runs) run.finish(`for ${run.message}`);
  const [first, second] = await Promise.all(answers);
  assert.equal(first?.result?.output, 'for first');
  assert.equal(second?.result?.output, 'for second');
  assert.deepEqual(new Set(one.updates.map(({ sessionId }) => sessionId)), new Set(['a']));
  assert.deepEqual(new Set(two.updates.map(({ sessionId }) => sessionId)), new Set(['b']));
  assert.equal(one.updates.map(({ text }) => text ?? '').join(''), 'for first');
});

test('session.cancel aborts the run at the gateway', async (context) => {
  const { gateway, bridge } = await startBoth(context, {
    onChat: (run) => run.tell('assistant', { delta: 'working' }),
  });
  const client = await openClient(context, bridge.url);
  const started = client.call('session.start', task('s1', 'endless'));
  await client.seen(({ text }) => text === 'working');
  await client.call('session.cancel', { sessionId: 's1' });
  const { result } = await started;
  assert.equal(result?.status, 'cancelled');
  assert.equal(result?.code, 'TURN_CANCELLED');
  const aborted = gateway.requests.find(({ method }) => method === 'chat.abort');
  assert.equal(aborted?.params.runId, result?.turnId);
});

test('a socket that is lost once is made up for, with the same key and without a second run', async (context) => {
  let lose = (): void => undefined;
  const { gateway, bridge } = await startBoth(context, {
    onChat(run) {
      run.tell('assistant', { delta: 'half ' });
      lose();
      setTimeout(() => run.finish('half and half'), 300);
    },
  });
  lose = gateway.drop;
  const { result } = await call(bridge.url, 'session.start', task('s1', 'hello'));
  assert.equal(result?.status, 'completed');
  assert.equal(result?.output, 'half and half');
  const keys = gateway.requests.flatMap(({ method, params }) =>
    method === 'chat.send' ? [params.idempotencyKey] : [],
  );
  assert.deepEqual(keys, [result?.turnId, result?.turnId]);
  assert.deepEqual(gateway.begun, [result?.turnId]);
});

test('a socket that is lost again is -32010 GATEWAY_FAILED', async (context) => {
  const { gateway, bridge } = await startBoth(context, { onChat: () => {} });
  const answer = call(bridge.url, 'session.start', task('s1', 'hello'));
  const waits = () => gateway.requests.filter(({ method }) => method === 'agent.wait').length;
  await until('the first wait', () => waits() === 1);
  gateway.drop();
  await until('the second wait', () => waits() === 2);
  gateway.drop();
  const { error } = await answer;
  assert.equal(error?.code, -32010);
  assert.equal(error?.data.code, 'GATEWAY_FAILED');
  assert.equal(error?.data.gatewayCode, 'SOCKET_CLOSED');
});

test('a task that fails at the gateway is a failed result', async (context) => {
  const { bridge } = await startBoth(context, { onChat: (run) => run.fail('the model is out') });
  const { result } = await call(bridge.url, 'session.start', task('s1', 'hello'));
  assert.equal(result?.success, false);
  assert.equal(result?.status, 'failed');
  assert.equal(result?.code, 'AGENT_FAILED');
  assert.equal(result?.error, 'the model is out');
});

test('a gateway that went away is an unavailable result, and so is one that is not known', async (context) => {
  const { gateway, bridge } = await startBoth(context);
  await gateway.stop();
  const gone = (await call(bridge.url, 'session.start', task('s1', 'hello'))).result;
  assert.equal(gone?.status, 'unavailable');
  assert.equal(gone?.unavailableCode, 'GATEWAY_UNAVAILABLE');
  assert.equal(gone?.resolvedGatewayProviderId, '');
  const other = { explicitExecutionTarget: 'gateway', preferredGatewayProviderId: 'other' };
  const unknown = await call(bridge.url, 'session.start', { sessionId: 's2', taskPrompt: 'hello', routing: other });
  assert.equal(unknown.result?.unavailableCode, 'GATEWAY_UNAVAILABLE');
  const unnamed = { sessionId: 's3', taskPrompt: 'hello', routing: { explicitExecutionTarget: 'gateway' } };
  assert.equal((await call(bridge.url, 'session.start', unnamed)).error?.data.code, 'GATEWAY_PROVIDER_REQUIRED');
});

test('a gateway that comes up later serves tasks as soon as the bridge is connected to it', async (context) => {
  const port = await freePort();
  const settings = `gateway: { url: "ws://127.0.0.1:${port}", token: gateway-token-1 }\n`;
  const bridge = await startBridge(context, { providers: [createScriptedProvider('first')], settings });
  const before = await call(bridge.url, 'session.start', task('s1', 'hello'));
  assert.equal(before.result?.unavailableCode, 'GATEWAY_UNAVAILABLE');
  await startScriptedGateway(context, {}, port);
  await call(bridge.url, 'app.gateway.connect', {});
  const later = await call(bridge.url, 'session.start', task('s1', 'hello'));
  assert.equal(later.result?.output, 'echo: hello');
});

test('a forced model is set at the gateway before the message, and its refusal fails the task', async (context) => {
  const { gateway, bridge } = await startBoth(context, {
    answer: (method, params) =>
      method === 'sessions.patch' && params.model === 'good' ? {} : new Error('no such model'),
  });
  const withModel = (sessionId: string, explicitModel: string) => ({
    ...task(sessionId, 'hello'),
    routing: { ...ROUTING, explicitModel },
  });
  const good = await call(bridge.url, 'session.start', withModel('s1', 'good'));
  assert.equal(good.result?.resolvedModel, 'good');
  assert.deepEqual(
    gateway.requests.slice(0, 2).map(({ method }) => method),
    ['sessions.patch', 'chat.send'],
  );
  const bad = await call(bridge.url, 'session.start', withModel('s2', 'bad'));
  assert.equal(bad.error?.code, -32010);
  assert.equal(gateway.begun.length, 1);
});

test('session.close puts the session at the gateway away', async (context) => {
  const { gateway, bridge } = await startBoth(context, { answer: () => ({}) });
  await call(bridge.url, 'session.start', task('s1', 'hello'));
  await call(bridge.url, 'session.close', { sessionId: 's1' });
  await until('the session to be archived', () =>
    gateway.requests.some(({ method, params }) => method === 'sessions.patch' && params.archived === true),
  );
});

test('B-51: a gateway task that is a multi-agent run is refused, and nothing is begun', async (context) => {
  const { gateway, bridge } = await startBoth(context);
  const { error } = await call(bridge.url, 'session.start', { ...task('s1', 'hello'), multiAgent: true });
  assert.equal(error?.code, -32602);
  assert.equal(error?.data.code, 'GATEWAY_MULTI_AGENT_CONFLICT');
  assert.deepEqual(gateway.begun, []);
});

test('files that the gateway delivers come as artifacts with a link', async (context) => {
  const { gateway, bridge } = await startBoth(context, {
    answer(method, params) {
      if (method === 'artifacts.list')
        return { artifacts: [{ id: 'a1', title: '../picture.png', mimeType: 'image/png' }] };
      if (method === 'artifacts.download' && params.artifactId === 'a1') {
        return { artifact: {}, encoding: 'base64', data: Buffer.from('pixels').toString('base64') };
      }
      return new Error('no');
    },
  });
  const { result } = await call(bridge.url, 'session.start', task('s1', 'draw'));
  const [artifact] = (result?.artifacts ?? []) as { relativePath: string; downloadUrl: string; contentType: string }[];
  assert.equal(artifact?.relativePath, 'picture.png');
  assert.equal(artifact?.contentType, 'image/png');
  const response = await fetch(`${bridge.url}${artifact?.downloadUrl}`);
  assert.equal(await response.text(), 'pixels');
  const listed = gateway.requests.find(({ method }) => method === 'artifacts.list');
  assert.equal(listed?.params.runId, result?.turnId);
});

test('DB-27: the run that the gateway names itself is followed, waited for and cancelled by that name', async (context) => {
  const { gateway, bridge } = await startBoth(context, {
    nameRun: (key) => `run-of-${key}`,
    onChat(run) {
      // Before the answer that tells the name.
      run.tell('assistant', { delta: 'Hello', text: 'Hello' });
      if (run.message === 'hello') run.finish('Hello');
    },
  });
  const { final, updates } = await stream(bridge.url, { method: 'session.start', params: task('s1', 'hello') });
  assert.equal(final.result?.status, 'completed');
  assert.equal(final.result?.output, 'Hello');
  assert.equal(updates.map(({ text }) => text ?? '').join(''), 'Hello');
  const names = gateway.requests.filter(({ method }) => method === 'agent.wait').map(({ params }) => params.runId);
  assert.match(String(names[0]), /^run-of-turn-/);
  const endless = call(bridge.url, 'session.start', task('s2', 'wait for it'));
  await until('the second run', () => gateway.requests.filter(({ method }) => method === 'agent.wait').length === 2);
  await call(bridge.url, 'session.cancel', { sessionId: 's2' });
  assert.equal((await endless).result?.status, 'cancelled');
  const aborted = gateway.requests.find(({ method }) => method === 'chat.abort');
  assert.match(String(aborted?.params.runId), /^run-of-turn-/);
});

test('a task that is cancelled before the gateway has it is not sent any more', async (context) => {
  const patched = Promise.withResolvers<object>();
  const { gateway, bridge } = await startBoth(context, {
    answer: (method) => (method === 'sessions.patch' ? patched.promise : {}),
  });
  const asked = (method: string) => gateway.requests.some((one) => one.method === method);
  const params = { ...task('s1', 'hello'), routing: { ...ROUTING, explicitModel: 'large' } };
  const running = call(bridge.url, 'session.start', params);
  await until('the model to be chosen', () => asked('sessions.patch'));
  await call(bridge.url, 'session.cancel', { sessionId: 's1' });
  await until('the task to be stopped', () => asked('chat.abort'));
  patched.resolve({});
  assert.equal((await running).result?.status, 'cancelled');
  assert.deepEqual([gateway.begun, asked('chat.send')], [[], false]);
});

test('a task that is cancelled before its name is known is stopped by its name', async (context) => {
  const answered = Promise.withResolvers<void>();
  const { gateway, bridge } = await startBoth(context, {
    onChat: () => undefined,
    nameRun: (key) => `run-of-${key}`,
    beforeSent: () => answered.promise,
  });
  const stopped = () =>
    gateway.requests.flatMap(({ method, params }) => (method === 'chat.abort' ? [params.runId] : []));
  const running = call(bridge.url, 'session.start', task('s1', 'hello'));
  await until('the task to begin', () => gateway.begun.length === 1);
  await call(bridge.url, 'session.cancel', { sessionId: 's1' });
  await until('the task to be stopped', () => stopped().length === 1);
  answered.resolve();
  assert.equal((await running).result?.status, 'cancelled');
  assert.equal(stopped().at(-1), gateway.begun[0]);
});
