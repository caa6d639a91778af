import type { Readable } from 'node:stream';
import { type ProcessOptions, startProcess } from '../../src/platform/child-process/start-process.ts';
import { AppError } from '../../src/platform/errors/app-error.ts';

export interface RunOptions extends ProcessOptions {
  readonly timeoutMs: number;
  /** What comes beyond is read and thrown away. */
  readonly maxOutputBytes: number;
}

export interface RunResult {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  /** The end of it: see `ProcessExit`. */
  readonly stderr: string;
}

const GRACE_MS = 500;

/** Runs a short program with an empty input and collects what it says. Too long: CALL_TIMEOUT, and all of it is ended. */
export async function runToEnd({ timeoutMs, maxOutputBytes, ...options }: RunOptions): Promise<RunResult> {
  const started = await startProcess(options);
  const output = collect(started.stdout, maxOutputBytes);
  started.stdin.end();
  const timeout = Promise.withResolvers<'timeout'>();
  const timer = setTimeout(() => timeout.resolve('timeout'), timeoutMs);
  try {
    const exit = await Promise.race([started.exited, timeout.promise]);
    if (exit === 'timeout') throw new AppError('CALL_TIMEOUT', { timeoutMs });
    return { code: exit.code, signal: exit.signal, stdout: output(), stderr: exit.stderrTail };
  } finally {
    clearTimeout(timer);
    await started.stop({ graceMs: GRACE_MS });
  }
}

function collect(stream: Readable, maxBytes: number): () => string {
  const chunks: Buffer[] = [];
  let left = maxBytes;
  stream.on('data', (chunk: Buffer) => {
    if (left > 0) chunks.push(chunk.subarray(0, left));
    left -= chunk.length;
  });
  return () => Buffer.concat(chunks).toString('utf8');
}
