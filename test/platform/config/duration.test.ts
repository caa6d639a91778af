import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatDuration, parseDuration } from '../../../src/platform/config/setting.ts';
import fc from '../../kit/properties.ts';

const CASES: readonly (readonly [text: string, milliseconds: number | undefined])[] = [
  ['0s', 0],
  ['500ms', 500],
  ['30s', 30_000],
  ['10m', 600_000],
  ['2h', 7_200_000],
  ['30d', 2_592_000_000],
  ['30', undefined],
  ['1.5s', undefined],
  ['-1s', undefined],
  ['1 s', undefined],
  ['s', undefined],
  ['1w', undefined],
  ['', undefined],
  ['999999999999d', undefined],
];

for (const [text, milliseconds] of CASES) {
  test(`the duration "${text}" is ${milliseconds === undefined ? 'refused' : `${milliseconds} ms`}`, () => {
    assert.equal(parseDuration(text), milliseconds);
  });
}

test('a duration that was written out is read back as the same time', () => {
  fc.assert(
    fc.property(fc.nat({ max: 10 ** 12 - 1 }), (milliseconds) => {
      assert.equal(parseDuration(formatDuration(milliseconds)), milliseconds);
    }),
  );
});

test('a duration is written in the largest unit that holds it exactly', () => {
  assert.deepEqual([90_000, 60_000, 86_400_000, 1500, 0].map(formatDuration), ['90s', '1m', '1d', '1500ms', '0s']);
});
