import type { Readable } from 'node:stream';

const TAIL_BYTES = 8192;

// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what it looks for
const ESCAPE_SEQUENCES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]*[0-~])/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it looks for
const CONTROL_CHARACTERS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** Keeps the end of what a process says on standard error, and nothing more however much it says. */
export function keepTail(stream: Readable): () => string {
  let chunks: Buffer[] = [];
  let kept = 0;
  stream.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    kept += chunk.length;
    if (kept < 2 * TAIL_BYTES) return;
    chunks = [Buffer.concat(chunks).subarray(-TAIL_BYTES)];
    kept = TAIL_BYTES;
  });
  return () => plainText(Buffer.concat(chunks).subarray(-TAIL_BYTES));
}

/** Text that can be shown anywhere: a cut first character, colours and control characters are gone. */
function plainText(bytes: Buffer): string {
  let start = 0;
  while (start < 4 && ((bytes[start] ?? 0) & 0xc0) === 0x80) start += 1;
  return bytes
    .toString('utf8', start)
    .replaceAll('\r\n', '\n')
    .replaceAll(ESCAPE_SEQUENCES, '')
    .replaceAll(CONTROL_CHARACTERS, '\ufffd')
    .trim();
}
