import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createKeyLookup, matchesAny, matchesPattern } from '../../../src/completions/keys/issued-key.ts';
import type { KeyRow } from '../../../src/completions/storage/completions-schema.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import fc from '../../kit/properties.ts';

const ROW: KeyRow = {
  id: 'key_1',
  owner: '',
  team: '',
  name: 'test',
  digest: 'digest-1',
  hint: 'tsk_abcd',
  models: '[]',
  requests_per_minute: 5,
  tokens_per_minute: null,
  max_parallel: null,
  store_content: '',
  tags: '',
  budget_usd: null,
  budget_period: null,
  expires_at: null,
  created_at: 0,
  issued_by: '',
  enabled: 1,
  previous_digest: null,
  previous_until: null,
  revision: 0,
};

/** A store whose answers come when the test lets them. */
function start(freshMs: number) {
  const clock = createFakeClock();
  const reads: ((row: KeyRow | undefined) => void)[] = [];
  const store = {
    byDigest: () => new Promise<KeyRow | undefined>((resolve) => reads.push(resolve)),
  };
  return { clock, reads, lookup: createKeyLookup({ store, clock, freshMs: () => freshMs }) };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

test('a key is read once and then found without waiting; calls that come together share the read', async () => {
  const { lookup, reads } = start(Number.POSITIVE_INFINITY);
  const both = [lookup.find('digest-1'), lookup.find('digest-1')];
  assert.equal(reads.length, 1);
  reads[0]?.(ROW);
  const [first, second] = await Promise.all(both);
  assert.equal(first, second);
  assert.deepEqual(first?.holder.buckets, [{ id: 'key_1', name: 'this key', limits: { requestsPerMinute: 5 } }]);
  assert.equal(lookup.find('digest-1'), first);
});

test('P-25: what was read while a key was removed is read again before it counts', async () => {
  const { lookup, reads } = start(Number.POSITIVE_INFINITY);
  const finding = lookup.find('digest-1');
  lookup.forget('key_1');
  reads[0]?.(ROW);
  await settle();
  assert.equal(reads.length, 2);
  reads[1]?.(undefined);
  assert.equal(await finding, undefined);
  assert.ok(lookup.find('digest-1') instanceof Promise);
});

test('where others may remove keys, a key is read again when it is no longer fresh, and stays the same holder', async () => {
  const { clock, lookup, reads } = start(1000);
  const finding = lookup.find('digest-1');
  reads[0]?.(ROW);
  const first = await finding;
  await clock.advance(999);
  assert.equal(lookup.find('digest-1'), first);
  await clock.advance(1);
  const again = lookup.find('digest-1');
  reads[1]?.(ROW);
  assert.equal(await again, first);
  await clock.advance(1000);
  const gone = lookup.find('digest-1');
  reads[2]?.(undefined);
  assert.equal(await gone, undefined);
});

test('a pattern matches whole names, and a star any run of characters', () => {
  for (const [pattern, text, expected] of [
    ['fast', 'fast', true],
    ['fast', 'faster', false],
    ['*', '', true],
    ['*', 'openai/gpt', true],
    ['openai/*', 'openai/gpt-4o', true],
    ['openai/*', 'azure/gpt-4o', false],
    ['openai/*', 'openai/', true],
    ['*/gpt-4o', 'openai/gpt-4o', true],
    ['*/gpt-4o', 'openai/gpt-4o-mini', false],
    ['a*b*c', 'a-b-c', true],
    ['a*b*c', 'acb', false],
    ['ab*bc', 'abc', false],
    ['a**c', 'abc', true],
    ['openai/gpt.4o', 'openai/gpt-4o', false],
    ['*aa*aa*', 'aaa', false],
    ['*aa*aa*', 'aaaa', true],
  ] as const) {
    assert.equal(matchesPattern(pattern, text), expected, `${pattern} and ${text}`);
  }
});

test('a pattern with stars matches what a regular expression says it should', () => {
  const word = fc.string({ unit: fc.constantFrom('a', 'b', '*'), maxLength: 8 });
  const text = fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 10 });
  fc.assert(
    fc.property(word, text, (pattern, name) => {
      const expected = new RegExp(`^${pattern.replaceAll('*', '.*')}$`).test(name);
      assert.equal(matchesPattern(pattern, name), expected);
    }),
    { numRuns: 500 },
  );
});

test('no patterns stand for every model', () => {
  assert.equal(matchesAny([], 'anything'), true);
  assert.equal(matchesAny(['x', 'y*'], 'yes'), true);
  assert.equal(matchesAny(['x', 'y*'], 'no'), false);
});
