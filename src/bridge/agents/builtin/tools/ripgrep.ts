import { findExecutable } from '../../../../platform/child-process/child-environment.ts';
import { withinTime } from '../../../../platform/clock/clock.ts';
import { AppError } from '../../../../platform/errors/app-error.ts';
import { openFolder } from './confinement.ts';
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
      const exit = await withinTime(clock, RIPGREP_MS, started.exited, () => undefined);
      signal.throwIfAborted();
      // 1: nothing was found. 2: something could not be read.
      return exit?.code === 0 || exit?.code === 1 ? list() : undefined;
    } finally {
      signal.removeEventListener('abort', stop);
      await started.stop(NO_GRACE);
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
