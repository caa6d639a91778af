import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { findExecutable } from '../../../../platform/child-process/child-environment.ts';
import { type Clock, withinTime } from '../../../../platform/clock/clock.ts';
import { AppError } from '../../../../platform/errors/app-error.ts';
import { openFolder, refuse } from './confinement.ts';
import type { ToolContext } from './tool.ts';
import { NOT_ENTERED } from './walk-folder.ts';

export interface WantedText {
  readonly text: string;
  readonly ignoreCase: boolean;
  /** Leaves out what the `.gitignore` files of the working directory leave out. */
  readonly isIgnoring: boolean;
  readonly maxDepth: number;
}

const RIPGREP_MS = 20_000;
const MAX_LIST_BYTES = 16 * 1024 * 1024;
const NO_GRACE = { graceMs: 0 };
/** As our own walk: hidden files count, and of all files that ignore something only `.gitignore` in the folder itself. */
const SAME_FILES =
  '--hidden --no-ignore-dot --no-ignore-global --no-ignore-exclude --no-ignore-parent --no-require-git'.split(' ');

/**
 * The paths of files that may contain a text, from ripgrep and in the order of our own walk; undefined where there is no ripgrep, or where it
 * had a problem. Ripgrep only says where to look: what the model gets is read from each file under our own rules.
 */
export async function filesByRipgrep(
  wanted: WantedText,
  { root, signal, commands }: ToolContext,
): Promise<readonly string[] | undefined> {
  const { environment: env, journalFolder, clock } = commands;
  const command = await findExecutable('rg', env.PATH ?? '');
  if (command === undefined || wanted.text.includes('\n')) return undefined;
  const folder = await openFolder(root, []);
  try {
    const given = { command, args: argumentsFor(wanted), cwd: folder.entry('.'), env, journalFolder };
    const started = await commands.start(given, folder.path);
    const list = collect(started.stdout);
    const stop = (): void => void started.stop(NO_GRACE);
    signal.addEventListener('abort', stop);
    try {
      started.stdin.end();
      // On a loaded machine the last of its list comes later than its end.
      const ended = Promise.all([started.exited, once(started.stdout, 'close')]).then(([exit]) => exit);
      const exit = await withinTime(clock, RIPGREP_MS, ended, () => undefined);
      // One that has ended is not waited for again: looking for what it left behind takes longer than the search.
      if (exit === undefined) await started.stop(NO_GRACE);
      signal.throwIfAborted();
      // 1: nothing was found. 2: something could not be read.
      return exit?.code === 0 || exit?.code === 1 ? list() : undefined;
    } finally {
      signal.removeEventListener('abort', stop);
    }
  } catch (error) {
    // One that cannot be started is not used.
    if (error instanceof AppError && error.code === 'PROCESS_NOT_STARTED') return undefined;
    throw error;
  } finally {
    await folder.close();
  }
}

function argumentsFor({ text, ignoreCase, isIgnoring, maxDepth }: WantedText): readonly string[] {
  return [
    ...['--no-config', '--no-messages', '--files-with-matches', '--null', '--fixed-strings'],
    ...SAME_FILES,
    ...(isIgnoring ? [] : ['--no-ignore']),
    ...(ignoreCase ? ['--ignore-case'] : []),
    ...[...NOT_ENTERED].flatMap((name) => ['--glob', `!**/${name}/**`]),
    ...['--max-depth', String(maxDepth), '--regexp', text, '--', '.'],
  ];
}

/** Undefined when the list is longer than what is kept of it. */
function collect(stream: NodeJS.ReadableStream): () => readonly string[] | undefined {
  const chunks: Buffer[] = [];
  let size = 0;
  stream.on('data', (chunk: Buffer) => {
    size += chunk.length;
    if (size <= MAX_LIST_BYTES) chunks.push(chunk);
  });
  return () => {
    if (size > MAX_LIST_BYTES) return undefined;
    const paths = Buffer.concat(chunks).toString('utf8').split('\0').filter(Boolean);
    return paths.map((path) => path.replace(/^\.\//, '')).sort((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1));
  };
}

/** By the names of folders, one after the other. */
function keyOf(path: string): string {
  return path.replaceAll('/', '\0');
}

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
