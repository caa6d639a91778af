import { Worker } from 'node:worker_threads';
import type { Clock } from '../../../../platform/clock/clock.ts';
import { refuse } from './confinement.ts';

export interface LineMatcher {
  /** The places of the lines that fit. Throws TOOL_CALL_REFUSED when it takes too long, or was cancelled. */
  match(lines: readonly string[]): Promise<readonly number[]>;
  end(): Promise<void>;
}

interface MatcherOptions {
  /** One of both. */
  readonly text: string | undefined;
  readonly pattern: string | undefined;
  readonly ignoreCase: boolean;
  readonly clock: Pick<Clock, 'after'>;
  readonly signal: AbortSignal;
}

/** Of all lines of a search together. */
const MATCH_MS = 10_000;
const MAX_MEMORY_MB = 64;
const MAX_REASON = 200;

export function createLineMatcher({ text, pattern, ignoreCase, clock, signal }: MatcherOptions): LineMatcher {
  if (pattern !== undefined) return createPatternMatcher(pattern, ignoreCase, clock, signal);
  const fold = ignoreCase ? (line: string) => line.toLowerCase() : (line: string) => line;
  const wanted = fold(text ?? '');
  return {
    match: async (lines) => lines.flatMap((line, index) => (fold(line).includes(wanted) ? [index] : [])),
    end: async () => undefined,
  };
}

/** The program of the thread. It stands here as text, because a bundle has no file for it. */
const THREAD = `
const { parentPort, workerData } = require('node:worker_threads');
let wanted;
try {
  wanted = new RegExp(workerData.pattern, workerData.flags);
} catch (error) {
  parentPort.postMessage(String(error.message));
}
if (wanted !== undefined) parentPort.on('message', (lines) => {
  const found = [];
  for (let index = 0; index < lines.length; index += 1) if (wanted.test(lines[index])) found.push(index);
  parentPort.postMessage(found);
});
`;

/**
 * Matches a regular expression of the model in a thread of its own. Some expressions take hours on some lines: then only the
 * thread is busy, and it is ended.
 */
function createPatternMatcher(
  pattern: string,
  ignoreCase: boolean,
  clock: Pick<Clock, 'after'>,
  signal: AbortSignal,
): LineMatcher {
  let thread: Worker | undefined;
  const stopped = Promise.withResolvers<never>();
  stopped.promise.catch(() => undefined);
  const stop = (reason: string): void => {
    try {
      refuse(reason);
    } catch (error) {
      stopped.reject(error);
    }
    void thread?.terminate();
  };
  const onAbort = (): void => stop('The search was cancelled.');
  signal.addEventListener('abort', onAbort);
  const stopTimer = clock.after(MATCH_MS, () =>
    stop('The pattern takes too long on these files; use a simpler one, or fewer files.'),
  );
  return {
    async match(lines) {
      signal.throwIfAborted();
      if (thread === undefined) {
        thread = new Worker(THREAD, {
          eval: true,
          env: {},
          workerData: { pattern, flags: ignoreCase ? 'i' : '' },
          resourceLimits: { maxOldGenerationSizeMb: MAX_MEMORY_MB },
        });
        thread.once('error', () => stop('The pattern needs too much memory; use a simpler one.'));
      }
      const { promise, resolve } = Promise.withResolvers<readonly number[] | string>();
      thread.once('message', resolve);
      thread.postMessage(lines);
      const found = await Promise.race([promise, stopped.promise]);
      return typeof found === 'string'
        ? refuse(`The pattern is not a regular expression: ${found.slice(0, MAX_REASON)}.`)
        : found;
    },
    async end() {
      stopTimer();
      signal.removeEventListener('abort', onAbort);
      await thread?.terminate();
    },
  };
}
