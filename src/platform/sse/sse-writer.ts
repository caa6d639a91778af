import type { OutgoingHttpHeaders } from 'node:http';
import type { Clock } from '../clock/clock.ts';
import { AppError } from '../errors/app-error.ts';
import type { Reply } from '../http/surface.ts';
import { encodeParts } from '../json-rpc/envelope.ts';
import { STALLED_AFTER_MS, watchStalledWrites } from '../queue/stalled-writes.ts';

export interface EventStreamOptions {
  readonly clock: Clock;
  readonly headers?: Readonly<Record<string, string>>;
  /** After this much silence a comment is sent, so that proxies keep the connection. */
  readonly keepAliveMs?: number;
  /** A reader that takes nothing for this long, although something waits for it, is disconnected. */
  readonly stalledAfterMs?: number;
}

export interface EventStream {
  /**
   * False when the reader is behind: `whenWritable` tells when it has caught up, and a sender of many events waits for that.
   * After the end it does nothing.
   */
  send(event: StreamEvent): boolean;
  comment(text: string): boolean;
  /** How many bytes wait for the reader. */
  waitingBytes(): number;
  /** Resolves when everything sent has left, or the stream has closed. */
  whenWritable(): Promise<void>;
  end(): void;
  readonly closed: boolean;
  /** Called once, when the stream is over for whatever reason; immediately when it is over already. */
  onClose(listener: () => void): void;
}

const KEEP_ALIVE_MS = 15_000;
const LARGE_DATA = 64 * 1024;
const HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  'x-accel-buffering': 'no',
};

/** Turns a reply into a stream of events. The headers, those set on the reply included, are sent immediately. */
export function openEventStream(reply: Reply, options: EventStreamOptions): EventStream {
  const { clock, headers = {}, keepAliveMs = KEEP_ALIVE_MS, stalledAfterMs = STALLED_AFTER_MS } = options;
  const response = reply.raw;
  const listeners: (() => void)[] = [];
  let waiting: (() => void)[] = [];
  let closed = response.destroyed;
  let lastWrite = clock.monotonic();
  let stopTimer: (() => void) | undefined;

  function keepAlive(): void {
    const silence = clock.monotonic() - lastWrite;
    if (silence >= keepAliveMs) write(encodeComment('keep-alive'));
    if (!closed) stopTimer = clock.after(keepAliveMs - (silence >= keepAliveMs ? 0 : silence), keepAlive);
  }

  function write(text: string | Buffer): boolean {
    if (closed) return false;
    lastWrite = clock.monotonic();
    return noteWrite(response.write(text));
  }

  function noteWrite(hasRoom: boolean): boolean {
    if (!hasRoom) stalls?.wrote();
    return hasRoom;
  }

  function release(): void {
    const released = waiting;
    waiting = [];
    for (const resolve of released) resolve();
  }

  function over(): void {
    if (closed) return;
    closed = true;
    stopTimer?.();
    release();
    for (const listener of listeners.splice(0)) listener();
  }

  /** The socket outlives the end of the stream: what waits then must leave as well. */
  const stalls =
    response.socket === null
      ? undefined
      : watchStalledWrites(response.socket, { clock, stalledAfterMs, onStalled: () => response.destroy() });

  const all: OutgoingHttpHeaders = { ...reply.takeOver(), ...HEADERS, ...headers };
  if (!closed) {
    response.on('drain', release);
    response.on('close', () => {
      stalls?.stop();
      over();
    });
    response.writeHead(reply.statusCode, all);
    response.flushHeaders();
    // A HEAD request gets only the headers.
    if (response.req.method === 'HEAD') response.end();
    stopTimer = clock.after(keepAliveMs, keepAlive);
  }

  return {
    send(event) {
      if (event.data.length < LARGE_DATA || closed) return write(encodeEvent(event));
      response.cork();
      for (const part of encodeInParts(event)) write(part);
      response.uncork();
      return noteWrite(!response.writableNeedDrain);
    },
    comment: (text) => write(encodeComment(text)),
    waitingBytes: () => (closed ? 0 : response.writableLength),
    whenWritable() {
      if (closed || !response.writableNeedDrain) return Promise.resolve();
      return new Promise((resolve) => waiting.push(resolve));
    },
    end() {
      if (closed) return;
      response.end();
      stalls?.wrote();
      over();
    },
    get closed() {
      return closed;
    },
    onClose(listener) {
      if (closed) listener();
      else listeners.push(listener);
    },
  };
}

export interface StreamEvent {
  readonly data: string;
  /** The parts of large data, which has no line breaks then. */
  readonly parts?: readonly string[] | undefined;
  readonly id?: string;
  readonly event?: string;
}

const LINE_BREAK = /\r\n|\r|\n/;
const NOT_IN_A_FIELD = /[\r\n\0]/;

/** One event of `text/event-stream`. Data may have line breaks of any kind; the reader gets them as line feeds. */
export function encodeEvent({ data, id, event }: StreamEvent): string {
  const head = `${field('id', id)}${field('event', event)}`;
  const lines = LINE_BREAK.test(data) ? data.split(LINE_BREAK).join('\ndata: ') : data;
  return `${head}data: ${lines}\n\n`;
}

/** The same event in parts, for large data: bytes, because Node allocates three times the length of a string it writes. */
function encodeInParts(whole: StreamEvent): readonly (string | Buffer)[] {
  const { data, parts = [data], id, event } = whole;
  if (parts.some((part) => LINE_BREAK.test(part))) return [encodeEvent(whole)];
  return [`${field('id', id)}${field('event', event)}data: `, ...encodeParts(parts), '\n\n'];
}

/** A line that readers ignore; it only shows that the stream lives. */
export function encodeComment(text: string): string {
  return `: ${text.split(LINE_BREAK).join('\n: ')}\n\n`;
}

/** A line break in a field would start a field, or an event, of the sender's choosing. */
function field(name: string, value: string | undefined): string {
  if (value === undefined) return '';
  if (NOT_IN_A_FIELD.test(value)) {
    throw new AppError('INVALID_REQUEST', { reason: `the ${name} of an event must be one line` });
  }
  return `${name}: ${value}\n`;
}
