import { Buffer, isUtf8 } from 'node:buffer';
import type { Duplex, Readable, Writable } from 'node:stream';
import { type Clock, systemClock } from '../clock/clock.ts';
import { STALLED_AFTER_MS, watchStalledWrites, whenDrained } from '../queue/stalled-writes.ts';

/** Why a channel ended. `code` is a WebSocket close code; other transports use the nearest one. */
export interface ChannelEnd {
  readonly code: number;
  readonly reason: string;
}

/** Whole messages in both directions: a WebSocket, a pair of pipes, or the in-memory pair of the tests. */
export interface MessageChannel {
  /**
   * Queues one message. After the end it does nothing. A peer that has stopped reading is closed by the channel itself.
   * `parts` are those of a large text, for channels that can send them without building the text.
   */
  send(text: string, parts?: readonly string[]): void;
  /** True while so much waits for the peer that a sender that can wait should wait for `drained`. Absent: never. */
  isBehind?(): boolean;
  /** Resolves when the peer has taken what was sent, or is gone. Absent: immediately. */
  drained?(): Promise<void>;
  close(code?: number, reason?: string): void;
  /** One listener each; messages that came before it was set are kept for it. */
  onMessage(listener: (text: string) => void): void;
  onEnd(listener: (end: ChannelEnd) => void): void;
  /** Makes a stream of bytes of the channel, instead of messages; its ends are those of the channel. Only WebSockets can. */
  bytes?(): Duplex;
}

export interface LineChannelOptions {
  readonly readable: Readable;
  readonly writable: Writable;
  /** A longer message ends the channel. */
  readonly maxLineBytes: number;
  /** With more than this waiting, a reader that takes nothing for `stalledAfterMs` ends the channel. */
  readonly maxBufferedBytes?: number;
  readonly stalledAfterMs?: number;
  /**
   * For the output of foreign programs: takes lines that do not start like a message, which are otherwise messages that
   * cannot be parsed. Bytes that are not UTF-8 are then replaced; otherwise they end the channel, as on a WebSocket.
   */
  readonly onNoise?: (line: string) => void;
  readonly clock?: Pick<Clock, 'after'>;
}

export interface LineChannel extends MessageChannel {
  isBehind(): boolean;
  drained(): Promise<void>;
  /** Reads nothing more until the promise is settled, so that the other side is slowed down by its full pipe. */
  holdBack(until: Promise<unknown>): void;
}

const DEFAULT_BUFFERED_BYTES = 4 * 1024 * 1024;
const BEHIND_BYTES = 1024 * 1024;
/** How long a broken output may be outlived by the input. */
const LAST_WORDS_MS = 1000;
const NORMAL = 1000;
const GONE = 1006;
const NOT_UTF8 = 1007;
export const TOO_LARGE = 1009;
export const TOO_SLOW = 1013;
const OPENING_BRACE = 0x7b;
const OPENING_BRACKET = 0x5b;
/** White space, and the bytes of a byte order mark. */
const BEFORE_MESSAGE: ReadonlySet<number> = new Set([0x20, 0x09, 0xef, 0xbb, 0xbf]);

/**
 * Messages over a pair of byte streams: a child's pipes, our own standard streams, a socket. One message per line, or
 * behind a `Content-Length` header; what is sent takes the form in which the last message came, lines at first.
 */
