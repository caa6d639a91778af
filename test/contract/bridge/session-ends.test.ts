import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { call, openClient, stream } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, endless } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const start = (sessionId: string, more = {}) => ({ sessionId, taskPrompt: 'hello there', ...more });
const lost = (sessionId: string, threadId: string, providerId: string) => ({
  code: 'SESSION_CONTINUATION_UNAVAILABLE',
  sessionId,
  threadId,
  providerId,
});

describe('a session that cannot be continued', () => {
  test('B-49: an agent that lost the session is -32002 exactly as specified, and nothing new is started', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha] });
    await call(url, 'session.start', start('s', { threadId: 'th' }));
    alpha.forget();
    const before = alpha.asked.length;
    for (let times = 1; times <= 2; times += 1) {
      const { error } = await call(url, 'session.message', start('s', { threadId: 'th' }));
      assert.equal(error?.code, -32002);
      assert.match(error?.message ?? '', /^SESSION_CONTINUATION_UNAVAILABLE: \S/);
      assert.deepEqual(error?.data, lost('s', 'th', 'alpha'));
      assert.equal(alpha.asked.length, before + times);
    }
    assert.equal((await call(url, 'session.start', start('s'))).result?.status, 'completed');
  });

  test('B-49: an unknown session names the agent that was asked for, else none', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha] });
    const named = { routing: { explicitProviderId: 'alpha' } };
    assert.deepEqual((await call(url, 'session.message', start('s', named))).error?.data, lost('s', 's', 'alpha'));
    assert.deepEqual(
      (await call(url, 'session.message', start('s', { threadId: 't' }))).error?.data,
      lost('s', 't', ''),
    );
    assert.equal(alpha.asked.length, 0);
  });

  test('another agent is not taken for a message, be it that the caller names it', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const beta = createScriptedProvider('beta');
    const { url } = await startBridge(t, { providers: [alpha, beta] });
    await call(url, 'session.start', start('s'));
    const other = { routing: { explicitProviderId: 'beta' } };
    assert.deepEqual((await call(url, 'session.message', start('s', other))).error?.data, lost('s', 's', 'alpha'));
    alpha.setProbe({ status: 'not_installed', version: '' });
    assert.equal(beta.asked.length, 0);
  });

  test('a session whose agent never opened a conversation cannot be continued', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const failing = { ...alpha, run: () => Promise.reject(new Error('not started')) };
    const { url } = await startBridge(t, { providers: [failing] });
    assert.equal((await call(url, 'session.start', start('s'))).result?.code, 'AGENT_FAILED');
    assert.equal((await call(url, 'session.message', start('s'))).error?.code, -32002);
  });
});

describe('cancel', () => {
  test('B-54: a cancel after the end, and one of an unknown session, is accepted and changes nothing', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha] });
    await call(url, 'session.start', start('s'));
    for (const name of [{ sessionId: 's' }, { sessionId: 's' }, { sessionId: 'unknown' }, { threadId: 'unknown' }]) {
      assert.deepEqual((await call(url, 'session.cancel', name)).result, { accepted: true });
    }
    assert.deepEqual(alpha.cancelled, []);
    assert.equal((await call(url, 'session.message', start('s'))).result?.status, 'completed');
  });

  test('cancel and close need a session or a thread', async (t) => {
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
    for (const method of ['session.cancel', 'session.close']) {
      assert.equal((await call(url, method, {})).error?.data.code, 'INVALID_PARAMS');
    }
  });

  test('a cancel by thread stops every session of it, and what waits in them', async (t) => {
    const alpha = createScriptedProvider('alpha', endless);
    const { url } = await startBridge(t, { providers: [alpha] });
    const client = await openClient(t, url);
    const turns = [
      client.call('session.start', start('a', { threadId: 'th' })),
      client.call('session.start', start('b', { threadId: 'th' })),
      client.call('session.message', start('a', { threadId: 'th' })),
    ];
    const other = client.call('session.start', start('c'));
    await client.seen(({ sessionId, type }) => sessionId === 'c' && type === 'delta');
    await client.seen(({ sessionId, type }) => sessionId === 'b' && type === 'delta');
    await client.call('session.cancel', { threadId: 'th' });
    for (const { result } of await Promise.all(turns)) assert.equal(result?.status, 'cancelled');
    assert.equal(alpha.running(), 1);
    assert.equal(alpha.asked.length, 3);
    await client.call('session.cancel', { sessionId: 'c' });
    assert.equal((await other).result?.code, 'TURN_CANCELLED');
  });

  test('B-62: a turn whose agent does not heed the cancel ends without it', { timeout: 30_000 }, async (t) => {
    const alpha = createScriptedProvider('alpha', () => new Promise(() => {}));
    const deaf = { ...alpha, cancel: async (turnId: string) => void alpha.cancelled.push(turnId) };
    const { url } = await startBridge(t, { providers: [deaf] });
    const turn = call(url, 'session.start', start('s'));
    await until('the turn to run', () => alpha.running() > 0);
    await call(url, 'session.cancel', { sessionId: 's' });
    assert.equal((await turn).result?.code, 'TURN_CANCELLED');
    assert.equal(alpha.cancelled.length, 1);
  });
});

