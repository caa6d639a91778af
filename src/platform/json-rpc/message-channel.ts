import { Buffer, isUtf8 } from 'node:buffer';
import type { Readable, Writable } from 'node:stream';
import { type Clock, systemClock } from '../clock/clock.ts';
import { STALLED_AFTER_MS, watchStalledWrites, whenDrained } from '../queue/stalled-writes.ts';
import { createFrameReader, type Frame } from './message-framing.ts';

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
  /** True while so much waits for the peer that whoever can send later should wait for `drained`. Absent: never. */
  isBehind?(): boolean;
  /** Resolves when the peer has taken what was sent, or is gone. Absent: immediately. */
  drained?(): Promise<void>;
  close(code?: number, reason?: string): void;
  /** One listener each; messages that came before it was set are kept for it. */
  onMessage(listener: (text: string) => void): void;
  onEnd(listener: (end: ChannelEnd) => void): void;
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
const TOO_LARGE = 1009;
const TOO_SLOW = 1013;
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

  // Errors are listened to for good: a late EPIPE must find someone.
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
