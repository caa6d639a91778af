import { pino } from 'pino';
import type { Clock } from '../clock/clock.ts';

/** Where finished lines go. */
export interface LogOutput {
  write(line: string): void;
  /** Returns when everything is written: for the moments before the process ends. */
  flush(): void;
}

const STANDARD_ERROR = 2;
/** Lines are joined up to this size before they are handed on: one long text costs far less than its many lines. */
const PIECE_CHARACTERS = 64 * 1024;
const MAX_BACKLOG_BYTES = 16 * 1024 * 1024;
const MAX_WAIT_MS = 200;
/** Bounds the wait for a stalled reader of our pipe at the end of the process: each try takes 100 ms. */
const TRIES_AT_THE_END = 20;
const MOMENT_MS = 50;
const NOBODY_WAKES = new Int32Array(new SharedArrayBuffer(4));

export interface BufferedOutputOptions {
  readonly clock: Pick<Clock, 'after'>;
  /** Standard error by default: standard output belongs to the results of commands. */
  readonly descriptor?: number;
}

/**
 * Collects lines and writes them in large pieces, off the event loop; what is left is written when the process ends.
 * When the reader is too slow, lines are dropped rather than memory filled, and a later line says how many.
 */
export function createBufferedOutput({ clock, descriptor = STANDARD_ERROR }: BufferedOutputOptions): LogOutput {
  let dropped = 0;
  let stopTimer: (() => void) | undefined;
  let triesLeft = TRIES_AT_THE_END;
  let piece = '';
  let writing = false;

  // Before the stream is made: handlers run in this order, and the stream ends itself in its own.
  process.once('exit', flush);
  const stream = pino.destination({ dest: descriptor, sync: false, maxLength: MAX_BACKLOG_BYTES, retryEAGAIN });
  stream.on('drop', (text: string) => {
    dropped += text.split('\n').length - 1;
  });
  stream.on('drain', () => {
    writing = false;
    triesLeft = TRIES_AT_THE_END;
    if (dropped === 0) return;
    const lost = dropped;
    dropped = 0;
    stream.write(`{"level":"warn","msg":"log lines were dropped","lost":${lost}}\n`);
  });
  // Ignored, because there is nowhere to report it, and a full disk must not end the program.
  stream.on('error', () => undefined);

  function retryEAGAIN(): boolean {
    triesLeft -= 1;
    return triesLeft > 0;
  }

  function takePiece(): string {
    stopTimer?.();
    stopTimer = undefined;
    const text = piece;
    piece = '';
    return text;
  }

  function handOn(): void {
    const text = takePiece();
    if (text === '') return;
    writing = true;
    quietly(() => stream.write(text));
  }

  function flush(): void {
    const text = takePiece();
    // A write in progress cannot be awaited here, so it gets a moment to complete.
    if (writing) Atomics.wait(NOBODY_WAKES, 0, 0, MOMENT_MS);
    quietly(() => stream.flushSync());
    // Not through the same stream: that would start a write in the background, which the end of the process would cut off.
    quietly(() => pino.destination({ dest: descriptor, sync: true, retryEAGAIN }).write(text));
  }

  return {
    write(line) {
      piece += line;
      if (piece.length >= PIECE_CHARACTERS) handOn();
      else stopTimer ??= clock.after(MAX_WAIT_MS, handOn);
    },
    flush,
  };
}

/** The program goes on when a log line cannot be written. */
function quietly(action: () => void): void {
  try {
    action();
  } catch {
    // See above.
  }
}
