import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inTime } from './in-time.ts';
import { START_ARGUMENTS } from './start-command.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** As npm scripts start it, with the cache of compiled code: a second of work less for each program. */
const PROGRAM = START_ARGUMENTS.map((argument) => (argument.startsWith('--') ? argument : join(ROOT, argument)));
const START_LIMIT_MS = 60_000;
/** Instances on one PostgreSQL need the same secret key. */
const SHARED_KEY = { TRESTLE_SECRET_KEY: Buffer.alloc(32, 1).toString('base64') };

/** A bubblewrap in PATH would hide the project from the agents of tests. Tests of the sandbox set their own PATH. */
const WITHOUT_SANDBOX =
  spawnSync('sh', ['-c', 'command -v bwrap']).status === 0 ? { TRESTLE_BRIDGE_SANDBOX: 'off' } : {};

export interface RunningProgram {
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  readonly child: ChildProcess;
  readonly dataDirectory: string;
  /** What `serve --json` printed. */
  readonly summary: Record<string, unknown>;
  stderr(): string;
  /** Sends a signal and resolves with the exit code (or the signal's name). */
  stop(signal?: NodeJS.Signals): Promise<number | string | null>;
}

export interface ProgramOptions {
  /** What starts it, such as npm, from the root of the project; Node itself unless given. */
  readonly starter?: readonly string[];
  /** Which command serves; `serve` unless given. */
  readonly command?: readonly string[];
  readonly args?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly dataDirectory?: string;
  readonly workingDirectory?: string;
  /** Standard input of a command. */
  readonly input?: string;
  /** How long a command may take; a minute unless given. */
  readonly limitMs?: number;
}

/** Whatever runs a function at its end: a test's context, or `{ after }` of `node:test` for a whole file. */
export interface Scope {
  after(run: () => unknown): void;
}

/** Starts the program as a user does, in a process of its own, on a free port, and waits until it says that it is ready. */
export async function startProgram(scope: Scope, options: ProgramOptions = {}): Promise<RunningProgram> {
  const dataDirectory = options.dataDirectory ?? (await temporaryFolder(scope));
  const { command = ['serve'], args: more = [] } = options;
  const args = [...command, '--json', '--listen', '127.0.0.1:0', '--data-dir', dataDirectory, ...more];
  const { child, output, errors } = launch(args, options);
  const end = (signal: NodeJS.Signals) => stopChild(child, signal, options.starter !== undefined);
  scope.after(() => end('SIGKILL'));
  const summary = JSON.parse(await firstLine(child, output, errors)) as Record<string, unknown>;
  const url = String(summary.url);
  return {
    url,
    port: Number(new URL(url).port),
    pid: child.pid ?? 0,
    child,
    dataDirectory,
    summary,
    stderr: () => errors.join(''),
    stop: (signal = 'SIGTERM') => end(signal),
  };
}

export interface FinishedProgram {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the program to its end, for commands other than `serve`, or for a `serve` that must refuse. */
export async function runProgram(args: readonly string[], options: ProgramOptions = {}): Promise<FinishedProgram> {
  const { child, output, errors } = launch(args, options);
  const timer = setTimeout(() => child.kill('SIGKILL'), options.limitMs ?? START_LIMIT_MS);
  const [code] = (await once(child, 'close')) as [number | null];
  clearTimeout(timer);
  return { code, stdout: output.join(''), stderr: errors.join('') };
}

/** A folder that is removed when the test ends. */
export async function temporaryFolder(scope: Scope): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-test-'));
  // A program that still runs may write while its folder is removed; it is ended by a later hook.
  scope.after(() => rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }));
  return folder;
}

function launch(args: readonly string[], options: ProgramOptions) {
  const { environment = {}, starter, workingDirectory = starter === undefined ? tmpdir() : ROOT, input } = options;
  const { PATH = '', HOME = tmpdir() } = process.env;
  const [file = '', ...first] = starter ?? [process.execPath, ...PROGRAM];
  const child = spawn(file, [...first, ...args], {
    cwd: workingDirectory,
    // A starter has the program as a child: as a group, both are stopped together.
    detached: starter !== undefined,
    env: {
      // A starter finds Node by its name, and must find this one.
      PATH: starter === undefined ? PATH : `${dirname(process.execPath)}:${PATH}`,
      HOME,
      ...(args.includes('--database') && SHARED_KEY),
      ...(environment.PATH === undefined && WITHOUT_SANDBOX),
      ...environment,
    },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  child.stdin.on('error', () => undefined).end(input);
  const output: string[] = [];
  const errors: string[] = [];
  child.stdout.setEncoding('utf8').on('data', (text: string) => output.push(text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => errors.push(text));
  return { child, output, errors };
}

async function firstLine(child: ChildProcess, output: readonly string[], errors: readonly string[]): Promise<string> {
  const deadline = Date.now() + START_LIMIT_MS;
  for (;;) {
    const text = output.join('');
    if (text.includes('\n')) return text.slice(0, text.indexOf('\n'));
    if (child.exitCode !== null || child.signalCode !== null || Date.now() > deadline) {
      throw new Error(`the program did not start (exit ${child.exitCode}): ${text}${errors.join('')}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function stopChild(
  child: ChildProcess,
  signal: NodeJS.Signals,
  isGroup: boolean,
): Promise<number | string | null> {
  if (child.exitCode === null && child.signalCode === null) {
    const exited = once(child, 'exit');
    if (isGroup && child.pid !== undefined) process.kill(-child.pid, signal);
    else child.kill(signal);
    await inTime(`the program to end after ${signal}`, exited, START_LIMIT_MS);
  }
  return child.exitCode ?? child.signalCode;
}
