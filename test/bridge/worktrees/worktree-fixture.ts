import { execFileSync } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { call } from '../../kit/bridge/session-client.ts';
import type { BridgeUnderTest } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';

/** What an agent does in its folder, by prompt. */
export type Work = (folder: string, signal: AbortSignal) => Promise<void>;

const identity = Object.fromEntries(
  ['AUTHOR', 'COMMITTER'].flatMap((who) => [
    [`GIT_${who}_NAME`, 'a'],
    [`GIT_${who}_EMAIL`, 'a@b'],
  ]),
);

export function gitIn(folder: string, ...args: string[]): string {
  const env = { PATH: process.env.PATH ?? '', HOME: '/nonexistent', ...identity };
  return execFileSync('git', args, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] })
    .toString()
    .trim();
}

/** A repository in the root of a bridge, on the branch `main`. */
export async function makeRepository(root: string, name: string, files: Readonly<Record<string, string>>) {
  const folder = join(root, name);
  for (const [path, content] of Object.entries(files)) {
    await mkdir(join(folder, path, '..'), { recursive: true });
    await writeFile(join(folder, path), content);
  }
  gitIn(folder, 'init', '-q', '-b', 'main', '.');
  gitIn(folder, 'add', '-A');
  gitIn(folder, 'commit', '-qm', 'first');
  return folder;
}

export function createWorker(id: string) {
  const work = new Map<string, Work>();
  const provider = createScriptedProvider(id, async ({ prompt, workingDirectory, signal }) => {
    await work.get(prompt)?.(workingDirectory, signal);
    if (signal.aborted) return { kind: 'cancelled', output: '' };
    return { kind: 'completed', output: workingDirectory, stopReason: 'end_turn' };
  });
  return { work, provider };
}

export interface Outcome {
  readonly success: boolean;
  readonly output: string;
  readonly resolvedWorkingDirectory: string;
  readonly steps?: readonly { readonly status: string; readonly workingDirectory?: string }[];
}

export function clientOf({ url }: Pick<BridgeUnderTest, 'url'>, headers: Readonly<Record<string, string>> = {}) {
  return {
    async turn(method: string, params: object) {
      const { result, error } = await call(url, method, params, headers);
      return { result: result as Outcome | undefined, error: error as { message: string; data?: object } | undefined };
    },
    async merge(sessionId: string, body: object = {}) {
      const response = await fetch(`${url}/api/bridge/sessions/${sessionId}/merge`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      });
      const answer = (await response.json()) as {
        branch?: string;
        commit?: string;
        files?: readonly string[];
        error?: string;
        message?: string;
        details?: { files?: readonly string[] };
      };
      return { status: response.status, ...answer };
    },
  };
}
