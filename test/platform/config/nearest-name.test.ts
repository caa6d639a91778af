import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nearestName } from '../../../src/platform/config/problem.ts';
import fc from '../../kit/properties.ts';

const NAMES = ['listen', 'data_dir', 'database', 'auth_token', 'review_auth_token', 'log'];

const CASES: readonly (readonly [name: string, expected: string | undefined])[] = [
  ['listn', 'listen'],
  ['lisetn', 'listen'],
  ['listenn', 'listen'],
  ['dataDir', 'data_dir'],
  ['data-dir', 'data_dir'],
  ['AUTH_TOKN', 'auth_token'],
  ['databse', 'database'],
  ['lgo', 'log'],
  ['x', undefined],
  ['nothing_like_it', undefined],
  ['', undefined],
  ['l'.repeat(5000), undefined],
];

for (const [name, expected] of CASES) {
  test(`the nearest name to "${name.slice(0, 20)}" is ${expected ?? 'none'}`, () => {
    assert.equal(nearestName(name, NAMES), expected);
  });
}

test('a name itself is always the nearest', () => {
  fc.assert(
    fc.property(fc.constantFrom(...NAMES), (name) => {
      assert.equal(nearestName(name, NAMES), name);
    }),
  );
});

test('one letter too many or too few never hides a long name', () => {
  fc.assert(
    fc.property(fc.nat(14), fc.constantFrom('x', '_', ''), (at, letter) => {
      const name = 'review_auth_token';
      const mistyped = name.slice(0, at) + letter + name.slice(letter === '' ? at + 1 : at);
      assert.equal(nearestName(mistyped, NAMES), name);
    }),
  );
});
