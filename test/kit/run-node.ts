import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { projectRoot } from '../architecture/source-file.ts';

/** Runs Node in a folder of the project, with nothing of this environment but the path; returns what Node printed. */
export async function runNode(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
  folder = '',
): Promise<string> {
  const { PATH = '' } = process.env;
  const child = spawn(process.execPath, args, {
    cwd: `${projectRoot}${folder}`,
    env: { PATH, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 100_000,
  });
  const output: string[] = [];
  child.stdout.setEncoding('utf8').on('data', (text: string) => output.push(text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => output.push(text));
  const [status] = (await once(child, 'close')) as [number | null];
  assert.equal(status, 0, output.join(''));
  return output.join('');
}
