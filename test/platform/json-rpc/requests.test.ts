import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { rawJson } from '../../../src/platform/json-rpc/envelope.ts';
import { startProcessorTime } from '../../kit/time.ts';
import { assertFailure, call, carriers, type Message, openRawClient, serving } from './carriers.ts';

for (const { name, isHttp, open } of carriers) {
  describe(`requests over ${name}`, () => {
    test('B-01: a valid call is answered with result, payload, ok, type and seq', async () => {
      for (const method of ['echo', 'later']) {
        assert.deepEqual(await open()(call('a', method, { x: 1 })), {
          jsonrpc: '2.0',
          id: 'a',
          result: { x: 1 },
          ok: true,
          type: 'res',
          payload: { x: 1 },
          seq: 1,
        });
      }
    });

    test('B-02: ids come back with their type and value', async () => {
      const exchange = open();
      for (const id of [0, 7, -1, Number.MAX_SAFE_INTEGER, '', '7', 'ü\n"', '\ud800']) {
        assert.equal(((await exchange(call(id, 'echo'))) as Message).id, id);
      }
    });

    test('B-03: an id of null is answered with null, a missing one is not answered', async () => {
      const exchange = open();
      const answer = (await exchange(call(null, 'echo'))) as Message;
      assert.equal(answer.id, null);
      assert.equal(answer.ok, true);
      for (const method of ['echo', 'later', 'no.such', 'break', 'crowded', 'subtract']) {
        assert.equal(await exchange({ jsonrpc: '2.0', method }), undefined, method);
      }
    });

    test('B-04: ids that could not be echoed exactly are refused', async () => {
      const exchange = open();
      for (const id of ['1e400', '-1e400', '9007199254740993', '1.5', 'true', '{}', '["a"]']) {
        assertFailure(await exchange(`{"jsonrpc":"2.0","id":${id},"method":"echo"}`), -32600, 'INVALID_REQUEST');
      }
    });

    test('B-05: malformed JSON is a parse error with id null, and the connection goes on', async () => {
      const exchange = open();
      for (const text of [
        '{"jsonrpc":"2.0","method":"foobar,"params":"bar","baz]',
        '',
        '  ',
        '{',
        'nonsense',
        '{"a":1}}',
      ]) {
        assertFailure(await exchange(text), -32700, 'PARSE_ERROR');
      }
      assert.equal(((await exchange(call(1, 'echo'))) as Message).ok, true);
    });

    test('B-10: an unknown method is -32601, rpc.* too; a method that is no string is -32600', async () => {
      const exchange = open();
      for (const method of [
        'no.such',
        'rpc.discover',
        'rpc.',
        '',
        'Echo',
        'echo ',
        'constructor',
        '__proto__',
        'toString',
      ]) {
        assertFailure(await exchange(call(5, method)), -32601, 'METHOD_NOT_FOUND', 5);
      }
      for (const method of [1, null, true, ['echo'], { echo: 1 }]) {
        assertFailure(await exchange({ jsonrpc: '2.0', id: 5, method }), -32600, 'INVALID_REQUEST', 5);
      }
      assertFailure(await exchange({ jsonrpc: '2.0', id: 5 }), -32600, 'INVALID_REQUEST', 5);
    });

    test('B-11: array params are -32602; a string, number, boolean or null is -32600; none are {}', async () => {
      const exchange = open();
      for (const params of [[], [1, 2]]) {
        assertFailure(await exchange(call('p', 'echo', params)), -32602, 'INVALID_PARAMS', 'p');
      }
      for (const params of ['text', 1, true, null]) {
        assertFailure(await exchange({ ...call('p', 'echo'), params }), -32600, 'INVALID_REQUEST', 'p');
      }
      assert.deepEqual(((await exchange(call('p', 'echo'))) as Message).result, {});
    });

    test('B-13: jsonrpc must be there and say "2.0"', async () => {
      const exchange = open();
      for (const jsonrpc of [undefined, '1.0', 2, 2.1, '2', null, ['2.0']]) {
        assertFailure(await exchange({ ...call(9, 'echo'), jsonrpc }), -32600, 'INVALID_REQUEST', 9);
      }
    });

    test('B-14: unknown members are ignored, and no member reaches a prototype', async () => {
      const exchange = open();
      const polluted = '{"x":1,"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}';
      for (const method of ['echo', 'later']) {
        const text = `{"jsonrpc":"2.0","id":1,"method":"${method}","extra":[1],"__proto__":{"id":2,"polluted":1},"params":${polluted}}`;
        const answer = (await exchange(text)) as Message | undefined;
        assert.equal(answer?.id, 1);
        assert.equal(JSON.stringify(answer.result), polluted);
      }
      assert.equal(({} as { polluted?: unknown }).polluted, undefined);
      assertFailure(
        await exchange('{"__proto__":{"jsonrpc":"2.0","id":1,"method":"echo"}}'),
        -32600,
        'INVALID_REQUEST',
      );
    });

    test('B-15: JSON nested 10,000 levels deep is refused, without a stack overflow', async () => {
      const exchange = open();
      const processorTime = startProcessorTime();
      for (const [opening, closing] of [
        ['[', ']'],
        ['{"a":', '}'],
      ] as const) {
        const deep = `${opening.repeat(10_000)}1${closing.repeat(10_000)}`;
        assertFailure(await exchange(deep), -32700, 'PARSE_ERROR');
        assertFailure(
          await exchange(`{"jsonrpc":"2.0","id":1,"method":"echo","params":${deep}}`),
          -32700,
          'PARSE_ERROR',
        );
        assertFailure(await exchange(opening.repeat(1_000_000)), -32700, 'PARSE_ERROR');
      }
      assert.ok(processorTime() < 2000);
      assert.equal(((await exchange(call(1, 'echo'))) as Message).ok, true);
    });

    test('B-17: lone surrogates come back as they were sent', async () => {
      const answer = (await open()(
        '{"jsonrpc":"2.0","id":1,"method":"echo","params":{"text":"a\\ud800b"}}',
      )) as Message;
      assert.deepEqual(answer.result, { text: 'a\ud800b' });
    });

    test('a leading byte order mark is skipped', async () => {
      assert.equal(((await open()(`\ufeff${JSON.stringify(call(1, 'echo'))}`)) as Message).ok, true);
    });

    test('a failure that no table knows tells its request id and nothing else', async () => {
      const failing = () => Promise.reject(new TypeError('a secret of the library'));
      for (const exchange of [open(), open(failing)]) {
        const answer = (await exchange(call(1, 'break'))) as Message;
        assertFailure(answer, -32603, 'INTERNAL_ERROR', 1);
        assert.deepEqual(answer.error?.data, { code: 'INTERNAL_ERROR', requestId: isHttp ? 'http-1' : 'req-1' });
        assert.doesNotMatch(JSON.stringify(answer), /secret/);
      }
    });

    test('an error with a row is answered by it, with its details and no request id', async () => {
      const exchange = open(() => {
        throw new AppError('CALL_TIMEOUT', { timeoutMs: 5, code: 'forged' }, { cause: new Error('inner') });
      });
      const answer = (await exchange(call(1, 'any'))) as Message;
      assertFailure(answer, -32603, 'CALL_TIMEOUT', 1);
      assert.equal(answer.error?.message, 'No response arrived within 5 ms.');
      assert.deepEqual(answer.error.data, { code: 'CALL_TIMEOUT', timeoutMs: 5 });
    });

    test('results and errors that JSON cannot hold become internal errors', async () => {
      const circular: { self?: unknown } = {};
      circular.self = circular;
      const outcomes = [
        () => circular,
        async () => ({ large: 1n }),
        () => {
          throw new AppError('INVALID_PARAMS', { reason: 'it', circular });
        },
      ];
      for (const dispatch of outcomes) {
        assertFailure(await open(dispatch)(call(1, 'any')), -32603, 'INTERNAL_ERROR', 1);
      }
    });

    test('a handler that returns nothing gives {}, and raw JSON is taken as it stands', async () => {
      assert.deepEqual(((await open(() => undefined)(call(1, 'any'))) as Message).result, {});
      assert.deepEqual(((await open(async () => undefined)(call(1, 'any'))) as Message).payload, {});
      const answer = (await open(() => rawJson('{"cached":[1, 2]}'))(call(1, 'any'))) as Message;
      assert.deepEqual([answer.result, answer.payload], [{ cached: [1, 2] }, { cached: [1, 2] }]);
    });
  });
}

