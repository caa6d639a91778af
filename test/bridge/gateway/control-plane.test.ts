import assert from 'node:assert/strict';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { call } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { SILENCE, startScriptedGateway } from '../../kit/scripted-gateway.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const TOKEN = 'gateway-token-1';

async function startBoth(
  context: TestContext,
  options: Parameters<typeof startScriptedGateway>[1] = {},
  token = TOKEN,
) {
  const gateway = await startScriptedGateway(context, options);
  const settings = `gateway: { url: "${gateway.url}", token: ${token} }\n`;
  const bridge = await startBridge(context, { providers: [createScriptedProvider('first')], settings });
  return { gateway, bridge };
}

type Result = Record<string, unknown> | undefined;
const codeOf = (result: Result) => (result?.error as { readonly code: string } | undefined)?.code;
const snapshotOf = (result: Result) => (result?.snapshot ?? {}) as { readonly status?: string; readonly mode?: string };

test('connect answers with the snapshot, keeps the device key to its owner, and shows no token', async (context) => {
  const { gateway, bridge } = await startBoth(context);
  const { result } = await call(bridge.url, 'app.gateway.connect', {
    runtimeId: 'r1',
    endpoint: 'ws://127.0.0.1:1',
    auth: { token: 'of-the-caller' },
    deviceInfo: { id: 'of-the-caller' },
  });
  const snapshot = result?.snapshot as Record<string, unknown>;
  const device = gateway.connects.at(-1)?.device as Record<string, string>;
  assert.equal(result?.ok, true);
  assert.equal(result?.error, null);
  assert.equal(result?.returnedDeviceToken, '');
  assert.deepEqual(result?.auth, { role: 'operator', scopes: ['operator.read', 'operator.write'] });
  assert.deepEqual(
    { ...snapshot, lastConnectedAtMs: 0 },
    {
      status: 'connected',
      mode: 'local',
      statusText: 'Connected.',
      serverName: 'scripted',
      remoteAddress: gateway.url.slice(5),
      mainSessionKey: 'agent:main:main',
      lastError: '',
      lastErrorCode: '',
      lastConnectedAtMs: 0,
      deviceId: device.id,
      authRole: 'operator',
      authScopes: ['operator.read', 'operator.write'],
      connectAuthMode: 'shared-token',
      hasSharedAuth: true,
      hasDeviceToken: true,
    },
  );
  assert.deepEqual(gateway.connects.at(-1)?.auth, { token: TOKEN });
  assert.doesNotMatch(JSON.stringify(result), /never-shown|gateway-token|of-the-caller/);
  assert.equal((await stat(join(bridge.folder, 'gateway-device.pem'))).mode & 0o777, 0o600);
});

test('disconnect is accepted with and without a connection, and a request connects again by itself', async (context) => {
  const { gateway, bridge } = await startBoth(context, { answer: (method) => ({ method }) });
  assert.deepEqual((await call(bridge.url, 'app.gateway.disconnect', {})).result, { accepted: true });
  await call(bridge.url, 'app.gateway.connect', {});
  assert.deepEqual((await call(bridge.url, 'app.gateway.disconnect', {})).result, { accepted: true });
  assert.deepEqual((await call(bridge.url, 'app.gateway.disconnect', {})).result, { accepted: true });
  const { result } = await call(bridge.url, 'app.gateway.request', { method: 'health', params: { a: 1 } });
  assert.deepEqual(result, { ok: true, payload: { method: 'health' }, error: null });
  assert.deepEqual(gateway.requests.at(-1), { method: 'health', params: { a: 1 } });
});

test('a request tells the code of the gateway, a timeout, and that a connection was lost', async (context) => {
  const { gateway, bridge } = await startBoth(context, {
    answer: (method) => (method === 'refuse' ? new Error('not like that') : SILENCE),
  });
  const ask = async (method: string, timeoutMs?: number) =>
    (await call(bridge.url, 'app.gateway.request', { method, ...(timeoutMs !== undefined && { timeoutMs }) })).result;
  assert.deepEqual(await ask('refuse'), {
    ok: false,
    payload: null,
    error: { code: 'INVALID_REQUEST', message: 'not like that' },
  });
  assert.equal(codeOf(await ask('silence', 50)), 'RPC_TIMEOUT');
  const open = ask('silence');
  await until('the third request', () => gateway.requests.length >= 3);
  gateway.drop();
  assert.equal(codeOf(await open), 'SOCKET_CLOSED');
});

test('the first of two answers to one call counts, and the second disturbs nothing', async (context) => {
  const { bridge } = await startBoth(context, { answer: (method) => ({ status: 'accepted', method }) });
  const first = await call(bridge.url, 'app.gateway.request', { method: 'agent', params: {} });
  assert.deepEqual(first.result?.payload, { status: 'accepted', method: 'agent' });
  const second = await call(bridge.url, 'app.gateway.request', { method: 'health' });
  assert.deepEqual(second.result?.payload, { status: 'accepted', method: 'health' });
});

test('without a gateway, connect and request say OFFLINE', async (context) => {
  const bridge = await startBridge(context, { providers: [createScriptedProvider('first')] });
  const connected = (await call(bridge.url, 'app.gateway.connect', {})).result;
  assert.equal(connected?.ok, false);
  assert.equal(codeOf(connected), 'OFFLINE');
  assert.equal(snapshotOf(connected).mode, 'unconfigured');
  const asked = (await call(bridge.url, 'app.gateway.request', { method: 'health' })).result;
  assert.equal(codeOf(asked), 'OFFLINE');
});

test('a wrong token is reported, shown by the probe, and not tried again by itself', async (context) => {
  const { gateway, bridge } = await startBoth(context, {}, 'wrong-token-123');
  const capabilities = (await call(bridge.url, 'acp.capabilities', {})).result;
  const [entry] = (capabilities?.gatewayProviders ?? []) as { unavailableReason: string }[];
  assert.equal(entry?.unavailableReason, 'failed: AUTH_TOKEN_MISMATCH');
  const { result } = await call(bridge.url, 'app.gateway.connect', {});
  assert.equal(result?.ok, false);
  assert.equal(codeOf(result), 'AUTH_TOKEN_MISMATCH');
  assert.equal(snapshotOf(result).status, 'error');
  const tried = gateway.connects.length;
  await new Promise((resolve) => setTimeout(resolve, 1200));
  assert.equal(gateway.connects.length, tried);
  assert.doesNotMatch(JSON.stringify(result), /wrong-token/);
});

test('the probe of a gateway is a whole handshake, and tells its version', async (context) => {
  const { bridge } = await startBoth(context);
  const capabilities = (await call(bridge.url, 'acp.capabilities', {})).result;
  const [entry] = (capabilities?.gatewayProviders ?? []) as { enabled: boolean; version: string }[];
  assert.equal(entry?.enabled, true);
  assert.equal(entry?.version, '2026.9.6');
});

test('a gateway of another protocol is refused', async (context) => {
  const { bridge } = await startBoth(context, { protocol: 5 });
  const { result } = await call(bridge.url, 'app.gateway.connect', {});
  assert.equal(codeOf(result), 'PROTOCOL_MISMATCH');
});

test('an unknown gateway id is -32602', async (context) => {
  const { bridge } = await startBoth(context);
  const { error } = await call(bridge.url, 'app.gateway.connect', { gatewayProviderId: 'other' });
  assert.equal(error?.code, -32602);
});
