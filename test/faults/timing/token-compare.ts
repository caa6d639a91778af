import { createSecretMatcher } from '../../../src/platform/secrets/tokens.ts';
import { type Samples, welch } from '../../kit/samples.ts';

const TOKEN_LENGTH = 43;
const WARM_UP = 20_000;
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';

export interface CompareTiming {
  /** Of the compare that the program uses. */
  readonly ours: number;
  /** Of one that stops at the first difference: shows that this measurement would notice. */
  readonly leaking: number;
}

/** Welch's t of wrong tokens that differ in their first character, against those that differ in their last. */
export function timeTokenCompare(count: number, random: () => number): CompareTiming {
  const secret = Array.from({ length: TOKEN_LENGTH }, () => ALPHABET[Math.floor(random() * ALPHABET.length)]).join('');
  const wrong = { first: `_${secret.slice(1)}`, last: `${secret.slice(0, -1)}_` };
  const matches = createSecretMatcher(secret);
  const leaks = (given: string): boolean => {
    for (let index = 0; index < secret.length; index += 1) {
      if (given.charCodeAt(index) !== secret.charCodeAt(index)) return false;
    }
    return true;
  };
  const compare = (isRight: (given: string) => boolean): number => {
    sample(isRight, wrong, WARM_UP, random);
    return welch(sample(isRight, wrong, count, random));
  };
  return { ours: compare(matches), leaking: compare(leaks) };
}

/** Without a promise in between: the calls take about a microsecond. */
function sample(
  isRight: (given: string) => boolean,
  wrong: { readonly first: string; readonly last: string },
  count: number,
  random: () => number,
): Samples {
  const samples: Samples = { first: [], second: [] };
  let right = 0;
  for (let taken = 0; taken < count; taken += 1) {
    const isFirst = random() < 0.5;
    const given = isFirst ? wrong.first : wrong.last;
    const started = process.hrtime.bigint();
    if (isRight(given)) right += 1;
    const took = Number(process.hrtime.bigint() - started);
    (isFirst ? samples.first : samples.second).push(took);
  }
  if (right > 0) throw new Error('a wrong token was taken for the right one');
  return samples;
}
