import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { type TransportName, TrestleError } from '../../src/client/trestle-client.ts';
import { clientOf } from '../kit/bridge/client-of.ts';
import { MAIN_TOKEN, startBridge } from '../kit/bridge/start-bridge.ts';
import { freePort } from '../kit/free-port.ts';
import { inTime } from '../kit/in-time.ts';
import type { Scope } from '../kit/running-program.ts';
import { createScriptedProvider, endless } from '../kit/scripted-provider.ts';
import { until } from '../kit/until.ts';

const transports: readonly TransportName[] = ['sse', 'websocket', 'http'];

for (const transport of transports) {
  test(`over ${transport} a wrong token is UNAUTHORIZED, for calls and for turns`, async (t) => {
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')], isGuarded: true });
    for (const token of ['', 'wrong']) {
      const client = clientOf(t, { url, transport, token });
      const refused = { name: 'TrestleError', code: 'UNAUTHORIZED', rpcCode: -32001, status: 401 };
      await assert.rejects(client.capabilities(), refused);
      const turn = client.session('s').start('hello');
      await assert.rejects(turn.result, refused);
      await assert.rejects(async () => {
        for await (const _ of turn) assert.fail('there are no updates');
      }, refused);
    }
  });

  test(`over ${transport} what the bridge refuses comes with its code and its data`, async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha] });
    const client = clientOf(t, { url, transport });
    await assert.rejects(client.session('unknown').message('go on').result, {
      code: 'SESSION_CONTINUATION_UNAVAILABLE',
      rpcCode: -32002,
      data: { code: 'SESSION_CONTINUATION_UNAVAILABLE', sessionId: 'unknown', threadId: 'unknown', providerId: '' },
    });
    await assert.rejects(client.jobs.submit({ taskPrompt: 'x', providerId: 'nobody' }), { code: 'PROVIDER_UNKNOWN' });
    const down = await client.session('s').start('x', { routing: { explicitProviderId: 'nobody' } }).result;
    assert.equal(down.status, 'unavailable');
    assert.equal(down.unavailableCode, 'PROVIDER_UNAVAILABLE');
    assert.equal(alpha.asked.length, 0);
  });

  test(`over ${transport} a turn can be given up by signal and by time, and the bridge goes on with it`, async (t) => {
    const alpha = createScriptedProvider('alpha', endless);
    const { url } = await startBridge(t, { providers: [alpha] });
    const client = clientOf(t, { url, transport });
    const aborter = new AbortController();
    const aborted = client.session('one').start('work', { signal: aborter.signal });
    const late = client.session('two').start('work', { timeoutMs: 300 });
    await until('both turns to run', () => alpha.running() >= 2);
    aborter.abort(new Error('enough'));
    await assert.rejects(aborted.result, (error) => {
      assert.ok(error instanceof TrestleError);
      assert.equal(error.code, 'ABORTED');
      assert.equal((error.cause as Error).message, 'enough');
      return true;
    });
    await assert.rejects(late.result, { code: 'TIMEOUT' });
    assert.equal(alpha.running(), 2);
    await assert.rejects(client.capabilities({ signal: AbortSignal.abort() }), { code: 'ABORTED' });
    const open = client.session('three').start('work');
    const follower = client.session('one').follow()[Symbol.asyncIterator]();
    assert.equal((await follower.next()).value?.seq, 1);
    client.close();
    await assert.rejects(open.result, { code: 'CLIENT_CLOSED' });
    await assert.rejects(client.capabilities(), { code: 'CLIENT_CLOSED' });
    await assert.rejects(
      async () => {
        while (!(await inTime('the follower to end', follower.next())).done);
      },
      { code: 'CLIENT_CLOSED' },
    );
  });

  test(`over ${transport} a bridge that is not there is CONNECTION_LOST after the time given`, async (t) => {
    const client = clientOf(t, { url: `http://127.0.0.1:${await freePort()}`, transport, reconnectMs: 300 });
    await assert.rejects(client.capabilities(), { code: 'CONNECTION_LOST' });
    await assert.rejects(client.session('s').start('hello').result, { code: 'CONNECTION_LOST' });
  });
}

test('what is no bridge is a BAD_ANSWER, and a proxy without its bridge is tried again', async (t) => {
  const { url, answer } = await startAnything(t);
  answer(200, '<html>hello</html>');
  const client = clientOf(t, { url });
  await assert.rejects(client.capabilities(), { code: 'BAD_ANSWER', status: 200 });
  await assert.rejects(client.session('s').start('x').result, { code: 'BAD_ANSWER' });
  answer(502, 'Bad Gateway');
  const waiting = client.capabilities();
  setTimeout(() => answer(200, '{"jsonrpc":"2.0","id":"1","result":{"singleAgent":true}}'), 250);
  assert.equal((await waiting).singleAgent, true);
});

test('a redirect is not followed: the token stays with the bridge that was named', async (t) => {
  const elsewhere = await startAnything(t);
  const { url, answer } = await startAnything(t);
  answer(307, '', { location: elsewhere.url });
  const client = clientOf(t, { url, token: MAIN_TOKEN, reconnectMs: 100 });
  await assert.rejects(client.capabilities(), { code: 'CONNECTION_LOST' });
  assert.equal(elsewhere.requests(), 0);
});

test('in a browser a WebSocket with a token is refused with the way out', async (t) => {
  Object.assign(globalThis, { document: {} });
  t.after(() => Reflect.deleteProperty(globalThis, 'document'));
  const client = clientOf(t, { url: 'http://127.0.0.1:1', token: 'x', transport: 'websocket' });
  await assert.rejects(client.capabilities(), { code: 'UNSUPPORTED', message: /'sse'/ });
});

async function startAnything(scope: Scope) {
  let current: [number, string, Record<string, string>] = [200, '', {}];
  let count = 0;
  const server = createServer((request, response) => {
    request.resume();
    count += 1;
    const [status, body, headers] = current;
    response.writeHead(status, headers).end(body);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  scope.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests: () => count,
    answer(status: number, body: string, headers: Record<string, string> = {}) {
      current = [status, body, headers];
    },
  };
}

test('a timeout that is longer than a timer can be is no timeout', async (t) => {
  const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
  const client = clientOf(t, { url, callTimeoutMs: Number.POSITIVE_INFINITY });
  await client.capabilities();
  await client.jobs.stats({ timeoutMs: 2 ** 31 });
  assert.equal((await client.session('s').start('hello', { timeoutMs: 30 * 24 * 3_600_000 }).result).output, 'hello');
});
