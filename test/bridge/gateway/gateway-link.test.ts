import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { createGatewayLink, type GatewayLink } from '../../../src/bridge/gateway/gateway-link.ts';
import { loadDeviceKey } from '../../../src/bridge/gateway/gateway-messages.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { startScriptedGateway } from '../../kit/scripted-gateway.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';

const TOKEN = 'gateway-token-1';

async function createLink(context: TestContext, url: string, token = TOKEN): Promise<GatewayLink> {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-link-'));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const link = createGatewayLink({
    url,
    token,
    version: '0',
    clock: systemClock,
    randomness: systemRandomness,
    logger: silentLogger,
    onChange: () => undefined,
    loadDeviceKey: () => loadDeviceKey(join(folder, 'key.pem'), systemRandomness),
    limits: { firstPauseMs: 5, longestPauseMs: 20, handshakeMs: 2000 },
  });
  context.after(link.stop);
  return link;
}

test('a lost connection is made again, and one that nobody wants is not', async (context) => {
  const gateway = await startScriptedGateway(context);
  const link = await createLink(context, gateway.url);
  await link.connect();
  gateway.drop();
  await until(
    'the second connection',
    async () => gateway.connects.length === 2 && (await link.snapshot()).status === 'connected',
  );
  link.disconnect();
  await until('every socket to be closed', () => gateway.sockets() === 0);
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(gateway.connects.length, 2);
  assert.equal((await link.snapshot()).status, 'offline');
});

test('DB-25: large requests at the same time wait for each other instead of being refused', async (context) => {
  const gateway = await startScriptedGateway(context, { answer: () => ({}) });
  const link = await createLink(context, gateway.url);
  await link.connect();
  const large = { text: 'x'.repeat(5 * 1024 * 1024) };
  const answers = await Promise.allSettled(Array.from({ length: 6 }, () => link.request('echo', large, 30_000)));
  assert.deepEqual(
    answers.map(({ status }) => status),
    Array(6).fill('fulfilled'),
  );
});

test('a gateway that comes back later is found again', async (context) => {
  const first = await startScriptedGateway(context);
  const link = await createLink(context, first.url);
  await link.connect();
  await first.stop();
  await until('the link to fail', async () => (await link.snapshot()).status === 'error');
  const second = await startScriptedGateway(context, {}, Number(new URL(first.url).port));
  await until('the link to be there', async () => (await link.snapshot()).status === 'connected');
  assert.equal(second.connects.length, 1);
});

test('a refusal ends all attempts until somebody asks again, or the token is another', async (context) => {
  const gateway = await startScriptedGateway(context);
  const link = await createLink(context, gateway.url, 'wrong-token');
  await assert.rejects(link.connect());
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(gateway.connects.length, 1);
  assert.equal((await link.probe(AbortSignal.timeout(1000))).status, 'failed: AUTH_TOKEN_MISMATCH');
  assert.equal(gateway.connects.length, 1);
  link.setToken(TOKEN);
  assert.deepEqual(await link.probe(AbortSignal.timeout(1000)), { status: 'ok', version: '2026.9.6' });
});

test('disconnect waits for who still listens', async (context) => {
  const gateway = await startScriptedGateway(context);
  const link = await createLink(context, gateway.url);
  await link.connect();
  const stopListening = link.listen(() => undefined);
  link.disconnect();
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(gateway.sockets(), 1);
  stopListening();
  await until('every socket to be closed', () => gateway.sockets() === 0);
});

test('a gateway without heartbeats is disconnected', async (context) => {
  const gateway = await startScriptedGateway(context, { tickMs: 1000 });
  const link = await createLink(context, gateway.url);
  await link.connect();
  await until('the second connection', () => gateway.connects.length === 2);
});

test('many callers at the same time share one connection', async (context) => {
  const gateway = await startScriptedGateway(context, { answer: () => ({}) });
  const link = await createLink(context, gateway.url);
  await Promise.all(Array.from({ length: 50 }, () => link.request('health', {}, 1000)));
  assert.equal(gateway.connects.length, 1);
});

test('more requests than may be open are refused', async (context) => {
  const gateway = await startScriptedGateway(context, { onChat: () => {} });
  const link = await createLink(context, gateway.url);
  await link.request('chat.send', { sessionKey: 's', message: 'm', idempotencyKey: 'k' }, 1000);
  const waits = Array.from({ length: 257 }, () => link.request('agent.wait', { runId: 'k' }, 5000));
  const settled = Promise.allSettled(waits);
  await assert.rejects(waits[256] as Promise<unknown>, {
    details: { gatewayCode: 'OVERLOADED', reason: 'too many requests to the gateway are under way' },
  });
  gateway.drop();
  await settled;
});

test('disconnect also ends a connection that is being made', async (context) => {
  const gateway = await startScriptedGateway(context);
  const link = await createLink(context, gateway.url);
  const connecting = link.connect();
  link.disconnect();
  await connecting;
  await until('every socket to be closed', () => gateway.sockets() === 0);
  assert.equal((await link.snapshot()).status, 'offline');
  assert.equal(gateway.connects.length, 1);
});
