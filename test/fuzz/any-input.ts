import assert from 'node:assert/strict';
import { AppError } from '../../src/platform/errors/app-error.ts';
import { countTries } from '../kit/count-tries.ts';
import fc from '../kit/properties.ts';

/** What `npm run faults -- fuzz` sets: how many times as long as usual, and where that is noted. */
const { FUZZ_RUNS: times = '1', FUZZ_LOG: log } = process.env;
if (log !== undefined) countTries(log);

/** How often a property is tried. What fails says the seed and the path with which it fails again. */
export function runs(usual: number): { numRuns: number } {
  return { numRuns: Math.ceil(usual * Number(times)) };
}

/** Names that mean something to JavaScript itself, and texts that do to those who read paths, lines and markup. */
const NASTY = [
  ...['__proto__', 'constructor', 'prototype', 'toString', 'valueOf', 'hasOwnProperty', 'length', 'then', 'toJSON'],
  ...['', ' ', '\0', '\r\n', '\n\n', '\u2028', '\ud800', '\ufeff', '..', '../..', '%2e%2e', '{{', '}}', '*'],
];

/** An object that cannot become text: `String(...)` throws. */
const UNPRINTABLE = { toString: null };

export const anyText: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.string({ maxLength: 20 }),
  fc.constantFrom(...NASTY),
);

/** JSON in which the given words, and the nasty ones, are keys and values. */
export function jsonWith(words: readonly string[]): fc.Arbitrary<unknown> {
  const known = fc.constantFrom(...words, ...NASTY);
  const { json } = fc.letrec<{ json: unknown }>((tie) => ({
    json: fc.oneof(
      { depthSize: 'medium', withCrossShrink: true },
      known,
      fc.constantFrom<unknown>(null, true, false, 0, 1, -1, 1.5, 1e308, 2 ** 53),
      fc.constant(UNPRINTABLE),
      anyText,
      fc.array(tie('json'), { maxLength: 3 }),
      fc.dictionary(fc.oneof({ weight: 9, arbitrary: known }, anyText), tie('json'), { maxKeys: 6 }),
    ),
  }));
  // As it would come from outside: `__proto__` is an ordinary member then.
  return json.map((value) => JSON.parse(JSON.stringify(value)) as unknown);
}

/** Where to cut bytes, whatever their length. */
export const anyCuts: fc.Arbitrary<readonly number[]> = fc.array(fc.nat(100_000), { maxLength: 20 });

export function cut(bytes: Buffer, places: readonly number[]): readonly Buffer[] {
  const sorted = [...new Set(places.map((place) => place % (bytes.length + 1)))].sort((a, b) => a - b);
  return [0, ...sorted].map((start, index) => bytes.subarray(start, sorted[index] ?? bytes.length));
}

export type Outcome<Value> = { readonly value: Value } | { readonly refused: string };

/** What came of a reading that may refuse, in our own words and in no others. */
export function outcomeOf<Value>(read: () => Value): Outcome<Value> {
  try {
    return { value: read() };
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return { refused: error.code };
  }
}

export function assertNothingPolluted(): void {
  assert.deepEqual(Object.keys(Object.prototype), []);
  assert.deepEqual(Object.keys(Array.prototype), []);
}
