import type { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import type { ChannelEnd, MessageChannel } from '../json-rpc/message-channel.ts';
import type { Logger } from '../log/logger.ts';
import type { Beating } from './heartbeat.ts';

/** What all channels of one listener share. */
export interface ChannelRules {
  readonly socketBufferBytes: number;
  readonly allSocketBuffersBytes: number;
  /** What waits for slow readers, and how many of them there are. */
  readonly backlog: { bytes: number; readers: number };
  readonly logger: Logger;
  /** Called once, after the channel's own listener. */
  ended(channel: WebSocketChannel, end: ChannelEnd): void;
}

const CHANNEL = Symbol('channel');
const MAX_MISSES = 2;
const MAX_REASON_BYTES = 123;
/** Less than this waits for everybody now and then. */
const SMALL_BACKLOG_BYTES = 64 * 1024;
/** Seen locally when a connection broke; may not be sent. */
const BROKEN = 1006;

interface ChannelSocket extends WebSocket {
  [CHANNEL]?: WebSocketChannel;
}

/**
 * A WebSocket as a channel of text messages. A class whose listeners are shared functions: thousands of idle sockets
 * must cost little more than the sockets themselves.
 */
export class WebSocketChannel implements MessageChannel, Beating {
  slice = 0;
  readonly caller: unknown;
  readonly address: string;
  readonly requestId: string;
  readonly #rules: ChannelRules;
  readonly #socket: WebSocket;
  readonly #stream: Duplex;
  #misses = 0;
  #corked = false;
  /** Undefined unless it is among the slow readers. */
  #waitingBytes: number | undefined = undefined;
  #closedWith = 0;
  #end: ChannelEnd | undefined = undefined;
  #onMessage: ((text: string) => void) | undefined = undefined;
  #onEnd: ((end: ChannelEnd) => void) | undefined = undefined;

  constructor(
    rules: ChannelRules,
    socket: WebSocket,
    stream: Duplex,
    origin: { readonly caller: unknown; readonly address: string; readonly requestId: string },
  ) {
    this.#rules = rules;
    this.#socket = socket;
    this.#stream = stream;
    this.caller = origin.caller;
    this.address = origin.address;
    this.requestId = origin.requestId;
    (socket as ChannelSocket)[CHANNEL] = this;
    socket.on('message', onMessage);
    socket.on('ping', onPing);
    socket.on('pong', onPong);
    socket.on('error', ignore);
    socket.on('close', onClose);
    // Nothing is read before someone listens.
    socket.pause();
  }

  send(text: string): void {
    if (this.#socket.readyState !== WebSocket.OPEN || !this.#keepsUp()) return;
    if (!this.#corked) {
      this.#corked = true;
      this.#stream.cork();
      process.nextTick(uncork, this);
    }
    this.#socket.send(text);
  }

  drained(): Promise<void> {
    const stream = this.#stream;
    if (!stream.writableNeedDrain || stream.destroyed) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        stream.off('drain', done);
        stream.off('close', done);
        resolve();
      };
      stream.on('drain', done);
      stream.on('close', done);
    });
  }

  close(code = 1000, reason = ''): void {
    if (this.#closedWith !== 0 || this.#end !== undefined) return;
    this.#closedWith = isSendable(code) ? code : 1011;
    this.#socket.close(this.#closedWith, fit(reason));
    // A socket that is not read never hears the peer's goodbye.
    if (this.#socket.isPaused) this.#socket.resume();
  }

  terminate(): void {
    this.#socket.terminate();
  }

  onMessage(listener: (text: string) => void): void {
    this.#onMessage = listener;
    if (this.#socket.isPaused) this.#socket.resume();
  }

  onEnd(listener: (end: ChannelEnd) => void): void {
    this.#onEnd = listener;
    if (this.#end !== undefined) listener(this.#end);
  }

  beat(): void {
    if (this.#misses >= MAX_MISSES) {
      this.#socket.terminate();
      return;
    }
    this.#misses += 1;
    this.#socket.ping();
  }

  /** The peer showed life. */
  alive(): void {
    this.#misses = 0;
  }

  pinged(data: Buffer): void {
    this.#misses = 0;
    // Answered here and not by the library, which would queue answers for a peer that never reads them.
    if (this.#socket.readyState === WebSocket.OPEN && this.#keepsUp()) this.#socket.pong(data);
  }

  received(data: Buffer, isBinary: boolean): void {
    this.#misses = 0;
    if (this.#closedWith !== 0) return;
    if (isBinary) {
      this.close(1003, 'send text');
      return;
    }
    try {
      this.#onMessage?.(data.toString());
    } catch (error) {
      this.#rules.logger.error({ err: error, requestId: this.requestId }, 'a message could not be handled');
      this.close(1011, 'internal error');
    }
  }

  concluded(code: number, reason: Buffer): void {
    this.#caughtUp();
    const own = code === BROKEN && this.#closedWith !== 0;
    this.#end = { code: own ? this.#closedWith : code, reason: reason.toString() };
    try {
      this.#onEnd?.(this.#end);
    } catch (error) {
      this.#rules.logger.error({ err: error, requestId: this.requestId }, 'the end of a channel could not be handled');
    }
    this.#rules.ended(this, this.#end);
  }

  flush(): void {
    this.#corked = false;
    this.#stream.uncork();
    this.#countBacklog();
  }

  /** Closes a peer for whom too much waits already. One message is never too large for an empty buffer. */
  #keepsUp(): boolean {
    const most = this.#mostWaiting();
    if (this.#stream.writableLength <= most) return true;
    // Perhaps it only waits for the end of this tick.
    if (this.#corked) this.#stream.uncork();
    const keepsUp = this.#stream.writableLength <= most;
    if (this.#corked) this.#stream.cork();
    if (!keepsUp) this.close(1013, 'reads too slowly');
    return keepsUp;
  }

  /** When slow readers take too much together, each of them may have its share of what there is for all. */
  #mostWaiting(): number {
    const { socketBufferBytes, allSocketBuffersBytes, backlog } = this.#rules;
    if (this.#waitingBytes === undefined || backlog.bytes <= allSocketBuffersBytes) return socketBufferBytes;
    return Math.min(socketBufferBytes, allSocketBuffersBytes / backlog.readers);
  }

  #countBacklog(): void {
    const bytes = this.#stream.writableLength;
    const { backlog } = this.#rules;
    if (this.#waitingBytes === undefined) {
      if (bytes <= SMALL_BACKLOG_BYTES || this.#end !== undefined) return;
      backlog.readers += 1;
      this.#stream.once('drain', () => this.#caughtUp());
    }
    backlog.bytes += bytes - (this.#waitingBytes ?? 0);
    this.#waitingBytes = bytes;
  }

  #caughtUp(): void {
    if (this.#waitingBytes === undefined) return;
    this.#rules.backlog.bytes -= this.#waitingBytes;
    this.#rules.backlog.readers -= 1;
    this.#waitingBytes = undefined;
  }
}

function onMessage(this: ChannelSocket, data: unknown, isBinary: boolean): void {
  this[CHANNEL]?.received(data as Buffer, isBinary);
}

function onPing(this: ChannelSocket, data: Buffer): void {
  this[CHANNEL]?.pinged(data);
}

function onPong(this: ChannelSocket): void {
  this[CHANNEL]?.alive();
}

function onClose(this: ChannelSocket, code: number, reason: Buffer): void {
  this[CHANNEL]?.concluded(code, reason);
}

/** Protocol violations and broken connections end in `close`, which is where they are dealt with. */
function ignore(): void {}

function uncork(channel: WebSocketChannel): void {
  channel.flush();
}

function isSendable(code: number): boolean {
  return (code >= 1000 && code <= 1014 && ![1004, 1005, BROKEN].includes(code)) || (code >= 3000 && code <= 4999);
}

function fit(reason: string): string {
  if (Buffer.byteLength(reason) <= MAX_REASON_BYTES) return reason;
  // A character that was cut in two becomes a replacement character of three bytes.
  return Buffer.from(reason)
    .subarray(0, MAX_REASON_BYTES - 3)
    .toString();
}
