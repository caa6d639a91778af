/**
 * Chunks that came with one reading of a socket, as one. They are views into one buffer, with nothing between them but
 * the framing of the transfer, which nobody needs any more: so they are moved together where they are, over the framing.
 * A copy would be memory outside the heap for each reading, and much of that makes V8 collect all garbage more often.
 */
export function joinChunks(chunks: readonly [Buffer, ...Buffer[]]): Buffer {
  const [first] = chunks;
  if (chunks.length === 1) return first;
  const { buffer, byteOffset: start } = first;
  let end = start;
  let length = 0;
  for (const chunk of chunks) {
    if (chunk.buffer !== buffer || chunk.byteOffset < end) return Buffer.concat(chunks);
    end = chunk.byteOffset + chunk.length;
    length += chunk.length;
  }
  const joined = Buffer.from(buffer, start, length);
  let at = 0;
  for (const chunk of chunks) {
    joined.set(chunk, at);
    at += chunk.length;
  }
  return joined;
}
