import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import type { Dispatch } from '../../../src/platform/json-rpc/method-table.ts';
import { assertFailure, call, carriers, type Message, openRawClient } from './carriers.ts';

/** The methods that the examples of the JSON-RPC 2.0 specification (section 7) call. */
const specificationMethods: Dispatch<string> = ({ method, params }) => {
  const numbers = params as number[];
  switch (method) {
    case 'sum':
      return numbers.reduce((sum, number) => sum + number, 0);
    case 'subtract':
      return Promise.resolve(Number(numbers[0]) - Number(numbers[1]));
    case 'get_data':
      return ['hello', 5];
    case 'notify_sum':
    case 'notify_hello':
      return Promise.resolve('nobody hears this');
    default:
      throw new AppError('METHOD_NOT_FOUND', { method });
  }
};

const notification = (method: string, params: unknown) => ({ jsonrpc: '2.0', method, params });

/** Each answer as its id and its result, or its error number. */
const specificationExamples: { name: string; batch: unknown; answers: [unknown, unknown][] | undefined }[] = [
  {
    name: 'B-07: the mixed batch',
    batch: [
      call('1', 'sum', [1, 2, 4]),
      notification('notify_hello', [7]),
      call('2', 'subtract', [42, 23]),
      { foo: 'boo' },
      call('5', 'foo.get', { name: 'myself' }),
      call('9', 'get_data'),
    ],
    answers: [
      ['1', 7],
      ['2', 19],
      [null, -32600],
      ['5', -32601],
      ['9', ['hello', 5]],
    ],
  },
  { name: 'B-06: an invalid batch that is not empty', batch: [1], answers: [[null, -32600]] },
  {
    name: 'B-06: a batch of three invalid requests',
    batch: [1, 2, 3],
    answers: [
      [null, -32600],
      [null, -32600],
      [null, -32600],
    ],
  },
  {
    name: 'B-09: a batch of notifications only',
    batch: [notification('notify_sum', [1, 2, 4]), notification('notify_hello', [7]), notification('no.such', [])],
    answers: undefined,
  },
];

for (const { name, open } of carriers) {
  describe(`batches over ${name}`, () => {
    for (const { name: example, batch, answers } of specificationExamples) {
      test(`${example} gets exactly the specification's answers`, async () => {
        const found = (await open(specificationMethods)(batch)) as Message[] | undefined;
        const short = found?.map(({ id, result, error }) => [id, error?.code ?? result]);
        assert.deepEqual(short?.sort(byId), answers && [...answers].sort(byId));
      });
    }

    test('B-06: an empty batch gets one error, not a batch', async () => {
      const exchange = open();
      assertFailure(await exchange('[]'), -32600, 'INVALID_REQUEST');
      assertFailure(await exchange(' [ ] '), -32600, 'INVALID_REQUEST');
    });

    test('a batch that is not JSON gets one parse error', async () => {
      assertFailure(
        await open()('[{"jsonrpc":"2.0","method":"echo","id":"1"},{"jsonrpc":"2.0","method"'),
        -32700,
        'PARSE_ERROR',
      );
    });

    test('B-08: 100 calls are served, 101 are refused as a whole', async () => {
      let served = 0;
      const exchange = open(() => {
        served += 1;
        return {};
      });
      const calls = Array.from({ length: 101 }, (_, id) => call(id, 'echo'));
      const refusal = await exchange(calls);
      assertFailure(refusal, -32600, 'INVALID_REQUEST');
      assert.match((refusal as Message).error?.message ?? '', /batch too large/);
      assert.equal(served, 0);
      const answers = (await exchange(calls.slice(1))) as Message[];
      assert.equal(answers.length, 100);
      assert.equal(new Set(answers.map(({ id }) => id)).size, 100);
    });

    test('a batch within a batch is an invalid request', async () => {
      const answers = (await open()([[call(1, 'echo')], call(2, 'echo')])) as Message[];
      assert.deepEqual(
        answers.map(({ id, error }) => [id, error?.code]),
        [
          [null, -32600],
          [2, undefined],
        ],
      );
    });

    test('one call that fails fails alone, and seq rises through the answers', async () => {
      const batch = [call(1, 'later'), call(2, 'break'), call(3, 'echo'), call(4, 'crowded'), call(5, 'subtract')];
      const answers = (await open()(batch)) as Message[];
      assert.deepEqual(
        answers.map(({ seq }) => seq),
        [1, 2, 3, 4, 5],
      );
      const codes = new Map(answers.map(({ id, error }) => [id, error?.code]));
      assert.deepEqual(
        [1, 2, 3, 4, 5].map((id) => codes.get(id)),
        [undefined, -32603, undefined, -32020, -32602],
      );
    });
  });
}

test('a batch waits for its slowest call while other calls are answered, and takes its numbers last', async () => {
  const slow = Promise.withResolvers<object>();
  const client = openRawClient({ dispatch: ({ method }) => (method === 'slow' ? slow.promise : {}) });
  assert.deepEqual(await client.exchange([call(1, 'fast'), call(2, 'slow')]), []);
  const [single] = (await client.exchange(call(3, 'fast'))) as Message[];
  assert.deepEqual([single?.id, single?.seq], [3, 1]);
  slow.resolve({});
  const [batch] = (await client.exchange({ jsonrpc: '2.0', method: 'fast' })) as Message[][];
  assert.deepEqual(
    batch?.map(({ seq }) => seq),
    [2, 3],
  );
});

test('the limit of a batch can be set', async () => {
  const client = openRawClient({ limits: { callsInFlight: 10, batch: 2 } });
  const [answer] = await client.exchange([call(1, 'echo'), call(2, 'echo'), call(3, 'echo')]);
  assertFailure(answer, -32600, 'INVALID_REQUEST');
});

function byId([left]: readonly unknown[], [right]: readonly unknown[]): number {
  return String(left).localeCompare(String(right));
}
