import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { residentBytes } from '../../test/kit/resident-bytes.ts';
import { NODE_FLAGS, START_ARGUMENTS } from '../../test/kit/start-command.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const IDLE_MS = 2000;

export interface StartFigures {
  /** From the start of the process to the answer of `/readyz`, one entry for each start. */
  readonly readyMs: number[];
  /** Resident memory while nothing happens, in MiB. */
  readonly idleMebibytes: number[];
}

/** Starts the program as `npm start` does (compile cache on), again and again; `built` takes dist/ instead of src/. */
export async function benchStart({ starts, built }: { starts: number; built: boolean }): Promise<StartFigures> {
  const entry = built ? [...NODE_FLAGS, 'dist/trestle.cjs'] : [...START_ARGUMENTS];
  if (built && !existsSync(join(ROOT, 'dist/trestle.cjs'))) throw new Error('run "npm run build" first');
  const figures: StartFigures = { readyMs: [], idleMebibytes: [] };
  // The first start fills the compile cache and does not count.
  for (let count = 0; count <= starts; count += 1) {
    const { readyMs, idleMebibytes } = await startOnce(entry);
    if (count === 0) continue;
    figures.readyMs.push(readyMs);
    figures.idleMebibytes.push(idleMebibytes);
  }
  return figures;
}

/** One start with its own data directory, in an environment that has these variables, too. */
export async function startOnce(
  entry: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<{ readonly readyMs: number; readonly idleMebibytes: number }> {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-bench-'));
  const started = performance.now();
  const args = [...entry, 'serve', '--json', '--listen', '127.0.0.1:0', '--data-dir', folder];
  const child = spawn(process.execPath, args, {
    ...{ cwd: ROOT, env: { ...process.env, ...environment } },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  try {
    const url = await urlOf(child);
    const response = await fetch(`${url}/readyz`);
    if (!response.ok) throw new Error(`not ready: ${response.status}`);
    const readyMs = performance.now() - started;
    await sleep(IDLE_MS);
    return { readyMs, idleMebibytes: (await residentBytes(child.pid ?? 0)) / 1024 / 1024 };
  } finally {
    child.kill();
    await once(child, 'exit');
    await rm(folder, { recursive: true });
  }
}

async function urlOf(child: ChildProcess): Promise<string> {
  if (child.stdout === null) throw new Error('no output');
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  return (JSON.parse(line) as { url: string }).url;
}
