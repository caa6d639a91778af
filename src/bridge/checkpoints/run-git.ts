import type { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { findExecutable } from '../../platform/child-process/child-environment.ts';
import { type ProcessOptions, type RunningProcess, startProcess } from '../../platform/child-process/start-process.ts';
import { type Clock, deadline } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { ConfinedFolder, ConfinedRoot } from '../agents/builtin/tools/confinement.ts';

/** The only place that runs git. */
export interface Git {
  /** Runs one command of git and returns what it printed. Throws GIT_FAILED, and ends git when `signal` aborts. */
  run(args: readonly string[], options: GitRun): Promise<Buffer>;
}

export interface GitRun {
  /** A git folder of our own. The one of the working directory is never used, so its settings have no effect. */
  readonly gitFolder: string;
  /** Held open while git runs: git works in this folder, also when something else takes its path in the meantime. */
  readonly workTree: ConfinedRoot;
  readonly input?: string;
  readonly signal: AbortSignal;
  /** Git is ended when it prints more. */
  readonly maxOutputBytes?: number;
  /** Used instead of the index, and the objects, of `gitFolder`. */
  readonly indexFile?: string;
  readonly objectFolder?: string;
  /** An exit code besides 0 with which the command has done its work. */
  readonly otherCode?: number;
}

interface GitOptions {
  /** Of the environment: where the program is looked for. */
  readonly path: string;
  readonly clock: Clock;
  readonly journalFolder?: string | undefined;
  /** Starts the process. Work in a sandbox replaces this. */
  start?(options: ProcessOptions): Promise<RunningProcess>;
}

const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;
/** The maximum time of one command. Callers have shorter limits. */
const MAX_RUN_MS = 60_000;
const NO_GRACE = { graceMs: 0 };

/** The whole environment of git. Nothing is inherited, because variables can name programs to run and files to read. */
const ENVIRONMENT: Readonly<Record<string, string>> = {
  LC_ALL: 'C',
  HOME: '/nonexistent',
  XDG_CONFIG_HOME: '/nonexistent',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_SYSTEM: '/dev/null',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_ATTR_NOSYSTEM: '1',
  GIT_TERMINAL_PROMPT: '0',
  GIT_ASKPASS: 'false',
  SSH_ASKPASS: 'false',
  GIT_SSH_COMMAND: 'false',
  GIT_EDITOR: 'false',
  GIT_PAGER: 'cat',
  GIT_ALLOW_PROTOCOL: 'none',
  GIT_NO_LAZY_FETCH: '1',
  GIT_NO_REPLACE_OBJECTS: '1',
  GIT_OPTIONAL_LOCKS: '0',
  GIT_AUTHOR_NAME: 'Trestle',
  GIT_AUTHOR_EMAIL: 'trestle@localhost',
  GIT_COMMITTER_NAME: 'Trestle',
  GIT_COMMITTER_EMAIL: 'trestle@localhost',
};

/** The settings of our git folders. They name no programs to run. */
export const GIT_SETTINGS = `[core]
	repositoryformatversion = 0
	hooksPath = /dev/null
	fsmonitor = false
	untrackedCache = false
	autocrlf = false
	symlinks = true
	fileMode = true
	looseCompression = 1
	fsync = none
[gc]
	auto = 0
[diff]
	ignoreSubmodules = all
`;

export function createGit({ path, clock, journalFolder, start = startProcess }: GitOptions): Git {
  let found: Promise<string | undefined> | undefined;

  async function program(): Promise<string> {
    found ??= findExecutable('git', path);
    const command = await found;
    if (command !== undefined) return command;
    // It may be installed later.
    found = undefined;
    throw failed('git is not installed');
  }

  async function runIn(folder: ConfinedFolder, args: readonly string[], options: GitRun): Promise<Buffer> {
    const { gitFolder, input = '', signal: outer, maxOutputBytes = MAX_OUTPUT_BYTES, otherCode = 0 } = options;
    const command = await program();
    if (outer.aborted) throw failed('there was no time left for it');
    const env = {
      ...ENVIRONMENT,
      PATH: path,
      GIT_DIR: gitFolder,
      GIT_WORK_TREE: '.',
      ...(options.indexFile !== undefined && { GIT_INDEX_FILE: options.indexFile }),
      ...(options.objectFolder !== undefined && { GIT_OBJECT_DIRECTORY: options.objectFolder }),
    };
    const running = await start({ command, args, cwd: folder.entry('.'), env, journalFolder });
    const { signal, release } = deadline(clock, MAX_RUN_MS, [outer]);
    const stop = () => void running.stop(NO_GRACE);
    signal.addEventListener('abort', stop);
    if (signal.aborted) stop();
    try {
      const output = collect(running.stdout, maxOutputBytes, stop);
      running.stdin.end(input);
      const [{ code, stderrTail }] = await Promise.all([running.exited, output.ended]);
      if (signal.aborted) throw failed('it took too long');
      if (output.isTooMuch()) throw failed('it printed too much');
      if (code !== 0 && code !== otherCode) throw failed(stderrTail.split('\n').at(-1) ?? `it ended with code ${code}`);
      return output.bytes();
    } finally {
      signal.removeEventListener('abort', stop);
      release();
    }
  }

  return {
    async run(args, options) {
      const folder = await options.workTree.open().catch((error: unknown) => {
        throw failed(error instanceof AppError ? String(error.details.reason) : 'its folder is gone, or was replaced');
      });
      return runIn(folder, args, options).finally(folder.close);
    },
  };
}

function collect(stream: Readable, maxBytes: number, onLimit: () => void) {
  const chunks: Buffer[] = [];
  let size = 0;
  stream.on('data', (chunk: Buffer) => {
    const isFirstOver = size <= maxBytes && size + chunk.length > maxBytes;
    size += chunk.length;
    if (size <= maxBytes) chunks.push(chunk);
    if (isFirstOver) onLimit();
  });
  return {
    ended: finished(stream).catch(() => undefined),
    isTooMuch: () => size > maxBytes,
    bytes: () => Buffer.concat(chunks),
  };
}

function failed(reason: string): AppError {
  return new AppError('GIT_FAILED', { reason: reason.slice(0, 300) });
}
