import { Buffer } from 'node:buffer';

/** One message, or one line that is none, as it stood in the stream. */
export interface Frame {
  /** To be read at once: the memory is used again. */
  readonly bytes: Buffer;
  /** Whether it came behind a `Content-Length` header instead of on a line of its own. */
  readonly counted: boolean;
}

export interface FrameReader {
  /** Calls back for each whole message in what was pushed so far. False when one is longer than allowed: stop reading. */
  push(chunk: Buffer): boolean;
  /** The stream is over: what stands on its last, unfinished line counts. */
  end(): void;
}

const NEWLINE = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;
const TAB = 0x09;
const HEADER_START = /^content-(?:length|type)[ \t]*:/i;
const LENGTH_HEADER = /^content-length[ \t]*:[ \t]*(\d{1,15})[ \t]*$/i;
const ANY_HEADER = /^[\w-]{1,64}[ \t]*:/;
const MAX_HEADER_BYTES = 256;
const MIN_STORE_BYTES = 1024;
const MAX_IDLE_STORE_BYTES = 64 * 1024;

/**
 * Cuts a byte stream into messages: each on a line (blank lines are skipped), or behind a header block that gives its
 * length in bytes; which of the two is seen anew for every message. At most `maxBytes` of an unfinished message are kept.
 */
export function createFrameReader(maxBytes: number, onFrame: (frame: Frame) => void): FrameReader {
  let store = Buffer.alloc(0);
  let kept = 0;
  /** What is being read: a line, a header block (and the length it gave), or a body of so many bytes. */
  let inHeaders = false;
  let length: number | undefined;
  let body: number | undefined;

  function push(chunk: Buffer): boolean {
    let at = 0;
    while (at < chunk.length) {
      const newline = body === undefined ? chunk.indexOf(NEWLINE, at) : -1;
      const missing = body === undefined ? newline - at : body - kept;
      const whole = body === undefined ? newline !== -1 : missing <= chunk.length - at;
      const part = whole ? chunk.subarray(at, at + missing) : chunk.subarray(at);
      if (kept + part.length > maxBytes) return false;
      if (!whole) {
        keep(part);
        return true;
      }
      at += missing;
      if (body === undefined) at += 1;
      if (!finish(part)) return false;
    }
    return true;
  }

  /** Copies into memory that doubles: a message may come in millions of pieces. */
  function keep(part: Buffer): void {
    if (kept + part.length > store.length) {
      const larger = Buffer.allocUnsafe(Math.max(MIN_STORE_BYTES, 2 * store.length, kept + part.length));
      store.copy(larger, 0, 0, kept);
      store = larger;
    }
    part.copy(store, kept);
    kept += part.length;
  }

  /** Ends a line or a body with its last part. */
  function finish(part: Buffer): boolean {
    let bytes = part;
    if (kept > 0) {
      keep(part);
      bytes = store.subarray(0, kept);
      if (store.length > MAX_IDLE_STORE_BYTES) store = Buffer.alloc(0);
      kept = 0;
    }
    if (body === undefined) return takeLine(withoutEnding(bytes));
    body = undefined;
    onFrame({ bytes, counted: true });
    return true;
  }

  function takeLine(line: Buffer): boolean {
    if (inHeaders) return takeHeader(line);
    if (isBlank(line)) return true;
    if (isLetterC(line[0]) && HEADER_START.test(line.toString('latin1', 0, MAX_HEADER_BYTES))) return takeHeader(line);
    onFrame({ bytes: line, counted: false });
    return true;
  }

  function takeHeader(line: Buffer): boolean {
    inHeaders = true;
    const text = line.toString('latin1', 0, MAX_HEADER_BYTES);
    if (ANY_HEADER.test(text)) {
      const [, digits] = LENGTH_HEADER.exec(text) ?? [];
      if (digits !== undefined) length = Number(digits);
      return true;
    }
    inHeaders = false;
    const announced = length;
    length = undefined;
    // It was no header block, only something printed that looked like the start of one.
    if (line.length > 0) return takeLine(line);
    body = announced === 0 ? undefined : announced;
    return body === undefined || body <= maxBytes;
  }

  function end(): void {
    if (kept > 0 && body === undefined) finish(Buffer.alloc(0));
  }

  return { push, end };
}

function withoutEnding(line: Buffer): Buffer {
  return line.at(-1) === CARRIAGE_RETURN ? line.subarray(0, -1) : line;
}

function isBlank(line: Buffer): boolean {
  return line.every((byte) => byte === SPACE || byte === TAB || byte === CARRIAGE_RETURN);
}

/** Spares nearly all lines the search for a header. */
function isLetterC(byte: number | undefined): boolean {
  return byte === 0x43 || byte === 0x63;
}
