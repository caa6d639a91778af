import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { coverageReport, coverageText } from './coverage-report/coverage-report.ts';
import { measureFiles } from './coverage-report/measure-files.ts';
import { changePage, runOf, withPart } from './measurements-part.ts';

/**
 * `npm run coverage`: what `npm test` and `npm run test:deep` reach of the sources; with `--e2e` also what `npm run test:e2e`
 * does. `--write` puts the figures of the core into docs/measurements.md.
 */

const PROJECT = join(import.meta.dirname, '..');
const NOT_COUNTED = `
Not counted: what a process had done when it was killed, so most of what the kill tests run, and what runs in a real
browser or in programs of others. Threads and child processes that end by themselves are counted. Blank lines, comments
and types are not lines of code. Branches are blocks as V8 counts them; those of a file that no test loads are unknown.`;

const { values } = parseArgs({
  options: { e2e: { type: 'boolean', default: false }, write: { type: 'boolean', default: false } },
});
const { scripts } = JSON.parse(await readFile(join(PROJECT, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>;
};
const chosen = values.e2e ? ['test', 'test:deep', 'test:e2e'] : ['test', 'test:deep'];
const patterns = chosen.flatMap((name) =>
  [...(scripts[name] ?? '').matchAll(/"(test\/[^"]+)"/g)].map(([, found = '']) => found),
);

const run = runOf(new Date());
const folder = await mkdtemp(join(tmpdir(), 'trestle-coverage-'));
const lcov = join(folder, 'lcov.info');
const args = [
  `--require=${join(PROJECT, 'scripts', 'cover-threads.cjs')}`,
  '--test',
  '--test-timeout=240000',
  '--test-concurrency=4',
  '--experimental-test-coverage',
  '--test-coverage-include=src/**',
  '--test-reporter=dot',
  '--test-reporter-destination=stdout',
  '--test-reporter=lcov',
  `--test-reporter-destination=${lcov}`,
  ...patterns,
];
try {
  // From the cache of compiled code V8 does not know what has run.
  const env = { ...process.env, NODE_DISABLE_COMPILE_CACHE: '1' };
  const child = spawn(process.execPath, args, { cwd: PROJECT, stdio: 'inherit', env });
  const [code] = (await once(child, 'exit')) as [number | null];
  const files = measureFiles(PROJECT, await readFile(lcov, 'utf8'));
  console.log(`\n${coverageReport(files)}\n${NOT_COUNTED}`);
  if (values.write) {
    const command = `npm run coverage -- ${values.e2e ? '--e2e ' : ''}--write`;
    const text = coverageText(files, { command, ...run, hasFailed: code !== 0 });
    await changePage((page) => withPart(page, { part: 'coverage', text }));
  }
  if (code !== 0) {
    console.log('\nSome tests failed.');
    process.exitCode = 1;
  }
} finally {
  await rm(folder, { recursive: true, force: true });
}
