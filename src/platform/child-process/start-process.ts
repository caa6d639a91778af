import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { openSync, readdirSync, readFileSync, statSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { pause, systemClock } from '../clock/clock.ts';
import { AppError, errorCode } from '../errors/app-error.ts';
import {
  endProcessTree,
  killTree,
  markEnvironment,
  noteProcess,
  type ProcessLeader,
  readProcess,
} from './process-table.ts';

export interface ProcessOptions {
  readonly command: string;
  /** Reach the program as they are: no shell ever sees them. */
  readonly args: readonly string[];
  readonly cwd: string;
  /** All of the environment (see `childEnvironment`) but the mark by which what comes from the process is found. */
  readonly env: Readonly<Record<string, string>>;
  /** Where running processes are noted for `sweepLeftovers`. */
  readonly journalFolder?: string | undefined;
  /** Descriptors of ours that the program gets, from `firstDescriptor()` on. They can be closed once it has started. */
  readonly descriptors?: readonly number[];
}

export interface ProcessExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** The last it said on standard error, safe to show. */
  readonly stderrTail: string;
}

export interface RunningProcess {
  readonly pid: number;
  readonly stdin: Writable;
  readonly stdout: Readable;
  /** Resolves at the moment when the process itself ends: `exited` waits a little longer for the last of its stderr. */
  readonly ended: Promise<void>;
  /** When the process itself has ended, however that came. What it leaves behind is ended then too. */
  readonly exited: Promise<ProcessExit>;
  stderrTail(): string;
  /** SIGTERM, after `graceMs` SIGKILL, to all that came from it; resolves when all are gone. A later call can hasten it. */
  stop(options: { readonly graceMs: number }): Promise<void>;
}

type PipedChild = ChildProcess & { readonly stdin: Writable; readonly stdout: Readable; readonly stderr: Readable };

const GRACE_FOR_SURVIVORS_MS = 1000;
/** For what is still in the pipe of standard error when the process ends. */
const LAST_WORDS_MS = 250;

const running = new Set<ProcessLeader>();
let exitIsWatched = false;

/** Starts a program in a process group of its own, with pipes for its three streams and no other descriptor of ours. */
export async function startProcess(options: ProcessOptions): Promise<RunningProcess> {
  const mark = randomUUID();
  const child = spawnChild(options, mark);
  const { pid } = child;
  if (pid === undefined) {
    const [cause] = await once(child, 'error');
    throw notStarted(options, cause);
  }
  const identity: ProcessLeader = { pid, startTime: readProcess(pid)?.startTime ?? 0, mark };
  let unnote = (): void => undefined;
  const supervised = superviseChild(child, identity, () => unnote());
  try {
    if (options.journalFolder !== undefined) unnote = noteProcess(options.journalFolder, identity, options.command);
    return supervised;
  } catch (cause) {
    supervised.stdout.resume();
    await supervised.stop({ graceMs: 0 });
    throw notStarted(options, cause);
  }
}

function superviseChild(child: PipedChild, identity: ProcessLeader, onGone: () => void): RunningProcess {
  watchExit();
  running.add(identity);
  const stderrTail = keepTail(child.stderr);
  // `exited` reports the end of the child; a broken pipe adds nothing to that.
  for (const emitter of [child, child.stdin, child.stdout, child.stderr]) emitter.on('error', () => undefined);
  const closed = once(child, 'close');
  closed.catch(() => undefined);

  let killAt = Number.POSITIVE_INFINITY;
  let ending: Promise<void> | undefined;
  const end = (graceMs: number): Promise<void> => {
    killAt = Math.min(killAt, performance.now() + graceMs);
    ending ??= endProcessTree(identity, () => killAt).then((gone) => {
      running.delete(identity);
      if (gone) onGone();
    });
    return ending;
  };

  const ended = Promise.withResolvers<void>();
  const exited = new Promise<ProcessExit>((resolve) => {
    child.once('exit', (code, signal) => {
      ended.resolve();
      void end(GRACE_FOR_SURVIVORS_MS);
      const waited = pause(systemClock, LAST_WORDS_MS);
      void Promise.race([closed, waited]).then(() => resolve({ code, signal, stderrTail: stderrTail() }));
    });
  });

  return {
    pid: identity.pid,
    stdin: child.stdin,
    stdout: child.stdout,
    ended: ended.promise,
    exited,
    stderrTail,
    async stop({ graceMs }) {
      await end(graceMs);
      await exited;
    },
  };
}

