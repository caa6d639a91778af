import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { call, openClient, stream } from '../kit/bridge/session-client.ts';
import { type BridgeUnderTest, startBridge } from '../kit/bridge/start-bridge.ts';
import { type ModelReply, type ModelRequest, startScriptedModel } from '../kit/scripted-model.ts';
import { createScriptedProvider } from '../kit/scripted-provider.ts';
import { type RealGateway, startRealGateway } from './real-gateway.ts';

const endings: (() => unknown)[] = [];
const scope = { after: (end: () => unknown) => void endings.push(end) };
let gateway: RealGateway;
let bridge: BridgeUnderTest;

/** The gateway adds texts of its own after what the user said, and after what tools answered. */
let hasWritten = false;

function reply({ userTexts }: ModelRequest): ModelReply {
  const asked = userTexts.slice(-2).join('\n');
  if (asked.includes('endless')) return { text: ['working ', 'on '], endless: true };
  if (asked.includes('write') && !hasWritten) {
    hasWritten = true;
    return { toolCall: { name: 'write', arguments: { path: 'note.txt', content: 'a note' } } };
  }
  return { text: ['Hello ', 'from ', 'the model.'] };
}

before(async () => {
  const model = await startScriptedModel(reply);
  scope.after(model.stop);
  gateway = await startRealGateway(scope, model.url);
  const settings = `gateway: { url: "${gateway.url}", token: ${gateway.token} }\n`;
  bridge = await startBridge(scope, { providers: [createScriptedProvider('first')], settings });
});
after(async () => {
  for (const end of endings.reverse()) await end();
});

const ROUTING = { explicitExecutionTarget: 'gateway', preferredGatewayProviderId: 'openclaw' };
const task = (sessionId: string, taskPrompt: string) => ({ sessionId, taskPrompt, routing: ROUTING });

test('a real gateway lets the bridge in by its device key', async () => {
  const { result } = await call(bridge.url, 'app.gateway.connect', {});
  assert.equal(result?.error, null);
  const snapshot = result?.snapshot as Record<string, unknown>;
  assert.equal(snapshot.status, 'connected');
  assert.equal(snapshot.authRole, 'operator');
  assert.notEqual(snapshot.mainSessionKey, '');
});

test('a real gateway answers requests, and tells its own codes', async () => {
  const health = (await call(bridge.url, 'app.gateway.request', { method: 'health', timeoutMs: 60_000 })).result;
  assert.equal(health?.ok, true);
  const refused = (await call(bridge.url, 'app.gateway.request', { method: 'config.get' })).result;
  const unknown = (await call(bridge.url, 'app.gateway.request', { method: 'no.such.method' })).result;
  assert.equal(unknown?.ok, false);
  assert.equal(typeof refused?.ok, 'boolean');
});

test('a task at a real gateway streams its text, and goes on in the same session', async () => {
  const { final, updates } = await stream(bridge.url, {
    method: 'session.start',
    params: task('s1', 'please write a note'),
  });
  assert.equal(final.result?.status, 'completed', JSON.stringify(final));
  assert.equal(final.result?.output, 'Hello from the model.');
  assert.equal(updates.map(({ text }) => text ?? '').join(''), 'Hello from the model.');
  const kinds = new Set(updates.flatMap(({ structuredEvent }) => structuredEvent?.kind ?? []));
  assert.ok(kinds.has('status'));
  assert.ok(kinds.has('tool_call'), [...kinds].join());
  const second = await call(bridge.url, 'session.message', { sessionId: 's1', taskPrompt: 'and again' });
  assert.equal(second.result?.output, 'Hello from the model.');
});

test('session.cancel ends a task at a real gateway', async (context) => {
  const client = await openClient(context, bridge.url);
  const started = client.call('session.start', task('s2', 'endless'));
  await Promise.race([
    client.seen(({ text = '' }) => text.includes('working')),
    started.then((answer) => assert.fail(JSON.stringify(answer))),
  ]);
  const asked = Date.now();
  await client.call('session.cancel', { sessionId: 's2' });
  const { result } = await started;
  assert.equal(result?.status, 'cancelled');
  assert.ok(Date.now() - asked < 10_000);
});

test('app.tools.invoke works on the runtime and over HTTP of a real gateway', async () => {
  const { result } = await call(bridge.url, 'app.tools.invoke', { tool: 'sessions_list', args: {} });
  assert.equal(result?.ok, true);
  const { error } = await call(bridge.url, 'app.tools.invoke', { tool: 'no_such_tool' });
  assert.equal(error?.code, -32011);
  const url = `${gateway.url.replace('ws', 'http')}/tools/invoke`;
  const settings = `gateway: { tools_url: "${url}", tools_token: ${gateway.token} }\n`;
  const other = await startBridge(scope, { providers: [createScriptedProvider('first')], settings });
  const overHttp = await call(other.url, 'app.tools.invoke', { tool: 'sessions_list', args: {} });
  assert.equal(overHttp.result?.ok, true);
  const missing = await call(other.url, 'app.tools.invoke', { tool: 'no_such_tool' });
  assert.equal(missing.error?.data.status, 404);
});

test('a session that a real gateway does not know is a continuation error', async () => {
  const started = await call(bridge.url, 'session.start', task('s3', 'hello'));
  assert.equal(started.result?.status, 'completed');
  await bridge.database.write([
    bridge.database.query
      .updateTable('sessions')
      .set({ reference: 'trestle-unknown' })
      .where('session_id', '=', 's3')
      .compile(),
  ]);
  await bridge.stop();
  const settings = `gateway: { url: "${gateway.url}", token: ${gateway.token} }\n`;
  const next = await startBridge(scope, { providers: [createScriptedProvider('first')], settings, after: bridge });
  const { error } = await call(next.url, 'session.message', task('s3', 'more'));
  assert.equal(error?.code, -32002, JSON.stringify(error));
});
