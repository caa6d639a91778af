import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { answerOf } from '../../../src/bridge/sessions/turn-outcome.ts';
import { bearer, call, openClient, stream } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, endless, type TurnScript } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const start = (sessionId: string, more = {}) => ({ sessionId, taskPrompt: 'hello there', ...more });
const DAY_MS = 24 * 60 * 60 * 1000;

/** Says a number of words, and waits in the middle until the test lets it go on. */
function pausing(words: number): { script: TurnScript; goOn: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  const script: TurnScript = async ({ report }) => {
    for (let word = 1; word <= words; word += 1) {
      if (word === Math.ceil(words / 2)) await promise;
      report({ kind: 'text', text: `${word} ` });
    }
    return { kind: 'completed', output: 'all said', stopReason: 'end_turn' };
  };
  return { script, goOn: resolve };
}

const numbers = (updates: readonly { readonly seq: number }[]) => updates.map(({ seq }) => seq);
const upTo = (last: number, first = 1) => Array.from({ length: last - first + 1 }, (_, index) => first + index);

describe('a dropped HTTP connection', () => {
  test('the turn goes on, and the repeated call gets the rest of it and the result', async (t) => {
    const { script, goOn } = pausing(10);
    const alpha = createScriptedProvider('alpha', script);
    const { url } = await startBridge(t, { providers: [alpha] });
    const message = { method: 'session.start', params: start('s'), id: 'a' };
    const before = await stream(url, message, {}, ({ type }) => type === 'delta');
    const seen = before.updates.at(-1)?.seq ?? 0;
    const resumed = stream(url, message, { 'last-event-id': String(seen) });
    setTimeout(goOn, 50);
    const { updates, final, events } = await resumed;
    assert.deepEqual(numbers([...before.updates, ...updates]), upTo(13));
    assert.equal(final.result?.output, 'all said');
    assert.equal(final.id, 'a');
    assert.equal(events.at(-1)?.id, '13');
    assert.equal(alpha.asked.length, 1);
  });

  test('a finished turn is answered again, also as one document, and after a restart', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const bridge = await startBridge(t, { providers: [alpha] });
    const message = { method: 'session.start', params: start('s'), id: 7 };
    const first = await stream(bridge.url, message);
    await bridge.stop();
    const { url } = await startBridge(t, { providers: [alpha], after: bridge });
    const again = await stream(url, message, { 'last-event-id': '2' });
    assert.deepEqual(again.updates, first.updates.slice(2));
    assert.deepEqual(again.final.result, first.final.result);
    assert.equal((await stream(url, message, { 'last-event-id': '5' })).updates.length, 0);
    assert.equal(alpha.asked.length, 1);
  });

  test('an error is answered again as the error it was', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha] });
    await call(url, 'session.start', start('s'));
    alpha.forget();
    const message = { method: 'session.message', params: start('s') };
    const first = await stream(url, message);
    const again = await stream(url, message, { 'last-event-id': String(first.updates.at(-2)?.seq) });
    assert.equal(again.final.error?.code, -32002);
    assert.deepEqual(again.final.error, first.final.error);
    assert.equal(alpha.asked.length, 2);
  });

  test('without a header a repeated id is a new call; of equal calls the one that was seen is resumed', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha] });
    await call(url, 'session.start', start('s', { taskPrompt: 'begin' }));
    const message = { method: 'session.message', params: start('s') };
    const one = await stream(url, message);
    const two = await stream(url, message);
    assert.notEqual(one.final.result?.turnId, two.final.result?.turnId);
    for (const { updates, final } of [one, two]) {
      const again = await stream(url, message, { 'last-event-id': String(updates[1]?.seq) });
      assert.deepEqual(again.final.result, final.result);
      assert.deepEqual(again.updates, updates.slice(2));
    }
    assert.equal(alpha.asked.length, 3);
  });

  test('what belongs to no turn is RESUME_NOT_FOUND and starts nothing', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url, database } = await startBridge(t, { providers: [alpha] });
    const refused = async (message: Parameters<typeof stream>[1], headers: Record<string, string>) => {
      const { final } = await stream(url, message, headers);
      assert.equal(final.error?.code, -32602);
      assert.equal(final.error?.data.code, 'RESUME_NOT_FOUND');
    };
    const message = { method: 'session.start', params: start('s') };
    await refused(message, { 'last-event-id': '0' });
    await stream(url, message);
    await refused({ ...message, id: 2 }, { 'last-event-id': '1' });
    await refused({ ...message, params: start('s', { taskPrompt: 'other' }) }, { 'last-event-id': '1' });
    await refused({ ...message, method: 'session.message' }, { 'last-event-id': '1' });
    await refused(message, { 'last-event-id': '99' });
    await refused(message, { 'last-event-id': 'x' });
    await refused(message, { 'last-event-id': '1', 'idempotency-key': 'unknown' });
    await database.query
      .updateTable('turns')
      .set({ ended_at: Date.now() - DAY_MS - 1 })
      .execute();
    await refused(message, { 'last-event-id': '1' });
    assert.equal(alpha.asked.length, 1);
  });

  test('an idempotency key runs the turn once, however often and however soon it is sent', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha] });
    await call(url, 'session.start', start('s', { taskPrompt: 'begin' }));
    const headers = { 'idempotency-key': 'k-1' };
    const message = { method: 'session.message', params: start('s') };
    const answers = await Promise.all([1, 2, 3].map((id) => stream(url, { ...message, id }, headers)));
    const later = await stream(url, message, headers);
    const ids = new Set([...answers, later].map(({ final }) => final.result?.turnId));
    assert.equal(ids.size, 1);
    assert.deepEqual(numbers(later.updates), upTo(9, 5));
    assert.equal(alpha.asked.length, 2);
    const other = await stream(url, { ...message, params: start('s', { taskPrompt: 'other' }) }, headers);
    assert.equal(other.final.error?.data.code, 'RESUME_NOT_FOUND');
    assert.equal(alpha.asked.length, 2);
  });

  test('nobody resumes what is somebody else’s, except main', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha], isGuarded: true });
    const begun = await stream(url, { method: 'session.start', params: start('s') }, bearer(REVIEW_TOKEN));
    const message = { method: 'session.message', params: start('s') };
    const first = await stream(url, message, bearer(REVIEW_TOKEN));
    assert.equal(first.updates[0]?.seq, (begun.updates.at(-1)?.seq ?? 0) + 1);
    const resume = { 'last-event-id': String(first.updates[0]?.seq) };
    const asMain = await stream(url, message, { ...bearer(MAIN_TOKEN), ...resume });
    assert.deepEqual(asMain.final.result, first.final.result);
    const own = { method: 'session.start', params: start('mine') };
    await stream(url, own, bearer(MAIN_TOKEN));
    const asReview = await stream(url, own, { ...bearer(REVIEW_TOKEN), 'last-event-id': '1' });
    assert.equal(asReview.final.error?.data.code, 'RESUME_NOT_FOUND');
  });
});

