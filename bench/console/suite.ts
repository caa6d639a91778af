import { execFile } from 'node:child_process';
import { readFile, stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { START_ARGUMENTS } from '../../test/kit/start-command.ts';
import { startOnce } from '../platform/start-and-memory.bench.ts';
import { type Figure, limitFigure, median, round, type Table } from '../report/figure.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const BROWSER_MS = 15 * 60_000;

/** What `test/pages/measure-console.ts` prints as its last line. */
export interface ConsoleFigures {
  /** The largest paint of a page of one line, in the same browser and between the same rounds: what the machine allows. */
  readonly barePaintMs: number;
  /** From one frame of an empty page to the next, p95. */
  readonly bareFrameMs: number;
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
        beside(
          limitFigure({
            name: 'largest paint of the board, beside a page of one line',
            ...{ unit: 'ms', value: seen.paintMs, goal: 1000 },
          }),
          seen.barePaintMs,
        ),
        limitFigure({
          name: 'largest paint of the board, processor four times slower, 1.6 Mbit/s, 150 ms',
          ...{ unit: 'ms', value: seen.slowPaintMs, goal: 2500 },
        }),
        limitFigure({ name: 'layout shift of the board', unit: '', value: seen.layoutShift, goal: 0.02 }),
        beside(
          limitFigure({
            name: `update received until painted, p95 at ${seen.updatesPerSecond} updates/s, beside the frames of an empty page`,
            ...{ unit: 'ms', value: seen.updateP95Ms, goal: 50 },
          }),
          seen.bareFrameMs,
        ),
        limitFigure({
          name: 'Stop until its request is sent, 500 updates/s',
          unit: 'ms',
          value: seen.stopMs,
          goal: 50,
        }),
        beside(
          limitFigure({
            name: `open a session of ${seen.storedUpdates} updates until its end is shown, beside a page of one line`,
            ...{ unit: 'ms', value: seen.openMs, goal: 700 },
          }),
          seen.barePaintMs,
        ),
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

/** With what the machine allows at that time: other work on it slows both down. */
function beside(figure: Figure, bareMs: number): Figure {
  return { ...figure, bound: `${round(bareMs)} ms`, amounts: { ...figure.amounts, bound: bareMs } };
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
  const { script, style, files } = JSON.parse(await readFile(join(folder, 'manifest.json'), 'utf8')) as Manifest;
  const first = await firstLoad(folder, script);
  let firstBytes = 0;
  for (const name of [...first, style]) firstBytes += (await stat(join(folder, `${name}.gz`))).size;
  let all = 0;
  for (const { name } of files) {
    for (const coding of ['gz', 'br']) all += (await stat(join(folder, `${name}.${coding}`))).size;
  }
  return [
    limitFigure({ name: 'first load, gzip', unit: 'KB', value: firstBytes / 1000, goal: 150 }),
    limitFigure({ name: 'all files, as gzip and as brotli', unit: 'KB', value: all / 1000, goal: 1000 }),
  ];
}

/** A script and all that it imports; what it loads by `import()` is not among them. */
export async function firstLoad(folder: string, name: string, found = new Set<string>()): Promise<ReadonlySet<string>> {
  if (found.has(name)) return found;
  found.add(name);
  const source = gunzipSync(await readFile(join(folder, `${name}.gz`))).toString();
  for (const [, imported = ''] of source.matchAll(/(?:import|from)\s*"\.\/([^"]+)"/g))
    await firstLoad(folder, imported, found);
  return found;
}

/** Runs the measurements in Chromium. They are in `test/pages`, which has the packages for it. */
async function measureInBrowser(quick: boolean): Promise<ConsoleFigures> {
  const args = ['scripts/test-folder.ts', 'pages', 'measure-console.ts', ...(quick ? ['--quick'] : [])];
  const { stdout } = await promisify(execFile)(process.execPath, args, {
    ...{ cwd: ROOT, timeout: BROWSER_MS, maxBuffer: 2 ** 20 },
  });
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as ConsoleFigures;
}
