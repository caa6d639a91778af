import type { Randomness } from '../clock/randomness.ts';

const ACCEPTABLE = /^[A-Za-z0-9_-]{1,128}$/;
const START_BYTES = 6;

/** Takes over the caller's `x-request-id` when it is harmless, else makes one: unique, cheap, not a secret. */
export function createRequestIds(randomness: Pick<Randomness, 'bytes'>): (given: unknown) => string {
  const start = Buffer.from(randomness.bytes(START_BYTES)).toString('hex');
  let count = 0;
  return (given) => {
    if (typeof given === 'string' && ACCEPTABLE.test(given)) return given;
    count += 1;
    return `req-${start}-${count.toString(36)}`;
  };
}
