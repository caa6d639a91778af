import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { projectRoot } from '../../architecture/source-file.ts';
import type { CountedTries } from '../../kit/count-tries.ts';
import { createScope } from '../../kit/create-scope.ts';
import { temporaryFolder } from '../../kit/running-program.ts';
import type { FaultOptions, FaultReport, FaultSuite } from '../fault-suite.ts';
import { checkRun, type FuzzRun, figuresOf } from './check-run.ts';

/** The parsers that bytes from strangers meet first: event streams, JSON-RPC, settings, cookies and other headers, addresses. */
const PARSERS = ['event-stream', 'json-rpc', 'configuration', 'request-head', 'addresses'];
const MIN_TRIES_OF_PARSERS = 10_000_000;

/** The properties of `test/fuzz`, so many times as long as in `npm test`; the seed is that of every property. */
export const fuzzFaults: FaultSuite = (options) =>
  tryFiles(globSync('test/fuzz/*.test.ts', { cwd: projectRoot }).sort(), options);

/** Those of the parsers alone, which are quick enough for ten million tries. */
export const parserFaults: FaultSuite = (options) =>
  tryFiles(
    PARSERS.map((name) => `test/fuzz/${name}.test.ts`),
    options,
    MIN_TRIES_OF_PARSERS,
  );

async function tryFiles(
  files: readonly string[],
  { cycles, seed, say }: FaultOptions,
  minTries?: number,
): Promise<FaultReport> {
  const scope = createScope();
  try {
    const log = join(await temporaryFolder(scope), 'tries.log');
    const runs: FuzzRun[] = [];
    for (const file of files) {
      const run = await runFile(file, { FUZZ_RUNS: String(cycles), FUZZ_SEED: String(seed), FUZZ_LOG: log });
      say(`${file}: ${run.status === 0 ? 'held' : 'did not hold'}`);
      runs.push(run);
    }
    const lines = (await readFile(log, 'utf8')).trimEnd().split('\n');
    const counted = lines.map((line) => JSON.parse(line) as CountedTries);
    return { violations: checkRun(runs, counted), figures: figuresOf(runs, counted, minTries) };
  } finally {
    await scope.end();
  }
}

async function runFile(file: string, environment: Readonly<Record<string, string>>): Promise<FuzzRun> {
  const args = ['--require', './scripts/quick-start.cjs', file];
  const child = spawn(process.execPath, args, {
    cwd: projectRoot,
    env: { ...process.env, ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  const [status] = (await once(child, 'close')) as [number | null];
  return { file, status, output };
}
