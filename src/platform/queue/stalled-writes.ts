import type { Writable } from 'node:stream';
import type { Clock } from '../clock/clock.ts';

/** Watches one stream for a reader that has stopped reading. A reader that is only slow is left alone. */
export interface StallWatch {
  /** To be called after a write. Starts to watch when the stream's buffer is full; a cheap check otherwise. */
  wrote(): void;
  stop(): void;
}

export interface StallWatchOptions {
  readonly clock: Pick<Clock, 'after'>;
  /** How long the reader may take nothing at all while something waits for it. */
  readonly stalledAfterMs: number;
  /** Up to this many waiting bytes the reader may take its time; the stream's own high-water mark unless given. */
  readonly minBytes?: number;
  onStalled(): void;
}

/** For connections of clients. */
export const STALLED_AFTER_MS = 30_000;

/** What Node's sockets and pipes have beside the members of every stream. */
interface SocketParts {
  /** Bytes that were handed to the stream so far. */
  readonly bytesWritten?: unknown;
  /** Node's own handle. Its `writeQueueSize` shows progress within one large write; `socket.setTimeout` relies on it too. */
  readonly _handle?: { readonly writeQueueSize?: unknown } | null;
}

type WatchedStream = Writable & SocketParts;

/**
 * Slow means no progress for a period of time, never an amount at one moment: a burst that fills the buffer faster than
 * any reader could empty it says nothing about the reader.
 */
export function watchStalledWrites(watched: Writable, options: StallWatchOptions): StallWatch {
  const stream = watched as WatchedStream;
  const { clock, stalledAfterMs, minBytes, onStalled } = options;
  let stopTimer: (() => void) | undefined;
  let taken = 0;
  let queued = 0;

  function isWaiting(): boolean {
    if (stream.destroyed) return false;
    return minBytes === undefined ? stream.writableNeedDrain : stream.writableLength > minBytes;
  }

  function watch(): void {
    taken = takenBytes(stream);
    queued = queuedBytes(stream);
    stopTimer = clock.after(stalledAfterMs, look);
  }

  function look(): void {
    stopTimer = undefined;
    if (!isWaiting()) return;
    if (takenBytes(stream) > taken || queuedBytes(stream) < queued) watch();
    else onStalled();
  }

  return {
    wrote() {
      if (stopTimer === undefined && isWaiting()) watch();
    },
    stop() {
      stopTimer?.();
      stopTimer = undefined;
    },
  };
}

/** Resolves when the stream can take more, or is closed. */
export function whenDrained(stream: Writable): Promise<void> {
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

/** Bytes of finished writes. */
function takenBytes(stream: WatchedStream): number {
  return (typeof stream.bytesWritten === 'number' ? stream.bytesWritten : 0) - stream.writableLength;
}

/** What is left of the write that is under way. */
function queuedBytes({ _handle: handle }: WatchedStream): number {
  return typeof handle?.writeQueueSize === 'number' ? handle.writeQueueSize : 0;
}
