import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

export interface ExampleRun {
  readonly code: number | null;
  readonly output: string;
}

export interface ExampleOptions {
  /** The example to run, without its ending. */
  readonly example: string;
  readonly args: readonly string[];
  readonly limitMs: number;
  /** Where it puts whatever it writes. */
  readonly temporaryFolder: string;
  readonly environment?: Readonly<Record<string, string>>;
}

/** Runs an example that starts a Trestle of its own to its end, as a user does. One that takes too long is asked to end, and cleans up. */
export async function runExample(options: ExampleOptions): Promise<ExampleRun> {
  const { example, args, limitMs, temporaryFolder, environment = {} } = options;
  const { PATH = '', HOME = temporaryFolder } = process.env;
  const child = spawn(process.execPath, [`examples/${example}.ts`, ...args], {
    cwd: ROOT,
    env: { PATH, HOME, TMPDIR: temporaryFolder, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: limitMs,
  });
  const output: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => output.push(text));
  }
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, output: output.join('') };
}

/** What nothing-lost.ts tells, whichever agent it has. */
export const NOTHING_LOST: readonly RegExp[] = [
  /^1\. An account, and a key for the models$/m,
  /^ {3}ok {2}\/v1 refuses a call without a key$/m,
  /^2\. \w+ at work, its model calls through our own \/v1 with that key$/m,
  /^ {3}model quick: [1-9]\d* calls, [1-9]\d* tokens in, [1-9]\d* out$/m,
  /^3\. Two agents in sequence/m,
  /^ {3}ok {2}the second says "Make this better: One line about the tide"$/m,
  /^4\. A background job that ends with a signed webhook$/m,
  /^ {3}ok {2}its signature is right$/m,
  /^5\. kill -9 in the middle of a turn and of a job, and back$/m,
  /failed, TURN_INTERRUPTED$/m,
  /^ {3}ok {2}the app got \d+ updates, each once and in order$/m,
  /^ {3}ok {2}the app missed none of the \d+ that are stored$/m,
  /failed, JOB_INTERRUPTED/m,
  /^ {3}ok {2}the job with retryOnRestart was run again, and completed$/m,
];
