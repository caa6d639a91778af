import type { FileHandle } from 'node:fs/promises';
import { StringDecoder } from 'node:string_decoder';

export interface Line {
  readonly text: string;
  /** The line is longer than what is given of it. */
  readonly isCut: boolean;
}

export interface ReadLinesOptions {
  /** What is longer is cut off; it never stands in memory as a whole. */
  readonly maxLineCharacters: number;
  /** Where reading ends, whatever is left. */
  readonly maxBytes: number;
}

const CHUNK_BYTES = 64 * 1024;
const SAMPLE_BYTES = 8 * 1024;

/** The lines of a file, one by one, however large it is. Bytes that are no UTF-8 come as replacement characters. */
export async function* readLines(
  handle: FileHandle,
  { maxLineCharacters, maxBytes }: ReadLinesOptions,
): AsyncGenerator<Line> {
  const decoder = new StringDecoder('utf8');
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let begun = '';
  let isCut = false;
  const add = (piece: string): void => {
    const room = maxLineCharacters - begun.length;
    if (piece.length > room) isCut = true;
    if (room > 0) begun += piece.slice(0, room);
  };
  const take = (): Line => {
    const line = { text: begun.endsWith('\r') ? begun.slice(0, -1) : begun, isCut };
    begun = '';
    isCut = false;
    return line;
  };
  let position = 0;
  while (position < maxBytes) {
    const { bytesRead } = await handle.read(buffer, 0, Math.min(CHUNK_BYTES, maxBytes - position), position);
    if (bytesRead === 0) break;
    position += bytesRead;
    const pieces = decoder.write(buffer.subarray(0, bytesRead)).split('\n');
    const last = pieces.pop() ?? '';
    for (const piece of pieces) {
      add(piece);
      yield take();
    }
    add(last);
  }
  add(decoder.end());
  if (begun !== '') yield take();
}

/** Text does not hold NUL bytes; nearly everything else does, soon. */
export async function isBinary(handle: FileHandle): Promise<boolean> {
  const buffer = Buffer.allocUnsafe(SAMPLE_BYTES);
  const { bytesRead } = await handle.read(buffer, 0, SAMPLE_BYTES, 0);
  return buffer.subarray(0, bytesRead).includes(0);
}