test('what fails unexpectedly is reported with the id that the caller was told, notifications too', async () => {
  const options = serving();
  const client = openRawClient(options);
  await client.exchange(call(1, 'break'));
  await client.exchange({ jsonrpc: '2.0', method: 'break' });
  assert.deepEqual(
    options.unexpected.map(({ error, requestId }) => [(error as Error).message, requestId]),
    [
      ['a secret of the library', 'req-1'],
      ['a secret of the library', 'req-1'],
    ],
  );
});

test('B-19: a notification has event like method and payload like params, and comes before the answer', async () => {
  const client = openRawClient();
  const messages = await client.exchange(call(1, 'announce', { x: 1 }));
  const news = { jsonrpc: '2.0', method: 'news', params: { x: 1 }, type: 'event', event: 'news', payload: { x: 1 } };
  assert.deepEqual(messages.slice(0, 2), [
    { ...news, seq: 1 },
    { ...news, seq: 2 },
  ]);
  assert.equal((messages[2] as Message).seq, 3);
  client.peer.notify('bare');
  const [bare] = await client.exchange({ jsonrpc: '2.0', method: 'echo' });
  assert.deepEqual([(bare as Message).params, (bare as Message).payload, (bare as Message).seq], [{}, {}, 4]);
});

test('seq rises over the messages of a connection and starts again on the next', async () => {
  const client = openRawClient();
  const seqs: unknown[] = [];
  for (const message of [call(1, 'echo'), 'not JSON', call(2, 'later'), '[]', call(3, 'no.such')]) {
    for (const answer of await client.exchange(message)) seqs.push((answer as Message).seq);
  }
  assert.deepEqual(seqs, [1, 2, 3, 4, 5]);
  assert.equal(((await openRawClient().exchange(call(1, 'echo')))[0] as Message).seq, 1);
});
