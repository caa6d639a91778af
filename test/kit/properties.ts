import fc from 'fast-check';

/**
 * fast-check with a seed that stays: a suite tries the same inputs on every machine, so that a change alone decides whether it passes.
 * `FUZZ_SEED=<number>` tries others, with any test; the long run `npm run faults -- fuzz` sets it.
 */
const { FUZZ_SEED: seed = '20261117' } = process.env;
fc.configureGlobal({ seed: Number(seed) });

export default fc;
