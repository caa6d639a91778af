import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventStreamCodec } from '@smithy/eventstream-codec';
import type { StreamEvent } from '../../../src/completions/dialects/dialect.ts';
import { loadFrameReader } from '../../../src/completions/relay/event-splitter.ts';
import fc from '../../kit/properties.ts';

const codec = new EventStreamCodec(
  (bytes) => (typeof bytes === 'string' ? bytes : Buffer.from(bytes).toString('utf8')),
  (text) => Buffer.from(text, 'utf8'),
);

function frame(headers: Record<string, string>, body: string): Uint8Array {
  const typed = Object.entries(headers).map(([name, value]) => [name, { type: 'string' as const, value }]);
  return codec.encode({ headers: Object.fromEntries(typed), body: Buffer.from(body) });
}

const event = (type: string, body: unknown) =>
  frame({ ':message-type': 'event', ':event-type': type, ':content-type': 'application/json' }, JSON.stringify(body));

const createReader = await loadFrameReader();

test('P-04: events come out of AWS frames however the bytes are cut', () => {
  const frames = [
    event('messageStart', { role: 'assistant' }),
    event('contentBlockDelta', { delta: { text: 'Grüße 🌍' } }),
    frame({ ':message-type': 'exception', ':exception-type': 'throttlingException' }, '{"message":"Slow down"}'),
    frame({ ':message-type': 'error', ':error-code': 'Internal', ':error-message': 'Oh' }, ''),
  ];
  const bytes = Buffer.concat(frames);
  const expected: StreamEvent[] = [
    { event: 'messageStart', data: '{"role":"assistant"}' },
    { event: 'contentBlockDelta', data: '{"delta":{"text":"Grüße 🌍"}}' },
    { event: 'exception:throttlingException', data: '{"message":"Slow down"}' },
    { event: 'error:Internal', data: '{"message":"Oh"}' },
  ];
  fc.assert(
    fc.property(fc.array(fc.nat(bytes.length), { maxLength: 12 }), (cuts) => {
      const reader = createReader();
      const read: StreamEvent[] = [];
      let from = 0;
      for (const cut of [...cuts.sort((a, b) => a - b), bytes.length]) {
        read.push(...reader.feed(bytes.subarray(from, cut)));
        from = cut;
      }
      assert.deepEqual([...read, ...reader.end()], expected);
    }),
  );
});

test('one byte at a time costs no more than linear time', () => {
  const bytes = Buffer.from(event('contentBlockDelta', { delta: { toolUse: { input: 'x'.repeat(200_000) } } }));
  const reader = createReader();
  let events = 0;
  for (let at = 0; at < bytes.length; at += 1) events += reader.feed(bytes.subarray(at, at + 1)).length;
  assert.equal(events, 1);
});

test('a damaged frame, and one of impossible length, break the stream', () => {
  const damaged = Buffer.from(event('messageStart', { role: 'assistant' }));
  damaged[damaged.length - 6] = (damaged[damaged.length - 6] ?? 0) ^ 1;
  const code = (bytes: Uint8Array) => () => createReader().feed(bytes);
  assert.throws(code(damaged), { code: 'UPSTREAM_ERROR' });
  assert.throws(code(Buffer.alloc(16)), { code: 'UPSTREAM_ERROR' });
  assert.throws(code(Buffer.alloc(16, 0xff)), { code: 'UPSTREAM_ERROR' });
});

test('a frame may be as large as an event of any other stream, and no larger', async () => {
  const large = event('contentBlockDelta', { delta: { toolUse: { input: 'x'.repeat(9 * 1024 * 1024) } } });
  assert.equal(createReader().feed(large).length, 1);
  const createSmall = await loadFrameReader(1024);
  assert.throws(() => createSmall().feed(large), /max_event_bytes|UPSTREAM_ERROR/);
});

test('a frame that is cut off by the end of the stream is no event', () => {
  const reader = createReader();
  assert.deepEqual(reader.feed(event('messageStop', {}).subarray(0, 20)), []);
  assert.deepEqual(reader.end(), []);
});
