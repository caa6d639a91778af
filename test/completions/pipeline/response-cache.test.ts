import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createResponseCache } from '../../../src/completions/operations/response-cache.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const MINUTE_MS = 60_000;
const body = (text: string): Buffer => Buffer.from(text);

test('an answer is given again until its time is over, and not a moment longer', async () => {
  const clock = createFakeClock();
  const cache = createResponseCache({ clock });
  cache.put('key_1', 'a', body('kept'), MINUTE_MS);
  await clock.advance(MINUTE_MS - 1);
  assert.equal(String(cache.get('a')), 'kept');
  await clock.advance(1);
  assert.equal(cache.get('a'), undefined);
});

test('an answer belongs to a key, a path and a body: where one differs it is another', () => {
  const { keyOf } = createResponseCache({ clock: createFakeClock() });
  const own = keyOf('key_1', '/v1/chat/completions', body('{}'));
  assert.equal(keyOf('key_1', '/v1/chat/completions', body('{}')), own);
  assert.notEqual(keyOf('key_2', '/v1/chat/completions', body('{}')), own);
  assert.notEqual(keyOf('key_1', '/v1/completions', body('{}')), own);
  assert.notEqual(keyOf('key_1', '/v1/chat/completions', body('{ }')), own);
});

test('what went through other guardrails is another answer, also in a store that outlives a restart', () => {
  const key = (scope?: string) => {
    const cache = createResponseCache({ clock: createFakeClock(), ...(scope !== undefined && { scope }) });
    return cache.keyOf('key_1', '/v1/chat/completions', body('{}'));
  };
  assert.equal(key('[{"name":"a"}]'), key('[{"name":"a"}]'));
  assert.notEqual(key('[{"name":"a"}]'), key());
  assert.notEqual(key('[{"name":"a"}]'), key('[{"name":"b"}]'));
});

test('what does not fit drives out what was not used for longest', () => {
  const cache = createResponseCache({ clock: createFakeClock(), maxBytes: 3 * 1256 });
  for (const key of ['a', 'b', 'c']) cache.put('key_1', key, Buffer.alloc(1000), MINUTE_MS);
  cache.get('a');
  cache.put('key_1', 'd', Buffer.alloc(1000), MINUTE_MS);
  assert.deepEqual(
    ['a', 'b', 'c', 'd'].filter((key) => cache.get(key) !== undefined),
    ['a', 'c', 'd'],
  );
});

test('an answer that comes again takes the place of the first, and takes no more room', () => {
  const cache = createResponseCache({ clock: createFakeClock(), maxBytes: 2 * 1256 });
  cache.put('key_1', 'other', Buffer.alloc(1000), MINUTE_MS);
  for (let count = 0; count < 5; count += 1) cache.put('key_1', 'a', Buffer.alloc(1000, count), MINUTE_MS);
  assert.equal(cache.get('a')?.[0], 4);
  assert.notEqual(cache.get('other'), undefined);
});

test('room that has run out of time is free again', async () => {
  const clock = createFakeClock();
  const cache = createResponseCache({ clock, maxBytes: 2 * 1256 });
  cache.put('key_1', 'kept', Buffer.alloc(1000), 2 * MINUTE_MS);
  cache.put('key_1', 'short', Buffer.alloc(1000), MINUTE_MS);
  await clock.advance(MINUTE_MS);
  assert.equal(cache.get('short'), undefined);
  cache.put('key_1', 'next', Buffer.alloc(1000), MINUTE_MS);
  assert.notEqual(cache.get('kept'), undefined);
});

test('an answer that is too large for one is not kept', () => {
  const cache = createResponseCache({ clock: createFakeClock(), maxEntryBytes: 10 });
  cache.put('key_1', 'small', Buffer.alloc(10), MINUTE_MS);
  cache.put('key_1', 'large', Buffer.alloc(11), MINUTE_MS);
  assert.notEqual(cache.get('small'), undefined);
  assert.equal(cache.get('large'), undefined);
});
