import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { TestContext } from 'node:test';
import { readProcess } from '../../src/platform/child-process/process-table.ts';
import { type RunningProcess, startProcess } from '../../src/platform/child-process/start-process.ts';

export const env = { PATH: '/usr/local/bin:/usr/bin:/bin' };
export const cwd = tmpdir();

export async function temporaryFolder(context: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'child-process-'));
  context.after(() => rm(folder, { recursive: true, maxRetries: 10, retryDelay: 100 }));
  return folder;
}

/** Runs a shell script as the child under test; it is gone when the test ends, however that ends. */
export async function startShell(
  context: TestContext,
  script: string,
  journalFolder?: string,
): Promise<RunningProcess> {
  const started = await startProcess({ command: 'sh', args: ['-c', script], cwd, env, journalFolder });
  context.after(() => started.stop({ graceMs: 0 }));
  return started;
}

/** The numbers that a child prints, as soon as there are `count` of them. */
export async function readNumbers(stream: Readable, count: number): Promise<readonly number[]> {
  let text = '';
  const { promise, resolve, reject } = Promise.withResolvers<readonly number[]>();
  const listen = (chunk: Buffer): void => {
    text += chunk;
    const lines = text.split('\n').slice(0, -1);
    if (lines.length >= count) resolve(lines.map(Number));
  };
  stream.on('data', listen).once('end', () => reject(new Error(`the child ended after: ${text}`)));
  return promise;
}

export const isAlive = (pid: number): boolean => readProcess(pid) !== undefined;
