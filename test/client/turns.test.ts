import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { WebSocket } from 'ws';
import type { SessionUpdate } from '../../src/bridge/contract/session-update.ts';
import { createTrestleClient, type TransportName, type Turn } from '../../src/client/trestle-client.ts';
import { clientOf } from '../kit/bridge/client-of.ts';
import { MAIN_TOKEN, startBridge } from '../kit/bridge/start-bridge.ts';
import { startFaultProxy } from '../kit/fault-proxy.ts';
import { createScriptedProvider, endless, type TurnScript } from '../kit/scripted-provider.ts';
import { until } from '../kit/until.ts';

const upTo = (last: number, first = 1) => Array.from({ length: last - first + 1 }, (_, index) => first + index);
const numbers = (updates: readonly SessionUpdate[]) => updates.map(({ seq }) => seq);
const streaming: readonly TransportName[] = ['sse', 'websocket'];

async function readAll(turn: Turn): Promise<SessionUpdate[]> {
  const updates: SessionUpdate[] = [];
  for await (const update of turn) updates.push(update);
  return updates;
}

/** Says words, and waits before some of them until the test lets it go on. */
function pausing(words: number, before: readonly number[]) {
  const gates = new Map(before.map((word) => [word, Promise.withResolvers<void>()]));
  const script: TurnScript = async ({ report }) => {
    for (let word = 1; word <= words; word += 1) {
      await gates.get(word)?.promise;
      report({ kind: 'text', text: `${word} ` });
    }
    return { kind: 'completed', output: 'all said', stopReason: 'end_turn' };
  };
  return { script, goOn: (word: number) => gates.get(word)?.resolve() };
}

for (const transport of streaming) {
  describe(`over ${transport}`, () => {
    test('a turn tells its updates and then its result, and the next one continues it', async (t) => {
      const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')], isGuarded: true });
      const client = clientOf(t, { url, transport, token: MAIN_TOKEN });
      const session = client.session('s', { threadId: 'thread' });
      const turn = session.start('hello there');
      const updates = await readAll(turn);
      const result = await turn.result;
      assert.equal(result.output, 'hello there');
      assert.equal(result.threadId, 'thread');
      assert.deepEqual(numbers(updates), upTo(updates.length));
      assert.equal(updates.map(({ delta = '' }) => delta).join(''), 'hello there');
      assert.equal(updates.at(-1)?.event, 'completed');
      const next = session.message('and again');
      assert.equal((await next.result).output, 'and again');
      assert.equal((await readAll(next))[0]?.seq, updates.length + 1);
    });

    test('a connection that breaks in the middle of a turn loses nothing and repeats nothing', async (t) => {
      const { script, goOn } = pausing(12, [4, 8]);
      const alpha = createScriptedProvider('alpha', script);
      const { url } = await startBridge(t, { providers: [alpha] });
      const proxy = await startFaultProxy(t, Number(new URL(url).port));
      const turn = clientOf(t, { url: proxy.url, transport }).session('s').start('go');
      const seen: SessionUpdate[] = [];
      for await (const update of turn) {
        seen.push(update);
        if (update.delta !== '3 ' && update.delta !== '7 ') continue;
        proxy.cutAll();
        setTimeout(() => goOn(update.delta === '3 ' ? 4 : 8), 20);
      }
      assert.deepEqual(numbers(seen), upTo(15));
      assert.equal((await turn.result).output, 'all said');
      assert.equal(alpha.asked.length, 1);
      assert.ok(proxy.connections() >= 3);
    });

    test('a turn that ends while nobody is connected is reported afterwards', async (t) => {
      const { script, goOn } = pausing(6, [3]);
      const alpha = createScriptedProvider('alpha', script);
      const { url } = await startBridge(t, { providers: [alpha] });
      const proxy = await startFaultProxy(t, Number(new URL(url).port));
      const turn = clientOf(t, { url: proxy.url, transport }).session('s').start('go');
      const seen: SessionUpdate[] = [];
      for await (const update of turn) {
        seen.push(update);
        if (update.delta !== '2 ') continue;
        proxy.setTarget(1);
        proxy.cutAll();
        goOn(3);
        setTimeout(() => proxy.setTarget(Number(new URL(url).port)), 300);
      }
      assert.deepEqual(numbers(seen), upTo(9));
      assert.equal((await turn.result).status, 'completed');
      assert.equal(alpha.asked.length, 1);
    });

    test('cancel ends a turn while it runs, and turns of several sessions run side by side', async (t) => {
      const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha', endless)] });
      const client = clientOf(t, { url, transport });
      const sessions = ['one', 'two', 'three'].map((id) => client.session(id));
      const turns = sessions.map((session) => session.start('work'));
      for (const [index, turn] of turns.entries()) {
        for await (const { sessionId, type } of turn) {
          assert.equal(sessionId, sessions[index]?.sessionId);
          if (type === 'delta') break;
        }
      }
      await Promise.all(sessions.map((session) => session.cancel()));
      const results = await Promise.all(turns.map(({ result }) => result));
      assert.deepEqual(
        results.map(({ status }) => status),
        ['cancelled', 'cancelled', 'cancelled'],
      );
    });
  });
}

