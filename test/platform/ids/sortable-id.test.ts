import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { createFakeRandomness } from '../../kit/fake-randomness.ts';
import fc from '../../kit/properties.ts';

test('an id is its prefix and 26 characters that need no escaping anywhere', () => {
  const makeId = createSortableIds(systemClock, systemRandomness);
  for (const prefix of ['job-', 'usr_', ''])
    assert.match(makeId(prefix), new RegExp(`^${prefix}[0-9a-hjkmnp-tv-z]{26}$`));
});

test('ids are unique and sort in the order of their making, also when the wall clock steps back', () => {
  const steps = fc.array(fc.oneof(fc.constant(0), fc.integer({ min: -100_000, max: 100_000 })), { maxLength: 200 });
  fc.assert(
    fc.property(steps, fc.nat(), (moves, seed) => {
      const clock = createFakeClock();
      const makeId = createSortableIds(clock, createFakeRandomness(seed));
      const ids = moves.map((move) => {
        clock.stepWall(move);
        return makeId('x-');
      });
      assert.deepEqual(ids, [...new Set(ids)].sort());
    }),
  );
});

test('ids of one millisecond stay unique and sorted when the random part is used up', () => {
  const clock = createFakeClock();
  const makeId = createSortableIds(clock, { bytes: (length) => new Uint8Array(length).fill(255) });
  const ids = Array.from({ length: 5 }, () => makeId(''));
  assert.deepEqual(ids, [...new Set(ids)].sort());
});

test('ids made later sort later, no matter who made them', async () => {
  const clock = createFakeClock();
  const first = createSortableIds(clock, createFakeRandomness(1))('');
  await clock.advance(1);
  const second = createSortableIds(clock, createFakeRandomness(2))('');
  assert.ok(first < second);
  assert.notEqual(first.slice(10), second.slice(10));
});

test('many ids made at full speed are all different', () => {
  const makeId = createSortableIds(systemClock, systemRandomness);
  assert.equal(new Set(Array.from({ length: 100_000 }, () => makeId(''))).size, 100_000);
});
