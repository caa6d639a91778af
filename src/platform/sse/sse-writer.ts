import type { OutgoingHttpHeaders } from 'node:http';
import type { FastifyReply } from 'fastify';
import type { Clock } from '../clock/clock.ts';
import { encodeComment, encodeEvent, type StreamEvent } from './encode-event.ts';

export interface EventStreamOptions {
  readonly clock: Clock;
  readonly headers?: Readonly<Record<string, string>>;
  /** After this much silence a comment is sent, so that proxies keep the connection. */
  readonly keepAliveMs?: number;
  /** What may wait for a slow reader; one event more and the connection is broken off. */
  readonly maxBufferedBytes?: number;
}

export interface EventStream {
  /** False when the reader is behind: `whenWritable` tells when it has caught up. After the end it does nothing. */
  send(event: StreamEvent): boolean;
  comment(text: string): boolean;
  /** Resolves when everything sent has left, or the stream has closed. */
  whenWritable(): Promise<void>;
  end(): void;
  readonly closed: boolean;
  /** Called once, when the stream is over for whatever reason; at once when it is over already. */
  onClose(listener: () => void): void;
}

const KEEP_ALIVE_MS = 15_000;
const MAX_BUFFERED_BYTES = 4 * 1024 * 1024;
const HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  'x-accel-buffering': 'no',
};

/** Turns a reply into a stream of events. The headers, those set on the reply included, go out at once. */
export function openEventStream(reply: FastifyReply, options: EventStreamOptions): EventStream {
  const { clock, headers = {}, keepAliveMs = KEEP_ALIVE_MS, maxBufferedBytes = MAX_BUFFERED_BYTES } = options;
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

  function write(text: string): boolean {
    if (closed) return false;
    if (response.writableLength > maxBufferedBytes) {
      response.destroy();
      return false;
    }
    lastWrite = clock.monotonic();
    return response.write(text);
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

  const all: OutgoingHttpHeaders = { ...(reply.getHeaders() as OutgoingHttpHeaders), ...HEADERS, ...headers };
  reply.hijack();
  if (!closed) {
    response.on('drain', release);
    response.on('close', over);
    response.writeHead(reply.statusCode, all);
    response.flushHeaders();
    // A HEAD request wants no more than that.
    if (response.req.method === 'HEAD') response.end();
    stopTimer = clock.after(keepAliveMs, keepAlive);
  }

  return {
    send: (event) => write(encodeEvent(event)),
    comment: (text) => write(encodeComment(text)),
    whenWritable() {
      if (closed || !response.writableNeedDrain) return Promise.resolve();
      return new Promise((resolve) => waiting.push(resolve));
    },
    end() {
      if (closed) return;
      response.end();
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
