import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { type Envelope, openSocket, postRpc } from '../../kit/bridge/bridge-client.ts';
import { startProgram } from '../../kit/running-program.ts';
import { until } from '../../kit/until.ts';

const capabilities = (id: unknown) => ({ jsonrpc: '2.0', id, method: 'acp.capabilities', params: {} });

const program = await startProgram({ after });

describe('the envelope of the method family, over HTTP and WebSocket', () => {
  test('B-01: a call with a string id gets result, payload with the same content, ok, type and seq', async (t) => {
    const socket = await openSocket(t, program.url);
    for (const answer of [(await postRpc(program.url, capabilities('a'))).json, await socket.call(capabilities('a'))]) {
      assert.equal(answer.jsonrpc, '2.0');
      assert.equal(answer.id, 'a');
      assert.equal(answer.ok, true);
      assert.equal(answer.type, 'res');
      assert.deepEqual(answer.payload, answer.result);
      assert.equal(answer.seq, 1);
      assert.equal(Array.isArray(answer.result?.availableExecutionTargets), true);
    }
    assert.equal((await socket.call(capabilities('b'))).seq, 2);
  });

  test('B-02: a numeric id comes back as a number', async (t) => {
    const socket = await openSocket(t, program.url);
    assert.equal((await postRpc(program.url, capabilities(7))).json.id, 7);
    assert.equal((await socket.call(capabilities(0))).id, 0);
  });

  test('B-03: an id of null is answered with null; a call without id gets no answer, and 204 over HTTP', async (t) => {
    const socket = await openSocket(t, program.url);
    assert.equal((await postRpc(program.url, capabilities(null))).json.id, null);
    const silent = await postRpc(program.url, { jsonrpc: '2.0', method: 'acp.capabilities' });
    assert.equal(silent.status, 204);
    assert.equal(silent.text, '');
    socket.send({ jsonrpc: '2.0', method: 'acp.capabilities' });
    assert.equal((await socket.call(capabilities('after'))).id, 'after');
  });

  test('B-04: an id that cannot be echoed exactly is refused', async () => {
    for (const id of ['1e400', '9007199254740993', '1.5']) {
      const { status, json } = await postRpc(program.url, `{"jsonrpc":"2.0","id":${id},"method":"acp.capabilities"}`);
      assert.equal(status, 200);
      assert.equal(json.error?.code, -32600, id);
      assert.equal(json.id, null);
    }
  });

  test('B-05: malformed JSON is -32700 with id null, and the socket stays open', async (t) => {
    const socket = await openSocket(t, program.url);
    const answer = await socket.call('{"jsonrpc":');
    assert.equal(answer.error?.code, -32700);
    assert.equal(answer.error?.data.code, 'PARSE_ERROR');
    assert.equal(answer.id, null);
    assert.equal(answer.payload, null);
    assert.equal(answer.ok, false);
    assert.equal((await socket.call(capabilities(1))).ok, true);
    const overHttp = await postRpc(program.url, '{"jsonrpc":');
    assert.equal(overHttp.status, 400);
    assert.equal(overHttp.json.error?.code, -32700);
  });

  test('B-06: an empty batch is one error, a batch of non-calls an error each', async () => {
    const empty = (await postRpc(program.url, [])).json;
    assert.equal(empty.error?.code, -32600);
    const three = (await postRpc(program.url, [1, 2, 3])).json as unknown as Envelope[];
    assert.deepEqual(
      three.map((answer) => answer.error?.code),
      [-32600, -32600, -32600],
    );
  });

  test('B-07: a mixed batch gets exactly one answer for each call that asked for one', async (t) => {
    const batch = [
      capabilities('1'),
      { jsonrpc: '2.0', method: 'acp.capabilities' },
      { foo: 'boo' },
      { jsonrpc: '2.0', id: '5', method: 'foo.get', params: {} },
    ];
    const socket = await openSocket(t, program.url);
    socket.send(batch);
    for (const answers of [(await postRpc(program.url, batch)).json, await socket.next()] as unknown as Envelope[][]) {
      const outcome = answers.map((answer) => [answer.id, answer.error?.code ?? 'ok']);
      assert.deepEqual(
        outcome.sort(),
        [
          ['1', 'ok'],
          ['5', -32601],
          [null, -32600],
        ].sort(),
      );
      assert.deepEqual(
        answers.map((answer) => answer.seq),
        [1, 2, 3],
      );
    }
  });

  test('B-08: a batch of 101 calls is refused whole', async () => {
    const batch = Array.from({ length: 101 }, (_, index) => capabilities(index));
    const { json } = await postRpc(program.url, batch);
    assert.equal(json.error?.code, -32600);
    assert.match(json.error?.message ?? '', /batch too large/);
  });

  test('B-09: a batch of notifications only has no answer', async () => {
    const batch = [{ jsonrpc: '2.0', method: 'acp.capabilities' }];
    const { status, text } = await postRpc(program.url, batch);
    assert.equal(status, 204);
    assert.equal(text, '');
  });

  test('B-10: an unknown method is -32601, rpc.* too; a method that is no text is -32600', async () => {
    for (const [method, code] of [
      ['nope', -32601],
      ['rpc.discover', -32601],
      ['__proto__', -32601],
      [7, -32600],
    ]) {
      const { status, json } = await postRpc(program.url, { jsonrpc: '2.0', id: 1, method });
      assert.equal(status, 200);
      assert.equal(json.error?.code, code, String(method));
    }
  });

  test('B-11: parameters must be an object', async () => {
    for (const [params, code] of [
      [[], -32602],
      ['text', -32600],
      [null, -32600],
    ]) {
      const { json } = await postRpc(program.url, { jsonrpc: '2.0', id: 1, method: 'acp.capabilities', params });
      assert.equal(json.error?.code, code, JSON.stringify(params));
    }
  });

  test('B-13: a jsonrpc member other than "2.0" is refused', async () => {
    for (const jsonrpc of [undefined, '1.0', 2]) {
      const { json } = await postRpc(program.url, { jsonrpc, id: 1, method: 'acp.capabilities' });
      assert.equal(json.error?.code, -32600);
    }
  });

  test('B-14: unknown members are ignored, and none of them pollutes a prototype', async () => {
    const poison = '"__proto__":{"ok":false},"constructor":{"prototype":{"ok":false}}';
    const body = `{"jsonrpc":"2.0","id":1,"method":"acp.capabilities","params":{${poison}},"extra":1,${poison}}`;
    assert.equal((await postRpc(program.url, body)).json.ok, true);
    assert.equal((await postRpc(program.url, { jsonrpc: '2.0', id: 2, method: 'nope' })).json.ok, false);
  });

  test('B-15: JSON nested ten thousand deep is refused on both transports', async (t) => {
    const nested = `${'['.repeat(10_000)}${']'.repeat(10_000)}`;
    const deep = `{"jsonrpc":"2.0","id":1,"method":"acp.capabilities","params":{"a":${nested}}}`;
    const { status, json } = await postRpc(program.url, deep);
    assert.equal(status, 400);
    assert.equal(json.error?.code, -32700);
    const socket = await openSocket(t, program.url);
    assert.equal((await socket.call(deep)).error?.code, -32700);
  });

  test('B-17: text that is not UTF-8 is refused on both transports; a lone surrogate comes back as it went', async (t) => {
    const bad = Buffer.from([...Buffer.from('{"jsonrpc":"2.0","id":"'), 0xff, ...Buffer.from('"}')]);
    const response = await fetch(`${program.url}/acp/rpc`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: bad,
    });
    assert.equal(response.status, 400);
    assert.equal(((await response.json()) as Envelope).error?.code, -32700);
    const lone = '{"jsonrpc":"2.0","id":"\\ud800","method":"acp.capabilities"}';
    const socket = await openSocket(t, program.url);
    assert.equal((await postRpc(program.url, lone)).json.id, '\ud800');
    assert.equal((await socket.call(lone)).id, '\ud800');
    socket.socket.send(bad, { binary: false });
    assert.equal(await socket.closed(), 1007);
  });
});

