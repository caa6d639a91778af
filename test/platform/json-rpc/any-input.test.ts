import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { describe, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { answerHttp } from '../../../src/platform/json-rpc/answer-http.ts';
import fc from '../../kit/properties.ts';
import { call, type Message, openRawClient, serving } from './carriers.ts';

const mostly = <Value>(likely: Value, other: fc.Arbitrary<unknown>) =>
  fc.oneof({ weight: 4, arbitrary: fc.constant(likely) }, { weight: 1, arbitrary: other });

const anyRequest = fc.record(
  {
    jsonrpc: mostly('2.0', fc.jsonValue()),
    id: fc.oneof(fc.integer(), fc.string(), fc.jsonValue()),
    method: fc.oneof(fc.constantFrom('echo', 'later', 'subtract', 'crowded', 'break', 'no.such'), fc.jsonValue()),
    params: fc.oneof(fc.object({ maxDepth: 1, values: [fc.string(), fc.integer()] }), fc.jsonValue()),
    result: fc.jsonValue(),
    error: fc.jsonValue(),
  },
  { requiredKeys: [] },
);

const anyText = fc.oneof(
  fc.array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 40 }).map((units) => String.fromCharCode(...units)),
  fc.json(),
  anyRequest.map((request) => JSON.stringify(request)),
  fc.array(anyRequest, { maxLength: 5 }).map((batch) => JSON.stringify(batch)),
  anyRequest.map((request) => JSON.stringify(request).slice(0, -1)),
);

/** A single envelope as the hybrid shape wants it; a batch has at least one. */
function assertValid(answer: unknown): number[] {
  if (Array.isArray(answer)) {
    assert.ok(answer.length > 0);
    return answer.flatMap(assertValid);
  }
  const { seq, ...message } = answer as Message;
  assert.ok(Number.isSafeInteger(seq));
  const common = { jsonrpc: '2.0', id: message.id, type: 'res' };
  assert.ok(message.id === null || typeof message.id === 'string' || Number.isSafeInteger(message.id));
  if (message.error === undefined) {
    assert.deepEqual(message, { ...common, ok: true, result: message.payload, payload: message.payload });
  } else {
    assert.deepEqual(message, { ...common, ok: false, error: message.error, payload: null });
    assert.ok(Number.isSafeInteger(message.error.code));
    assert.match(String(message.error.data.code), /^[A-Z_]+$/);
  }
  return [Number(seq)];
}

describe('any input', () => {
  test('leaves a peer usable, and is answered with valid envelopes whose numbers rise', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(anyText, { maxLength: 8 }), async (texts) => {
        const client = openRawClient();
        for (const text of texts) client.send(text);
        await turn();
        const answers = [
          ...client.received.splice(0),
          ...(await client.exchange(call('last', 'echo', { fine: true }))),
        ];
        const seqs = answers.flatMap(assertValid);
        assert.deepEqual(
          seqs,
          seqs.map((_, index) => index + 1),
        );
        const last = answers.at(-1) as Message;
        assert.deepEqual([last.id, last.result], ['last', { fine: true }]);
      }),
      { numRuns: 200 },
    );
  });

  test('over HTTP gets 204 or a valid envelope with one of four statuses', async () => {
    const bodies = fc.oneof(
      anyText,
      fc.uint8Array({ maxLength: 40 }),
      anyText.map((text) => Buffer.from(text)),
    );
    await fc.assert(
      fc.asyncProperty(bodies, async (body) => {
        const answer = await answerHttp({ ...serving(), body, requestId: 'http-1' });
        assert.ok([200, 204, 400, 503].includes(answer.status));
        assert.equal(answer.body === undefined, answer.status === 204);
        if (answer.body !== undefined) assertValid(JSON.parse(answer.body));
      }),
      { numRuns: 300 },
    );
  });
});

test('seq rises by one under any interleaving of calls, batches and notifications', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.scheduler(),
      fc.array(fc.constantFrom('call', 'telling', 'batch', 'news'), { maxLength: 12 }),
      async (scheduler, kinds) => {
        const client = openRawClient({
          async dispatch(incoming) {
            await scheduler.schedule(Promise.resolve());
            if (incoming.method === 'telling') incoming.notify('told', {});
            return {};
          },
        });
        for (const [id, kind] of kinds.entries()) {
          if (kind === 'news') client.peer.notify('news', { id });
          else
            client.send(
              kind !== 'batch'
                ? call(id, kind)
                : [call(id, 'any'), call(-id, 'any'), { jsonrpc: '2.0', method: 'any' }],
            );
        }
        await turn();
        await scheduler.waitAll();
        await turn();
        const seqs = (client.received as (Message | Message[])[]).flat().map(({ seq }) => seq);
        const expected = kinds.reduce((count, kind) => count + (kind === 'batch' || kind === 'telling' ? 2 : 1), 0);
        assert.deepEqual(
          seqs,
          Array.from({ length: expected }, (_, index) => index + 1),
        );
      },
    ),
    { numRuns: 100 },
  );
});
