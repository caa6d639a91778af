/** What a server sends over a WebSocket, one piece of it. */
export interface ServerFrame {
  readonly opcode: number;
  readonly payload: Buffer;
}

/** Lengths that stand for a length in the next two or eight bytes. */
const LONG = 126;
const LONGER = 127;

/** The whole frames at the beginning of what has come, and what is left. */
export function readFrames(bytes: Buffer): { readonly frames: readonly ServerFrame[]; readonly rest: Buffer } {
  const frames: ServerFrame[] = [];
  let at = 0;
  for (;;) {
    const place = placeOfPayload(bytes, at);
    if (place === undefined || place.end > bytes.length) return { frames, rest: bytes.subarray(at) };
    frames.push({ opcode: (bytes[at] ?? 0) & 0x0f, payload: bytes.subarray(place.start, place.end) });
    at = place.end;
  }
}

/** Undefined when not even the length has come. */
function placeOfPayload(bytes: Buffer, at: number): { readonly start: number; readonly end: number } | undefined {
  if (bytes.length < at + 2) return undefined;
  const length = bytes[at + 1] ?? 0;
  if (length < LONG) return { start: at + 2, end: at + 2 + length };
  const start = at + (length === LONGER ? 10 : 4);
  if (bytes.length < start) return undefined;
  return {
    start,
    end: start + (length === LONGER ? Number(bytes.readBigUInt64BE(at + 2)) : bytes.readUInt16BE(at + 2)),
  };
}