describe('close', () => {
  test('B-53: a close during a running turn cancels it and deletes the state', async (t) => {
    const alpha = createScriptedProvider('alpha', endless);
    const { url, database } = await startBridge(t, { providers: [alpha] });
    const client = await openClient(t, url);
    const turn = client.call('session.start', start('s', { threadId: 'th' }));
    await client.seen(({ type }) => type === 'delta');
    assert.deepEqual((await client.call('session.close', { sessionId: 's' })).result, { accepted: true });
    assert.equal((await turn).result?.code, 'TURN_CANCELLED');
    assert.equal(alpha.running(), 0);
    assert.deepEqual(alpha.closed, ['alpha-conversation-1']);
    for (const table of ['turns', 'session_updates'] as const) {
      assert.deepEqual(await database.query.selectFrom(table).selectAll().execute(), [], table);
    }
    const [tombstone] = await database.query.selectFrom('sessions').selectAll().execute();
    const last = client.updates.at(-1)?.seq ?? 0;
    assert.deepEqual(
      [tombstone?.thread_id, tombstone?.reference, tombstone?.provider_id, (tombstone?.reserved_seq ?? 0) >= last],
      ['', '', '', true],
    );
    assert.equal((await client.call('session.message', start('s', { threadId: 'th' }))).error?.code, -32002);
  });

  test('a session that starts after the close goes on with the numbers, also after a restart', async (t) => {
    const bridge = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
    const before = await stream(bridge.url, { method: 'session.start', params: start('s') });
    await call(bridge.url, 'session.close', { sessionId: 's' });
    await call(bridge.url, 'session.close', { sessionId: 's' });
    const again = await stream(bridge.url, { method: 'session.start', params: start('s') });
    assert.equal(again.updates[0]?.seq, (before.updates.at(-1)?.seq ?? 0) + 1);
    await call(bridge.url, 'session.close', { sessionId: 's' });
    await bridge.stop();
    const next = await startBridge(t, { providers: [createScriptedProvider('alpha')], after: bridge });
    assert.equal((await call(next.url, 'session.message', start('s'))).error?.code, -32002);
    const third = await stream(next.url, { method: 'session.start', params: start('s') });
    assert.ok((third.updates[0]?.seq ?? 0) > (again.updates.at(-1)?.seq ?? 0));
  });

  test('a close by thread ends every session of it, those at rest too', async (t) => {
    const bridge = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
    for (const id of ['a', 'b']) await call(bridge.url, 'session.start', start(id, { threadId: 'th' }));
    await call(bridge.url, 'session.start', start('c'));
    await bridge.stop();
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha], after: bridge });
    await call(url, 'session.close', { threadId: 'th' });
    assert.deepEqual(alpha.closed.sort(), ['alpha-conversation-1', 'alpha-conversation-2']);
    for (const id of ['a', 'b']) {
      const { error } = await call(url, 'session.message', start(id, { threadId: 'th' }));
      assert.equal(error?.code, -32002);
    }
  });

  test('what a closed session left is gone, and nothing of the next one with it, however late its agent lets go', async (t) => {
    const { promise: mayClose, resolve: letClose } = Promise.withResolvers<void>();
    const scripted = createScriptedProvider('alpha', async ({ prompt, workingDirectory }) => {
      await writeFile(join(workingDirectory, prompt), '');
      return { kind: 'completed', output: workingDirectory, stopReason: 'end_turn' };
    });
    const alpha = { ...scripted, close: (reference: string) => mayClose.then(() => scripted.close(reference)) };
    const { url } = await startBridge(t, { providers: [alpha] });
    const begin = async (taskPrompt: string) => {
      const { result } = await call(url, 'session.start', { sessionId: 's', taskPrompt });
      return String(result?.output);
    };
    const folder = await begin('first');
    assert.ok(existsSync(join(folder, 'first')));
    await call(url, 'session.close', { sessionId: 's' });
    assert.equal(await begin('second'), folder);
    assert.deepEqual([existsSync(join(folder, 'first')), existsSync(join(folder, 'second'))], [false, true]);
    letClose();
    await until('the agent to let go', () => scripted.closed.length > 0);
    await until('the old folder to be gone', () => readdirSync(join(folder, '..')).length === 1);
    assert.ok(existsSync(join(folder, 'second')));
  });

  test('a start that comes while the session is being closed waits and makes a new one', async (t) => {
    const { promise: mayEnd, resolve: letEnd } = Promise.withResolvers<void>();
    const alpha = createScriptedProvider('alpha', async (turn) => {
      const end = await endless(turn);
      await mayEnd;
      return end;
    });
    const { url } = await startBridge(t, { providers: [alpha] });
    const client = await openClient(t, url);
    const first = client.call('session.start', start('s'));
    await client.seen(({ type }) => type === 'delta');
    const closed = client.call('session.close', { sessionId: 's' });
    await until('the turn to be cancelled', () => alpha.cancelled.length > 0);
    const second = client.call('session.start', start('s'));
    await client.call('acp.capabilities', {});
    letEnd();
    assert.equal((await first).result?.status, 'cancelled');
    assert.equal((await closed).ok, true);
    const begun = client.seen(({ type, turnId }) => type === 'delta' && turnId !== client.updates[0]?.turnId);
    const next = await Promise.race([begun, second]);
    assert.ok('turnId' in next, JSON.stringify(next));
    await client.call('session.cancel', { sessionId: 's' });
    assert.equal((await second).result?.turnId, next.turnId);
  });
});
