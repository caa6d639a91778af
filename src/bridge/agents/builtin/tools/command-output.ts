import type { Readable } from 'node:stream';

/** What is kept of a stream of any length: its beginning and its end. */
export interface KeptOutput {
  text(): string;
}

export interface KeepOptions {
  /** Of the beginning, and as much of the end. */
  readonly halfBytes: number;
  /** Called once, when more than this came. */
  readonly limitBytes: number;
  onLimit(): void;
}

export function keepOutput(stream: Readable, { halfBytes, limitBytes, onLimit }: KeepOptions): KeptOutput {
  const head: Buffer[] = [];
  let tail: Buffer[] = [];
  let headLeft = halfBytes;
  let tailBytes = 0;
  let size = 0;
  stream.on('data', (chunk: Buffer) => {
    const isFirstOver = size <= limitBytes && size + chunk.length > limitBytes;
    size += chunk.length;
    const first = chunk.subarray(0, headLeft);
    if (first.length > 0) head.push(first);
    headLeft -= first.length;
    tail.push(chunk.subarray(first.length));
    tailBytes += chunk.length - first.length;
    if (tailBytes >= 2 * halfBytes) {
      tail = [Buffer.concat(tail).subarray(-halfBytes)];
      tailBytes = halfBytes;
    }
    if (isFirstOver) onLimit();
  });
  return {
    text() {
      const omitted = size - 2 * halfBytes;
      if (omitted <= 0) return Buffer.concat([...head, ...tail]).toString('utf8');
      const end = Buffer.concat(tail).subarray(-halfBytes);
      return `${wholeCharacters(Buffer.concat(head))}\n[${omitted} bytes left out]\n${wholeCharacters(end)}`;
    },
  };
}

/** Text without the parts of characters that a cut has left at its ends. */
function wholeCharacters(bytes: Buffer): string {
  let start = 0;
  while (start < 3 && ((bytes[start] ?? 0) & 0xc0) === 0x80) start += 1;
  let end = bytes.length;
  for (let back = 1; back <= Math.min(3, end - start); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    if (byte >= 0xc0 && lengthOfCharacter(byte) > back) end -= back;
    break;
  }
  return bytes.toString('utf8', start, end);
}

function lengthOfCharacter(firstByte: number): number {
  if (firstByte >= 0xf0) return 4;
  return firstByte >= 0xe0 ? 3 : 2;
}