describe('a dropped WebSocket', () => {
  test('a new socket gets what came after a number, then what comes', async (t) => {
    const { script, goOn } = pausing(10);
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha', script)] });
    const first = await openClient(t, url);
    void first.call('session.start', start('s'));
    const { seq } = await first.seen(({ type }) => type === 'delta');
    first.socket.terminate();
    const second = await openClient(t, url, { query: `sessionId=s&afterSeq=${seq}` });
    await second.seen(({ seq: number }) => number > seq);
    goOn();
    const last = await second.seen(({ event }) => event === 'completed');
    assert.equal(last.seq, 13);
    assert.deepEqual(numbers(second.updates), upTo(13, seq + 1));
  });

  test('a past of many megabytes reaches a client that reads it slowly', { timeout: 60_000 }, async (t) => {
    const word = 'x'.repeat(10_000);
    const alpha = createScriptedProvider('alpha', async ({ report }) => {
      for (let count = 0; count < 300; count += 1) report({ kind: 'text', text: word });
      return { kind: 'completed', output: 'done', stopReason: 'end_turn' };
    });
    const bridge = await startBridge(t, { providers: [alpha] });
    await call(bridge.url, 'session.start', start('s'));
    await bridge.stop();
    const { url } = await startBridge(t, { providers: [alpha], after: bridge });
    const client = await openClient(t, url, { query: 'sessionId=s&afterSeq=0' });
    client.socket.pause();
    setTimeout(() => client.socket.resume(), 300);
    await client.seen(({ event }) => event === 'completed');
    assert.deepEqual(numbers(client.updates), upTo(303));
  });

  test('a socket without a number gets what comes; a strange number closes it', async (t) => {
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
    await call(url, 'session.start', start('s'));
    const client = await openClient(t, url, { query: 'sessionId=s' });
    await openClient(t, url, { query: 'sessionId=unknown&afterSeq=0' });
    await call(url, 'session.message', start('s'));
    await client.seen(({ event }) => event === 'completed');
    assert.equal(client.updates[0]?.seq, 6);
    const wrong = await openClient(t, url, { query: 'sessionId=s&afterSeq=-1' });
    assert.equal(await wrong.closed(), 1008);
  });

  test('nobody follows what is somebody else’s', async (t) => {
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')], isGuarded: true });
    await call(url, 'session.start', start('s'), bearer(MAIN_TOKEN));
    const query = 'sessionId=s&afterSeq=0';
    const stranger = await openClient(t, url, { query, headers: bearer(REVIEW_TOKEN) });
    const owner = await openClient(t, url, { query, headers: bearer(MAIN_TOKEN) });
    await call(url, 'session.message', start('s'), bearer(MAIN_TOKEN));
    await owner.seen(({ seq }) => seq === 10);
    await stranger.call('acp.capabilities', {});
    assert.equal(stranger.updates.length, 0);
    assert.deepEqual(numbers(owner.updates), upTo(10));
  });
});

