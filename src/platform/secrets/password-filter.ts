import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, readFile, rename } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { AppError } from '../errors/app-error.ts';

/**
 * A Bloom filter of passwords that are known from breaches: says "no" for certain, and "yes" by mistake about once in ten
 * thousand. Nothing leaves this machine, and the file does not give the list away.
 */
export type IsBreached = (password: string) => boolean;

/** The file: this mark, the number of bits (32 bits, little endian), then the bits. */
const MARK = Buffer.from('TRESTLE-BLOOM-1\n', 'latin1');
const HEADER_BYTES = MARK.length + 4;
/** A million passwords take 2.4 MB. */
const BITS_PER_PASSWORD = 20;
const HASHES = 13;
/** 25 million passwords. */
const MAX_BYTES = 64 * 1024 * 1024;
const MAX_LINE_LENGTH = 512;

/** Reads a filter; `''` is none, and everything passes. Throws PASSWORD_FILTER_INVALID. */
export async function readPasswordFilter(file: string): Promise<IsBreached> {
  if (file === '') return () => false;
  const content = await readFile(file).catch((error: Error) => {
    throw new AppError('PASSWORD_FILTER_INVALID', { file, reason: error.message });
  });
  const bits = content.length < HEADER_BYTES ? 0 : content.readUInt32LE(MARK.length);
  const isWhole = bits > 0 && content.length === HEADER_BYTES + Math.ceil(bits / 8);
  if (!isWhole || !content.subarray(0, MARK.length).equals(MARK)) {
    const reason = 'it is not a whole filter; build it with: trestle user password-filter <list> <file>';
    throw new AppError('PASSWORD_FILTER_INVALID', { file, reason });
  }
  const filter = content.subarray(HEADER_BYTES);
  return (password) => positions(password, bits).every((bit) => ((filter[bit >> 3] ?? 0) & (1 << (bit & 7))) !== 0);
}

/** Builds a filter from a list with one password on each line. Returns how many it holds. */
export async function buildPasswordFilter(list: string, file: string): Promise<number> {
  let count = 0;
  for await (const _ of passwordsIn(list)) count += 1;
  if (count === 0) throw new AppError('PASSWORD_FILTER_INVALID', { file: list, reason: 'the list is empty' });
  const bits = count * BITS_PER_PASSWORD;
  if (bits / 8 > MAX_BYTES) {
    const most = Math.floor((MAX_BYTES * 8) / BITS_PER_PASSWORD);
    throw new AppError('PASSWORD_FILTER_INVALID', { file: list, reason: `it has more than ${most} lines; shorten it` });
  }
  const content = Buffer.alloc(HEADER_BYTES + Math.ceil(bits / 8));
  MARK.copy(content);
  content.writeUInt32LE(bits, MARK.length);
  const filter = content.subarray(HEADER_BYTES);
  for await (const password of passwordsIn(list)) {
    for (const bit of positions(password, bits)) filter[bit >> 3] = (filter[bit >> 3] ?? 0) | (1 << (bit & 7));
  }
  const draft = `${file}.${process.pid}`;
  {
    await using handle = await open(draft, 'wx', 0o600);
    await handle.writeFile(content);
    await handle.sync();
  }
  await rename(draft, file);
  return count;
}

async function* passwordsIn(list: string): AsyncGenerator<string> {
  const input = createReadStream(list, 'utf8');
  const failed = new Promise<never>((_, reject) => {
    input.on('error', ({ message }) =>
      reject(new AppError('PASSWORD_FILTER_INVALID', { file: list, reason: message })),
    );
  });
  failed.catch(() => undefined);
  const lines = createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })[Symbol.asyncIterator]();
  for (;;) {
    const { done, value } = await Promise.race([lines.next(), failed]);
    if (done === true) break;
    if (value !== '' && value.length <= MAX_LINE_LENGTH) yield value;
  }
}

/** Case and width do not matter: those are the first things that are varied. */
function positions(password: string, bits: number): readonly number[] {
  const digest = createHash('sha256').update(password.normalize('NFKC').toLowerCase()).digest();
  const first = digest.readUIntLE(0, 6);
  const step = digest.readUIntLE(8, 4);
  return Array.from({ length: HASHES }, (_, index) => (first + index * step) % bits);
}