function spawnChild(options: ProcessOptions, mark: string): PipedChild {
  const { command, args, cwd, descriptors: given = [] } = options;
  const stdio = [...childDescriptors(), ...given];
  const env = { ...options.env, ...markEnvironment(mark) };
  try {
    const child = spawn(command, args, { cwd, env, detached: true, shell: false, stdio });
    if (hasPipes(child)) return child;
    throw new Error('a child without pipes');
  } catch (cause) {
    throw notStarted(options, cause);
  }
}

function hasPipes(child: ChildProcess): child is PipedChild {
  return child.stdin !== null && child.stdout !== null && child.stderr !== null;
}

function watchExit(): void {
  if (exitIsWatched) return;
  exitIsWatched = true;
  process.on('exit', () => {
    for (const identity of running) killTree(identity);
  });
}

function notStarted({ command, cwd }: ProcessOptions, cause: unknown): AppError {
  return new AppError('PROCESS_NOT_STARTED', { command, reason: reasonOf(cause, cwd) }, { cause });
}

function reasonOf(cause: unknown, cwd: string): string {
  const code = errorCode(cause);
  // The system gives the same code for a missing program and a missing folder.
  if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'EACCES') {
    const folder = statSync(cwd, { throwIfNoEntry: false });
    if (folder === undefined) return 'the working directory does not exist';
    if (!folder.isDirectory()) return 'the working directory is not a folder';
  }
  if (code === 'ENOENT') return 'there is no such program';
  if (code === 'EACCES') return 'it may not be executed';
  return code === '' ? 'the system refused it' : code;
}

type Descriptor = 'pipe' | 'ignore' | number;

const CLOSE_ON_EXEC = 0o2000000;

let descriptors: readonly Descriptor[] | undefined;

/**
 * The descriptors of a child: three pipes. Whatever Node opens is closed in children by itself, but what we were started
 * with (a log file of the shell, a lock of a wrapper) would go along: the child finds an empty device in its place.
 */
function childDescriptors(): Descriptor[] {
  descriptors ??= coverInherited(inheritedDescriptors());
  return [...descriptors];
}

/** The number that the first of `ProcessOptions.descriptors` has in the program. */
export function firstDescriptor(): number {
  return childDescriptors().length;
}

function coverInherited(inherited: readonly number[]): Descriptor[] {
  const covered: Descriptor[] = ['pipe', 'pipe', 'pipe'];
  if (inherited.length === 0) return covered;
  const empty = openSync('/dev/null', 'r+');
  for (let descriptor = 3; descriptor <= Math.max(...inherited); descriptor += 1) {
    covered.push(inherited.includes(descriptor) ? empty : 'ignore');
  }
  return covered;
}

function inheritedDescriptors(): number[] {
  try {
    return readdirSync('/proc/self/fdinfo').map(Number).filter(isInherited);
  } catch {
    return [];
  }
}

function isInherited(descriptor: number): boolean {
  if (descriptor < 3) return false;
  try {
    const [, flags = '0'] = /^flags:\s*(\d+)/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'latin1')) ?? [];
    return (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0;
  } catch {
    // The one that the folder itself was read through.
    return false;
  }
}

const TAIL_BYTES = 8192;

// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what it looks for
const ESCAPE_SEQUENCES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]*[0-~])/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it looks for
const CONTROL_CHARACTERS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** Keeps the end of what a process says on standard error, and nothing more however much it says. */
function keepTail(stream: Readable): () => string {
  let chunks: Buffer[] = [];
  let kept = 0;
  stream.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    kept += chunk.length;
    if (kept < 2 * TAIL_BYTES) return;
    chunks = [Buffer.concat(chunks).subarray(-TAIL_BYTES)];
    kept = TAIL_BYTES;
  });
  return () => plainText(Buffer.concat(chunks).subarray(-TAIL_BYTES));
}

/** Text that can be shown anywhere: a cut first character, colours and control characters are gone. */
function plainText(bytes: Buffer): string {
  let start = 0;
  while (start < 4 && ((bytes[start] ?? 0) & 0xc0) === 0x80) start += 1;
  return bytes
    .toString('utf8', start)
    .replaceAll('\r\n', '\n')
    .replaceAll(ESCAPE_SEQUENCES, '')
    .replaceAll(CONTROL_CHARACTERS, '\ufffd')
    .trim();
}
