import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { until } from './narration.ts';

const PROJECT = join(import.meta.dirname, '../..');
const START_LIMIT_MS = 60_000;
/** npm downloads agents of more than 100 MB. */
const COMMAND_LIMIT_MS = 180_000;
const STOP_LIMIT_MS = 45_000;
const KEPT_CHARACTERS = 4000;

/** The command that `npm start` and `npm run trestle` run. */
const COMMAND = ['--max-semi-space-size=16', '--expose-gc', 'scripts/run.cjs', 'src/main.ts'];

const children = new Set<ChildProcess>();
let isOver = false;

export interface RunningTrestle {
  readonly url: string;
  /** The link with which the first administrator sets up the program; empty when there is one. */
  readonly setupLink: string;
  /** `SIGTERM` lets it finish, `SIGKILL` does not. Returns its exit code, or the signal that ended it. */
  end(signal: 'SIGTERM' | 'SIGKILL'): Promise<number | string | null>;
}

export interface TrestleOptions {
  /** Holds its settings and its data. */
  readonly folder: string;
  /** Port 0 is any that is free. */
  readonly listen: string;
  readonly settings: object;
  /** Tokens and keys, which are passed in the environment instead of a file. */
  readonly secrets: Readonly<Record<string, string>>;
}

/** Starts Trestle as `npm start` does, in a separate process, and waits until it prints its address. */
export async function startTrestle({ folder, listen, settings, secrets }: TrestleOptions): Promise<RunningTrestle> {
  const file = join(folder, 'trestle.yaml');
  // JSON is YAML too.
  await writeFile(file, JSON.stringify(settings));
  if (isOver) throw new Error('the story is over');
  const { PATH = '', HOME = folder } = process.env;
  const place = ['--config', file, '--data-dir', dataDirectoryOf(folder), '--listen', listen];
  const child = spawn(process.execPath, [...COMMAND, 'serve', '--json', ...place], {
    cwd: PROJECT,
    env: { PATH, HOME, ...secrets },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.add(child);
  let output = '';
  let errors = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output = (output + text).slice(0, KEPT_CHARACTERS);
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-KEPT_CHARACTERS);
  });
  try {
    const line = await until('Trestle has started', START_LIMIT_MS, () => {
      if (hasEnded(child)) throw new Error(`Trestle did not start: ${errors}`);
      return output.includes('\n') ? output.slice(0, output.indexOf('\n')) : undefined;
    });
    const { url, firstAdmin = '' } = JSON.parse(line) as { url: string; firstAdmin?: string };
    return { url, setupLink: firstAdmin, end: (signal) => endChild(child, signal) };
  } catch (error) {
    await endChild(child, 'SIGKILL');
    throw error;
  }
}

/** Runs a command to its end, as `npm run trestle -- ...` does, and returns its output. */
export async function runTrestle(args: readonly string[]): Promise<string> {
  const command = [...COMMAND, ...args];
  const { stdout } = await promisify(execFile)(process.execPath, command, { cwd: PROJECT, timeout: COMMAND_LIMIT_MS });
  return stdout;
}

/** Ends every Trestle of the story, and prevents further starts. */
export async function endEveryTrestle(): Promise<void> {
  isOver = true;
  await Promise.all([...children].map((child) => endChild(child, 'SIGTERM')));
}

export function dataDirectoryOf(folder: string): string {
  return join(folder, 'data');
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}

async function endChild(child: ChildProcess, signal: NodeJS.Signals): Promise<number | string | null> {
  if (!hasEnded(child)) {
    const ended = once(child, 'exit');
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_LIMIT_MS);
    child.kill(signal);
    await ended;
    clearTimeout(timer);
  }
  children.delete(child);
  return child.exitCode ?? child.signalCode;
}
