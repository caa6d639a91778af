import type { Clock } from '../clock/clock.ts';
import type { Randomness } from '../clock/randomness.ts';

/** Makes ids such as `job-01k9z...`: a prefix, then 26 characters that sort by the time they were made. */
export type MakeId = (prefix: string) => string;

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';
const TIME_LENGTH = 10;
const MAX_TIME = 2 ** 48 - 1;
const RANDOM_BYTES = 10;
/** Asking the operating system takes four times as long as the rest of an id, for a few bytes as for many. */
const IDS_PER_READ = 100;

/**
 * 48 bits of milliseconds and 80 random bits, in Crockford's base 32. Within one millisecond (or when the wall clock
 * steps back) the random part counts up instead, so that ids made by one process always sort in the order of their making.
 */
export function createSortableIds(clock: Pick<Clock, 'now'>, randomness: Pick<Randomness, 'bytes'>): MakeId {
  let lastTime = -1;
  let tail = new Uint8Array(RANDOM_BYTES);
  let ahead = new Uint8Array(0);
  function takeRandom(): Uint8Array<ArrayBuffer> {
    if (ahead.length === 0) ahead = Uint8Array.from(randomness.bytes(RANDOM_BYTES * IDS_PER_READ));
    const taken = ahead.slice(0, RANDOM_BYTES);
    ahead = ahead.subarray(RANDOM_BYTES);
    return taken;
  }
  return (prefix) => {
    const time = clock.now();
    if (time > lastTime || !increment(tail)) {
      lastTime = Math.max(time, lastTime + (time > lastTime ? 0 : 1));
      tail = takeRandom();
    }
    return prefix + encodeTime(lastTime) + encodeBytes(tail);
  };
}

/** The characters after the prefix that every id made at that moment begins with: earlier ids sort before them. */
export function idTime(at: number): string {
  return encodeTime(Math.min(Math.max(0, Math.floor(at)), MAX_TIME));
}

/** Adds one; false when every bit was set. */
function increment(bytes: Uint8Array): boolean {
  for (let index = bytes.length - 1; index >= 0; index -= 1) {
    const value = bytes[index] ?? 0;
    bytes[index] = value === 255 ? 0 : value + 1;
    if (value !== 255) return true;
  }
  return false;
}

function encodeTime(time: number): string {
  let rest = time;
  let text = '';
  for (let index = 0; index < TIME_LENGTH; index += 1) {
    text = ALPHABET.charAt(rest % 32) + text;
    rest = Math.floor(rest / 32);
  }
  return text;
}

function encodeBytes(bytes: Uint8Array): string {
  let text = '';
  let bits = 0;
  let buffer = 0;
  for (const byte of bytes) {
    buffer = (buffer << 8) | byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += ALPHABET.charAt((buffer >> bits) & 31);
    }
    buffer &= (1 << bits) - 1;
  }
  return text;
}