test('DU-11: the log line of a request names the method, and the session that it is about', async () => {
  const secret = 'sk-abcdefghijklmnopqrstuvwxyz123456';
  await postRpc(program.url, capabilities('log'));
  await postRpc(program.url, {
    jsonrpc: '2.0',
    id: 1,
    method: 'session.cancel',
    params: { sessionId: 'logged-session' },
  });
  await postRpc(program.url, { jsonrpc: '2.0', id: 1, method: `no.${secret}`, params: { threadId: secret } });
  const lines = () =>
    program
      .stderr()
      .split('\n')
      .filter((line) => line.includes('"msg":"request"'))
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  await until('three lines', () => lines().some(({ rpcMethod }) => String(rpcMethod).startsWith('no.')));
  assert.ok(lines().some(({ rpcMethod, route }) => rpcMethod === 'acp.capabilities' && route === '/acp/rpc'));
  assert.ok(lines().some((line) => line.rpcMethod === 'session.cancel' && line.sessionId === 'logged-session'));
  assert.equal(program.stderr().includes(secret), false);
});

test('DP-5: session.update is in the API description', async () => {
  const document = Object(await (await fetch(`${program.url}/openapi.json`)).json());
  const { oneOf } = document.components.schemas.JsonRpcNotification;
  assert.deepEqual(
    oneOf.map(({ title }: { title: string }) => title),
    ['session.update'],
  );
  assert.equal(oneOf[0].properties.params.properties.structuredEvent.anyOf.length, 4);
});
