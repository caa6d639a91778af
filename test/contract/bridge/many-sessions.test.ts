import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { call, openClient, stream } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { databasePlaces } from '../../kit/database-engines.ts';
import fc from '../../kit/properties.ts';
import { createScriptedProvider, endless, type TurnScript } from '../../kit/scripted-provider.ts';

const start = (sessionId: string, more = {}) => ({ sessionId, taskPrompt: 'hello there', ...more });

/** Says as many words as the prompt says, in bursts of random length. */
const inBursts: TurnScript = async ({ prompt, report }) => {
  const words = Number(prompt);
  for (let word = 0; word < words; word += 1) {
    report({ kind: 'text', text: `${word}\n` });
    if ((word * 7919 + words) % 13 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  return { kind: 'completed', output: prompt, stopReason: 'end_turn' };
};

test('200 sessions that stream at the same time lose nothing and mix nothing up', { timeout: 120_000 }, async (t) => {
  const bridge = await startBridge(t, { providers: [createScriptedProvider('alpha', inBursts)] });
  const clients = await Promise.all(Array.from({ length: 20 }, () => openClient(t, bridge.url)));
  const [words] = fc.sample(fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 200, maxLength: 200 }), 1) as [
    number[],
  ];
  const answers = await Promise.all(
    words.map((count, index) =>
      clients[index % clients.length]?.call('session.start', start(`s${index}`, { taskPrompt: String(count) })),
    ),
  );
  const followers = new Map(
    await Promise.all(
      [0, 57, 199].map(
        async (index) => [index, await openClient(t, bridge.url, { query: `sessionId=s${index}&afterSeq=0` })] as const,
      ),
    ),
  );
  for (const [index, count] of words.entries()) {
    assert.equal(answers[index]?.result?.status, 'completed');
    const client = clients[index % clients.length];
    const updates = client?.updates.filter(({ sessionId }) => sessionId === `s${index}`) ?? [];
    assert.deepEqual(
      updates.map(({ seq }) => seq),
      Array.from({ length: count + 3 }, (_, place) => place + 1),
    );
    const said = updates.flatMap(({ type, text }) => (type === 'delta' ? [text] : []));
    assert.deepEqual(
      said,
      Array.from({ length: count }, (_, word) => `${word}\n`),
    );
    const follower = followers.get(index);
    if (follower === undefined) continue;
    await follower.seen(({ event }) => event === 'completed');
    assert.deepEqual(follower.updates, updates);
  }
  assert.equal(
    clients.reduce((sum, { updates }) => sum + updates.length, 0),
    words.reduce((sum, count) => sum + count + 3, 0),
  );
});

test('messages on one session from many connections run one by one, and all see the same', {
  timeout: 60_000,
}, async (t) => {
  const alpha = createScriptedProvider('alpha', inBursts);
  const { url } = await startBridge(t, { providers: [alpha] });
  await call(url, 'session.start', start('s', { taskPrompt: '1' }));
  const clients = await Promise.all(
    Array.from({ length: 8 }, () => openClient(t, url, { query: 'sessionId=s&afterSeq=0' })),
  );
  await Promise.all(
    clients.map((client, index) => client.call('session.message', start('s', { taskPrompt: String(50 + index) }))),
  );
  const last = Math.max(...clients.map(({ updates }) => updates.at(-1)?.seq ?? 0));
  for (const client of clients) {
    await client.seen(({ seq }) => seq === last);
    assert.deepEqual(
      client.updates.map(({ seq }) => seq),
      Array.from({ length: last }, (_, index) => index + 1),
    );
  }
  assert.equal(alpha.mostRunning(), 1);
});

describe('two bridges on one PostgreSQL', () => {
  const places = databasePlaces('postgres');

  test('a session runs on one of them at a time, and either continues it', { timeout: 60_000 }, async (t) => {
    let isEndless = true;
    const script: TurnScript = (turn) => (isEndless ? endless(turn) : inBursts({ ...turn, prompt: '3' }));
    const alpha = createScriptedProvider('alpha', script);
    const location = places.location();
    const one = await startBridge(t, { providers: [alpha], location });
    const two = await startBridge(t, { providers: [alpha], location });
    const client = await openClient(t, one.url);
    const turn = client.call('session.start', start('s'));
    await client.seen(({ type }) => type === 'delta');
    for (const method of ['session.start', 'session.message', 'session.close']) {
      // Instances of this test announce no address for each other.
      assert.equal((await call(two.url, method, start('s'))).error?.data.code, 'OWNER_UNREACHABLE', method);
    }
    await client.call('session.cancel', { sessionId: 's' });
    assert.equal((await turn).result?.status, 'cancelled');
    isEndless = false;
    const there = await stream(two.url, { method: 'session.message', params: start('s') });
    assert.equal(there.final.result?.status, 'completed');
    assert.ok((there.updates[0]?.seq ?? 0) > (client.updates.at(-1)?.seq ?? 0));
    const here = await stream(one.url, { method: 'session.message', params: start('s') });
    assert.ok((here.updates[0]?.seq ?? 0) > (there.updates.at(-1)?.seq ?? 0));
    const both = await Promise.all([one, two].map(({ url }) => call(url, 'session.start', start('new'))));
    const outcomes = both.map(({ result, error }) => result?.status ?? error?.data.code);
    assert.ok(outcomes.includes('completed'));
    for (const outcome of outcomes) assert.match(String(outcome), /^(completed|SESSION_BUSY|OWNER_UNREACHABLE)$/);
  });
});