test('over http there are no updates, and a result that is not lost with a connection', async (t) => {
  const { script, goOn } = pausing(4, [2]);
  const alpha = createScriptedProvider('alpha', script);
  const { url } = await startBridge(t, { providers: [alpha] });
  const proxy = await startFaultProxy(t, Number(new URL(url).port));
  const turn = clientOf(t, { url: proxy.url, transport: 'http' }).session('s').start('go');
  await until('the agent to be asked', () => alpha.asked.length > 0);
  proxy.cutAll();
  setTimeout(() => goOn(2), 50);
  assert.equal((await turn.result).output, 'all said');
  assert.deepEqual(await readAll(turn), []);
  assert.equal(alpha.asked.length, 1);
});

test('a bridge that cannot be reached at first gets the turn once', async (t) => {
  const alpha = createScriptedProvider('alpha');
  const { url } = await startBridge(t, { providers: [alpha] });
  for (const transport of ['sse', 'websocket', 'http'] as const) {
    const proxy = await startFaultProxy(t, Number(new URL(url).port), (count) => ({ refuse: count < 3 }));
    const { result } = clientOf(t, { url: proxy.url, transport }).session(transport).start('hello');
    assert.equal((await result).output, 'hello');
  }
  assert.equal(alpha.asked.length, 3);
});

describe('following a session', () => {
  test('shows every update once and in order, over connections that break again and again', async (t) => {
    const { script, goOn } = pausing(30, [10, 20]);
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha', script)] });
    const proxy = await startFaultProxy(t, Number(new URL(url).port));
    const { result } = clientOf(t, { url }).session('s').start('go');
    await until('the session to be known', () => isKnown(url));
    const seen: SessionUpdate[] = [];
    for await (const update of clientOf(t, { url: proxy.url }).session('s').follow()) {
      seen.push(update);
      if (update.delta === '9 ' || update.delta === '19 ') {
        proxy.cutAll();
        goOn(update.delta === '9 ' ? 10 : 20);
      }
      if (update.event === 'completed') break;
    }
    assert.deepEqual(numbers(seen), upTo(33));
    await result;
    assert.equal(proxy.connections(), 3);
  });

  test('a slow reader gets everything although little may wait, from the number that was asked for', async (t) => {
    const { script } = pausing(200, []);
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha', script)] });
    await clientOf(t, { url }).session('s').start('go').result;
    const seen: SessionUpdate[] = [];
    for await (const update of clientOf(t, { url, maxWaitingUpdates: 20 }).session('s').follow({ afterSeq: 3 })) {
      await new Promise((resolve) => setImmediate(resolve));
      seen.push(update);
      if (update.event === 'completed') break;
    }
    assert.deepEqual(numbers(seen), upTo(203, 4));
  });
});

/** Whether there is anything to follow yet. */
async function isKnown(url: string): Promise<boolean> {
  const aborter = new AbortController();
  const client = createTrestleClient({ url });
  setTimeout(() => aborter.abort(), 50);
  try {
    for await (const _ of client.session('s').follow({ signal: aborter.signal })) return true;
  } catch {
    return false;
  } finally {
    client.close();
  }
  return false;
}

test('a WebSocket of another kind can be given', async (t: TestContext) => {
  const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')], isGuarded: true });
  const opened: string[] = [];
  const client = clientOf(t, {
    url,
    token: MAIN_TOKEN,
    transport: 'websocket',
    openSocket(address, headers) {
      opened.push(address);
      return new WebSocket(address, { headers });
    },
  });
  assert.equal((await client.session('s').start('hi').result).output, 'hi');
  assert.deepEqual(opened, [`${url.replace('http', 'ws')}/acp`]);
});
