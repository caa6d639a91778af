import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bearer, call, openClient, type SessionSocket } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const start = (sessionId: string, more = {}) => ({ sessionId, taskPrompt: 'hello there', ...more });
const early = { query: 'sessionId=s&afterSeq=0' };

async function eventsUntilEnd(client: SessionSocket): Promise<readonly [number, string][]> {
  await until('the end of the turn', () => client.updates.some(({ event }) => event === 'completed'));
  return client.updates.map(({ seq, event }) => [seq, event]);
}

const WHOLE_TURN = [
  [1, 'started'],
  [2, 'running'],
  [3, 'delta'],
  [4, 'delta'],
  [5, 'completed'],
];

test('who follows a session before it starts gets every update of it, from the first on', async (t) => {
  const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
  const follower = await openClient(t, url, early);
  await follower.call('acp.capabilities', {});
  await call(url, 'session.start', start('another'));
  await call(url, 'session.start', start('s'));
  assert.deepEqual(await eventsUntilEnd(follower), WHOLE_TURN);
  assert.deepEqual([...new Set(follower.updates.map(({ sessionId }) => sessionId))], ['s']);
});

test('a start that was refused, and a close, do not make an early follower deaf', async (t) => {
  const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
  const follower = await openClient(t, url, early);
  await follower.call('acp.capabilities', {});
  const refused = await call(url, 'session.start', start('s', { routing: { explicitProviderId: 'nobody' } }));
  assert.equal(refused.result?.status, 'unavailable');
  const before = follower.updates.length;
  await call(url, 'session.start', start('s'));
  await until('the end of the first turn', () => follower.updates.at(-1)?.event === 'completed');
  const first = follower.updates.length;
  assert.ok(first > before);
  await call(url, 'session.close', { sessionId: 's' });
  await call(url, 'session.start', start('s'));
  await until('the end of the second turn', () => follower.updates.length >= first + 5);
  const numbers = follower.updates.map(({ seq }) => seq);
  assert.deepEqual(
    numbers,
    [...new Set(numbers)].sort((a, b) => a - b),
  );
});

test('whether a follower or its session comes first, each update reaches it once', async (t) => {
  const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
  const names = Array.from({ length: 20 }, (_, index) => `s${index}`);
  const followers = await Promise.all(
    names.map(async (name) => {
      const opening = openClient(t, url, { query: `sessionId=${name}&afterSeq=0` });
      await call(url, 'session.start', start(name));
      return opening;
    }),
  );
  for (const follower of followers) assert.deepEqual(await eventsUntilEnd(follower), WHOLE_TURN);
});

test('nobody follows what somebody else starts, except main', async (t) => {
  const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')], isGuarded: true });
  const stranger = await openClient(t, url, { ...early, headers: bearer(REVIEW_TOKEN) });
  const main = await openClient(t, url, { ...early, headers: bearer(MAIN_TOKEN) });
  for (const client of [stranger, main]) await client.call('acp.capabilities', {});
  await call(url, 'session.start', start('s'), bearer(MAIN_TOKEN));
  assert.deepEqual(await eventsUntilEnd(main), WHOLE_TURN);
  await stranger.call('acp.capabilities', {});
  assert.equal(stranger.updates.length, 0);
});
