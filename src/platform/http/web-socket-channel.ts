import type { Duplex } from 'node:stream';
import { createWebSocketStream, WebSocket } from 'ws';
import type { Clock } from '../clock/clock.ts';
import { encodeParts } from '../json-rpc/envelope.ts';
import type { ChannelEnd, MessageChannel } from '../json-rpc/message-channel.ts';
import type { Logger } from '../log/logger.ts';
import { type StallWatch, watchStalledWrites, whenDrained } from '../queue/stalled-writes.ts';

/** What all channels of one listener share. */
export interface ChannelRules {
  /** With more than this waiting for a peer, nothing more is read from it: its calls would only add to what waits. */
  readonly socketBufferBytes: number;
  readonly allSocketBuffersBytes: number;
  /** A peer that takes nothing for this long, although something waits for it, is closed. */
  readonly stalledAfterMs: number;
  readonly clock: Pick<Clock, 'after'>;
  /** What waits for slow readers, and how many of them there are. */
  readonly backlog: { bytes: number; readers: number };
  readonly logger: Logger;
  /** Whether this instance is about to stop: what fails then is over when the client has connected again. */
  isLeaving(): boolean;
  /** Called once, after the channel's own listener. */
  ended(channel: WebSocketChannel, end: ChannelEnd): void;
}

const CHANNEL = Symbol('channel');
const MAX_MISSES = 2;
const MAX_REASON_BYTES = 123;
/** Less than this waits for everybody now and then. */
const SMALL_BACKLOG_BYTES = 64 * 1024;
/** A sender of many messages stops here, until the peer has caught up. */
const BEHIND_BYTES = 1024 * 1024;
/** The local code of a broken connection, which may not be sent. */
const BROKEN = 1006;
const FAILED = 1011;
const RESTARTING = 1012;

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
  /** Set once the peer has been behind. */
  #stalls: StallWatch | undefined = undefined;
  #isReadingPaused = false;
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
    // Reading starts with the first listener.
    socket.pause();
  }

  send(text: string, parts?: readonly string[]): void {
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    if (!this.#corked) {
      this.#corked = true;
      this.#stream.cork();
      // After everything that was read: what a call starts elsewhere, such as the prompt of an agent, leaves before.
      setImmediate(uncork, this);
    }
    if (parts === undefined) {
      this.#socket.send(text);
      return;
    }
    // Frames of one message.
    for (const [index, bytes] of encodeParts(parts).entries()) {
      this.#socket.send(bytes, { binary: false, fin: index === parts.length - 1 });
    }
  }

  isBehind(): boolean {
    const limit = Math.min(BEHIND_BYTES, this.#limit());
    if (this.#stream.writableLength <= limit) return false;
    // Part of it may only wait for the end of this turn of the event loop.
    if (this.#corked) {
      this.#stream.uncork();
      this.#stream.cork();
    }
    return this.#stream.writableLength > limit;
  }

  drained(): Promise<void> {
    const stream = this.#stream;
    if (!stream.writableNeedDrain || stream.destroyed) return Promise.resolve();
    return whenDrained(stream);
  }

  close(code = 1000, reason = ''): void {
    if (this.#closedWith !== 0 || this.#end !== undefined) return;
    const sendable = isSendable(code) ? code : FAILED;
    this.#closedWith = sendable === FAILED && this.#rules.isLeaving() ? RESTARTING : sendable;
    this.#socket.close(this.#closedWith, fit(reason));
    // A socket that is not read never sees the peer's close frame.
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

  bytes(): Duplex {
    this.#socket.off('message', onMessage);
    this.#socket.on('message', onPong);
    const stream = createWebSocketStream(this.#socket);
    if (this.#socket.isPaused) this.#socket.resume();
    return stream;
  }

  beat(): void {
    // Nothing is read from a peer that is behind, and a ping would wait behind the other messages: its stall is watched instead.
    if (this.#isReadingPaused) return;
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
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    // Answered here and not by the library, which would queue answers for a peer that never reads them.
    this.#socket.pong(data);
    if (!this.#corked) this.#watchBacklog();
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
      this.close(FAILED, 'internal error');
    }
  }

  concluded(code: number, reason: Buffer): void {
    this.#stalls?.stop();
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
    this.#watchBacklog();
  }

  /** What may wait: when slow readers take too much together, each has its share of what there is for all. */
  #limit(): number {
    const { socketBufferBytes, allSocketBuffersBytes, backlog } = this.#rules;
    if (this.#waitingBytes === undefined || backlog.bytes <= allSocketBuffersBytes) return socketBufferBytes;
    return Math.min(socketBufferBytes, allSocketBuffersBytes / backlog.readers);
  }

  #watchBacklog(): void {
    const bytes = this.#stream.writableLength;
    const { backlog } = this.#rules;
    if (this.#waitingBytes === undefined) {
      if (bytes <= SMALL_BACKLOG_BYTES || this.#end !== undefined) return;
      backlog.readers += 1;
      this.#stream.once('drain', () => this.#caughtUp());
      this.#stalls ??= this.#createStallWatch();
    }
    backlog.bytes += bytes - (this.#waitingBytes ?? 0);
    this.#waitingBytes = bytes;
    this.#stalls?.wrote();
    if (bytes > this.#limit() && !this.#isReadingPaused && this.#closedWith === 0) {
      this.#isReadingPaused = true;
      this.#socket.pause();
    }
  }

  #createStallWatch(): StallWatch {
    const { clock, stalledAfterMs } = this.#rules;
    const onStalled = (): void => this.close(1013, 'nothing was read for too long');
    return watchStalledWrites(this.#stream, { clock, stalledAfterMs, onStalled });
  }

  #caughtUp(): void {
    if (this.#waitingBytes === undefined) return;
    this.#rules.backlog.bytes -= this.#waitingBytes;
    this.#rules.backlog.readers -= 1;
    this.#waitingBytes = undefined;
    if (!this.#isReadingPaused) return;
    this.#isReadingPaused = false;
    this.#misses = 0;
    if (this.#socket.isPaused) this.#socket.resume();
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

/** Something that must send heartbeats. */
interface Beating {
  /** The slice that it was put into; the heartbeat's own note. */
  slice: number;
  /** Called once per interval. */
  beat(): void;
}

interface Heartbeat {
  add(member: Beating): void;
  remove(member: Beating): void;
  stop(): void;
}

const SLICES = 30;

/** One timer for all members; each tick serves one slice of them, so that thousands of pings do not go out in one burst. */
export function createHeartbeat(intervalMs: number, clock: Pick<Clock, 'after'>): Heartbeat {
  const slices = Array.from({ length: SLICES }, () => new Set<Beating>());
  let size = 0;
  let nextSlice = 0;
  let current = 0;
  let cancel: (() => void) | undefined;

  function tick(): void {
    cancel = size === 0 ? undefined : clock.after(intervalMs / SLICES, tick);
    current = (current + 1) % SLICES;
    for (const member of slices[current] ?? []) member.beat();
  }

  return {
    add(member) {
      member.slice = nextSlice;
      nextSlice = (nextSlice + 1) % SLICES;
      slices[member.slice]?.add(member);
      size += 1;
      cancel ??= clock.after(intervalMs / SLICES, tick);
    },
    remove(member) {
      if (slices[member.slice]?.delete(member)) size -= 1;
    },
    stop() {
      cancel?.();
      cancel = undefined;
    },
  };
}
