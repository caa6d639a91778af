import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Scope } from '../kit/running-program.ts';

export const MAIN = join(import.meta.dirname, '../../src/main.ts');

export interface PipedProgram {
  readonly child: ChildProcessWithoutNullStreams;
  stderr(): string;
  /** Closes its input, as an editor does that goes away, and resolves with the exit code. */
  end(): Promise<number | null>;
}

/** Starts a command that talks over its standard streams. */
export function startPiped(
  scope: Scope,
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): PipedProgram {
  const { PATH = '', HOME = tmpdir() } = process.env;
  const child = spawn(process.execPath, [MAIN, ...args], { cwd: tmpdir(), env: { PATH, HOME, ...environment } });
  const errors: string[] = [];
  child.stderr.setEncoding('utf8').on('data', (text: string) => errors.push(text));
  const exited = once(child, 'exit');
  scope.after(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  return {
    child,
    stderr: () => errors.join(''),
    async end() {
      child.stdin.end();
      await exited;
      return child.exitCode;
    },
  };
}