describe('a bridge that stops', () => {
  test('turns that a stop cuts off end as TURN_INTERRUPTED, told to who waits and to who comes back', async (t) => {
    const alpha = createScriptedProvider('alpha', endless);
    const bridge = await startBridge(t, { providers: [alpha] });
    const message = { method: 'session.start', params: start('s') };
    const turn = stream(bridge.url, message).catch(() => undefined);
    await until('the turn to run', () => alpha.running() > 0);
    await bridge.stop();
    await turn;
    assert.ok(alpha.isStopped());
    const { url } = await startBridge(t, { providers: [alpha], after: bridge });
    const { final, updates } = await stream(url, message, { 'last-event-id': '0' });
    assert.equal(final.result?.status, 'failed');
    assert.equal(final.result?.code, 'TURN_INTERRUPTED');
    assert.equal(updates.at(-1)?.event, 'failed');
    assert.equal(alpha.asked.length, 1);
  });

  test('turns that died with their bridge are ended by the next one, with numbers that nobody has seen', async (t) => {
    const alpha = createScriptedProvider('alpha', endless);
    const dead = await startBridge(t, { providers: [alpha] });
    const client = await openClient(t, dead.url);
    void client.call('session.start', start('s'));
    await client.seen(({ type }) => type === 'delta');
    void client.call('session.message', start('s'));
    await client.seen(({ event }) => event === 'queued');
    await new Promise((resolve) => setTimeout(resolve, 50));
    // The first one is not told to stop: as far as the next one knows it is gone.
    const next = await startBridge(t, { providers: [createScriptedProvider('alpha')], after: dead });
    const follower = await openClient(t, next.url, { query: 'sessionId=s&afterSeq=0' });
    const ofQueued = client.updates.at(-1)?.turnId;
    await follower.seen(({ turnId, event }) => turnId === ofQueued && event === 'failed');
    const ends = follower.updates.filter(({ event }) => event === 'failed');
    assert.equal(ends.length, 2);
    assert.ok(ends.every(({ seq }) => seq > (client.updates.at(-1)?.seq ?? 0)));
    const sorted = numbers(follower.updates).sort((a, b) => a - b);
    assert.deepEqual(numbers(follower.updates), [...new Set(sorted)]);
    const rows = await next.database.query.selectFrom('turns').selectAll().execute();
    assert.deepEqual(
      rows.map(({ status, outcome }) => [status, JSON.parse(answerOf(outcome).text).code]),
      [
        ['failed', 'TURN_INTERRUPTED'],
        ['failed', 'TURN_INTERRUPTED'],
      ],
    );
  });
});
