import { execFile } from 'node:child_process';
import { readFile, stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { START_ARGUMENTS } from '../../test/kit/start-command.ts';
import { startOnce } from '../platform/start-and-memory.bench.ts';
import { limitFigure, median, type Table } from '../report/figure.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const BROWSER_MS = 15 * 60_000;

/** What `test/pages/measure-console.ts` prints as its last line. */
export interface ConsoleFigures {
  readonly paintMs: number;
  readonly slowPaintMs: number;
  readonly layoutShift: number;
  readonly updatesPerSecond: number;
  readonly updateP95Ms: number;
  readonly stopMs: number;
  readonly storedUpdates: number;
  readonly openMs: number;
  readonly openNodes: number;
  readonly openMegabytes: number;
  readonly offlineSeconds: number;
  readonly reconnectMs: number;
}

/** What the console costs: its bytes, how soon a browser shows what happens, and what the program pays for serving it. */
export async function consoleSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  const seen = await measureInBrowser(quick);
  const cost = await costOfServing(quick ? 3 : 15);
  return [
    { title: 'Console: bytes', figures: await byteFigures() },
    {
      title: 'Console: in the browser',
      figures: [
        limitFigure({ name: 'largest paint of the board', unit: 'ms', value: seen.paintMs, goal: 1000 }),
        limitFigure({
          name: 'largest paint of the board, processor four times slower, 1.6 Mbit/s, 150 ms',
          ...{ unit: 'ms', value: seen.slowPaintMs, goal: 2500 },
        }),
        limitFigure({ name: 'layout shift of the board', unit: '', value: seen.layoutShift, goal: 0.02 }),
        limitFigure({
          name: `update received until painted, p95 at ${seen.updatesPerSecond} updates/s`,
          ...{ unit: 'ms', value: seen.updateP95Ms, goal: 50 },
        }),
        limitFigure({
          name: 'Stop until its request is sent, 500 updates/s',
          unit: 'ms',
          value: seen.stopMs,
          goal: 50,
        }),
        limitFigure({
          name: `open a session of ${seen.storedUpdates} updates until its end is shown`,
          ...{ unit: 'ms', value: seen.openMs, goal: 700 },
        }),
        limitFigure({ name: '… elements of its page', unit: '', value: seen.openNodes, goal: 400 }),
        limitFigure({ name: '… memory of its page', unit: 'MB', value: seen.openMegabytes, goal: 40 }),
        limitFigure({
          name: `caught up after ${seen.offlineSeconds} s offline`,
          ...{ unit: 'ms', value: seen.reconnectMs, goal: 1000 },
        }),
      ],
    },
    {
      title: 'Console: cost to the program',
      figures: [
        limitFigure({ name: 'idle memory that the console adds', unit: 'MB', value: cost.idleMegabytes, goal: 3 }),
        limitFigure({ name: 'start time that the console adds', unit: 'ms', value: cost.startMs, goal: 10 }),
      ],
    },
  ];
}

/** Starts the program with the console and without it in turns, and compares each pair. */
async function costOfServing(starts: number): Promise<{ readonly startMs: number; readonly idleMegabytes: number }> {
  const startMs: number[] = [];
  const idleMegabytes: number[] = [];
  // The first pair fills the compile cache and does not count.
  for (let count = 0; count <= starts; count += 1) {
    const without = await startOnce(START_ARGUMENTS, { TRESTLE_CONSOLE_ENABLED: 'false' });
    const full = await startOnce(START_ARGUMENTS);
    if (count === 0) continue;
    startMs.push(full.readyMs - without.readyMs);
    idleMegabytes.push(full.idleMebibytes - without.idleMebibytes);
  }
  return { startMs: median(startMs), idleMegabytes: median(idleMegabytes) };
}

interface Manifest {
  readonly script: string;
  readonly style: string;
  readonly files: readonly { readonly name: string }[];
}

async function byteFigures() {
  const { buildConsole } = createRequire(import.meta.url)(join(ROOT, 'scripts', 'build-console.cjs')) as {
    buildConsole(root: string): string;
  };
  const folder = buildConsole(ROOT);
  const { files } = JSON.parse(await readFile(join(folder, 'manifest.json'), 'utf8')) as Manifest;
  let all = 0;
  for (const { name } of files) {
    for (const coding of ['gz', 'br']) all += (await stat(join(folder, `${name}.${coding}`))).size;
  }
  return [limitFigure({ name: 'all files, as gzip and as brotli', unit: 'KB', value: all / 1000, goal: 1000 })];
}

/** Runs the measurements in Chromium. They are in `test/pages`, which has the packages for it. */
async function measureInBrowser(quick: boolean): Promise<ConsoleFigures> {
  const args = ['scripts/test-folder.ts', 'pages', 'measure-console.ts', ...(quick ? ['--quick'] : [])];
  const { stdout } = await promisify(execFile)(process.execPath, args, {
    ...{ cwd: ROOT, timeout: BROWSER_MS, maxBuffer: 2 ** 20 },
  });
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as ConsoleFigures;
}
