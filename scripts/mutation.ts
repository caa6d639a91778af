import { globSync, rmSync } from 'node:fs';
import { mkdir, mkdtemp } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { installPeer } from '../test/kit/install-peer.ts';
import { changePage, runOf } from './measurements-part.ts';
import { MUTATION_AREAS } from './mutation/mutation-areas.ts';
import {
  type AreaResult,
  filesTable,
  mutationTable,
  survivors,
  timeouts,
  withAreaRun,
} from './mutation/mutation-report.ts';
import { type Mutant, runStryker } from './mutation/run-stryker.ts';

/**
 * `npm run mutation -- [AREA] [FILE ...] [--share PERCENT] [--seed N] [--incremental] [--write]`: small faults are put into
 * the sources one by one, and the tests of the area should notice each. Files are named in part: `jobs submit webhook`.
 * With `--share` only so many of a hundred are tried; `--write` puts whole areas into docs/measurements.md.
 */

const PROJECT = join(import.meta.dirname, '..');
const STRYKER = { name: '@stryker-mutator/core', version: '10.0.0', plugins: ['@stryker-mutator/tap-runner'] };
const CACHE = join(homedir(), '.cache', 'trestle-bench', 'mutation');

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    incremental: { type: 'boolean', default: false },
    share: { type: 'string', default: '100' },
    seed: { type: 'string', default: '1' },
    write: { type: 'boolean', default: false },
  },
});
const [named, ...fileNames] = positionals;
const share = { percent: Number(values.share), seed: Number(values.seed) };
const isShare = share.percent > 0 && share.percent <= 100 && Number.isInteger(share.seed);
const isWhole = fileNames.length === 0 || !values.write;
if ((named !== undefined && !Object.hasOwn(MUTATION_AREAS, named)) || !isShare || !isWhole) {
  const areas = Object.keys(MUTATION_AREAS).join('|');
  console.error(`npm run mutation -- [${areas}] [FILE ...] [--share PERCENT] [--seed N] [--incremental] [--write]`);
  console.error('--share is above 0 and at most 100; --seed is a whole number; --write is for areas, without FILE.');
  process.exit(2);
}
const stryker = await installPeer(STRYKER.name, STRYKER.version, STRYKER.plugins);
if (stryker === undefined) {
  console.error(`${STRYKER.name} ${STRYKER.version} cannot be had: it is installed from npm on first use.`);
  process.exit(2);
}

const results: AreaResult[] = [];
const workFolder = await mkdtemp(join(tmpdir(), 'trestle-mutation-'));
// Stryker ends the process when it is interrupted, and this happens then too.
process.once('exit', () => rmSync(workFolder, { recursive: true, force: true }));
// Stryker starts `node` by its name, and compiled mutants are of no use to anybody later.
process.env.PATH = [dirname(process.execPath), process.env.PATH].join(delimiter);
process.env.NODE_COMPILE_CACHE = join(workFolder, 'compile-cache');
// What does not come within this time on a free machine does not come at all with this mutant.
process.env.TEST_PATIENCE_MS ??= '6000';
process.chdir(PROJECT);
await mkdir(CACHE, { recursive: true });
for (const [area, parts] of Object.entries(MUTATION_AREAS)) {
  if (named !== undefined && area !== named) continue;
  const mutants: Mutant[] = [];
  let found = 0;
  const { date, commit } = runOf(new Date());
  for (const [index, { sources, judges, without }] of parts.entries()) {
    const files = chosenFiles(sources);
    if (files.length === 0) continue;
    console.log(`\n== ${area}: ${files.join(', ')}`);
    const incrementalFile = values.incremental ? join(CACHE, `${area}-${index}.json`) : undefined;
    const run = { stryker, project: PROJECT, sources: files, judges, without, workFolder, incrementalFile, share };
    const part = await runStryker(run);
    mutants.push(...part.tried);
    found += part.found;
  }
  if (mutants.length === 0) continue;
  const result = { area, mutants, found };
  results.push(result);
  console.log(`\n${survivors(mutants, PROJECT)}\n${timeouts(mutants, PROJECT)}\n\n${filesTable(mutants, PROJECT)}`);
  if (values.write) await changePage((page) => withAreaRun(page, { result, share, date, commit }));
}
if (results.length === 0) {
  console.error(`There is no source of that name: ${fileNames.join(', ')}`);
  process.exit(2);
}
console.log(`\n${mutationTable(results)}`);

function chosenFiles(patterns: readonly string[]): readonly string[] {
  const files = globSync([...patterns], { cwd: PROJECT }).sort();
  return files.filter((file) => fileNames.length === 0 || fileNames.some((name) => file.includes(name)));
}