export function createLineChannel(options: LineChannelOptions): LineChannel {
  const { readable, writable, maxLineBytes, maxBufferedBytes = DEFAULT_BUFFERED_BYTES, onNoise } = options;
  const { clock = systemClock, stalledAfterMs = STALLED_AFTER_MS } = options;
  let stopWaiting: (() => void) | undefined;
  let ended: ChannelEnd | undefined;
  let onMessage: ((text: string) => void) | undefined;
  let onEnd: ((end: ChannelEnd) => void) | undefined;
  let counted = false;
  /** How many promises the reading waits for. */
  let holds = 0;

  const stalls = watchStalledWrites(writable, {
    clock,
    stalledAfterMs,
    minBytes: maxBufferedBytes,
    onStalled: () => finish(TOO_SLOW, 'the other side has stopped reading'),
  });
  const reader = createFrameReader(maxLineBytes, takeFrame);

  function takeFrame(frame: Frame): void {
    if (ended !== undefined) return;
    const { bytes } = frame;
    if (onNoise !== undefined && !frame.counted && !startsLikeMessage(bytes)) {
      onNoise(bytes.toString('utf8'));
    } else if (onNoise === undefined && !isUtf8(bytes)) {
      finish(NOT_UTF8, 'a message is not valid UTF-8');
    } else {
      counted = frame.counted;
      onMessage?.(bytes.toString('utf8'));
    }
  }

  function finish(code: number, reason: string, gracefully = false): void {
    if (ended !== undefined) return;
    ended = { code, reason };
    stopWaiting?.();
    stalls.stop();
    readable.off('data', takeChunk);
    if (gracefully) writable.end();
    else writable.destroy();
    // One stream in both directions goes on for what is still to be sent.
    if (Object.is(readable, writable)) readable.resume();
    else readable.destroy();
    onEnd?.(ended);
  }

  function takeChunk(chunk: Buffer): void {
    if (!reader.push(chunk)) finish(TOO_LARGE, `a message is longer than ${maxLineBytes} bytes`);
  }

  /** A program that ends closes its input first: what it wrote before is still to be read. */
  function onWritableGone(): void {
    if (readable.readableEnded || readable.destroyed) finish(GONE, 'the stream was closed');
    else stopWaiting ??= clock.after(LAST_WORDS_MS, () => finish(GONE, 'the other side takes no more messages'));
  }

  // The error listener stays: a late EPIPE without a listener would end the process.
  readable.on('error', () => finish(GONE, 'the stream broke'));
  writable.on('error', onWritableGone);
  writable.once('close', onWritableGone);
  readable.once('close', () => finish(GONE, 'the stream was closed'));
  readable.once('end', () => {
    reader.end();
    finish(NORMAL, 'the other side ended the stream', true);
  });

  return {
    send(text) {
      if (ended !== undefined || !writable.writable) return;
      writable.write(counted ? toCounted(text) : toLine(text));
      stalls.wrote();
    },
    isBehind: () => ended === undefined && writable.writableLength > BEHIND_BYTES,
    drained() {
      if (ended !== undefined || !writable.writableNeedDrain) return Promise.resolve();
      return whenDrained(writable);
    },
    holdBack(until) {
      holds += 1;
      readable.pause();
      const resume = (): void => {
        holds -= 1;
        if (holds === 0 && ended === undefined) readable.resume();
      };
      until.then(resume, resume);
    },
    close(code = NORMAL, reason = '') {
      finish(code, reason, true);
    },
    onMessage(listener) {
      onMessage = listener;
      // Only now: until then the messages wait in the stream.
      readable.on('data', takeChunk);
    },
    onEnd(listener) {
      onEnd = listener;
      if (ended !== undefined) listener(ended);
    },
  };
}

function startsLikeMessage(bytes: Buffer): boolean {
  const start = bytes.find((byte) => !BEFORE_MESSAGE.has(byte));
  return start === OPENING_BRACE || start === OPENING_BRACKET;
}

/** A line break in JSON text can only be white space between its tokens. */
function toLine(text: string): string {
  return `${text.includes('\n') ? text.replaceAll('\n', ' ') : text}\n`;
}

function toCounted(text: string): string {
  return `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`;
}

/** One message, or one line that is none, as it stood in the stream. */
interface Frame {
  /** To be read immediately: the memory is used again. */
  readonly bytes: Buffer;
  /** Whether it came behind a `Content-Length` header instead of on a line of its own. */
  readonly counted: boolean;
}

interface FrameReader {
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
 * length in bytes; which of the two is decided for every message. At most `maxBytes` of an unfinished message are kept.
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
