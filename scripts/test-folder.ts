import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { findExecutable } from '../src/platform/child-process/child-environment.ts';

/**
 * `node scripts/run.cjs scripts/test-folder.ts <name>`: runs the tests of `test/<name>`, a folder with packages of its
 * own. Only these tests need the packages, so they are installed here and not by `npm install`.
 * With the name of a file and its arguments it runs that file of the folder instead.
 */

const PROJECT = join(import.meta.dirname, '..');
const BROWSERS = ['chromium', 'chromium-browser', 'google-chrome'];

const [name = '', file, ...given] = process.argv.slice(2);
const folder = join(PROJECT, 'test', name);
const environment = { ...process.env, ...(name === 'pages' ? { CHROMIUM: await findBrowser() } : {}) };
installPackages();
run(['node_modules/typescript/bin/tsc', '--noEmit', '-p', join(folder, 'tsconfig.json')]);
const tests = globSync(`test/${name}/*.test.ts`, { cwd: PROJECT });
const args =
  file === undefined
    ? // A browser may leave a handle behind that nothing closes: the files end with their last test.
      ['--test', '--test-force-exit', '--test-timeout=120000', '--test-concurrency=2', ...tests]
    : [join(folder, file), ...given];
const child = spawn(process.execPath, args, {
  cwd: PROJECT,
  stdio: 'inherit',
  env: environment,
});
const [code] = (await once(child, 'exit')) as [number | null];
process.exitCode = code ?? 1;

/** Runs `npm ci`, unless the installed packages are those of the lockfile. */
function installPackages(): void {
  const lock = join(folder, 'package-lock.json');
  const installed = join(folder, 'node_modules', '.installed-lock.json');
  if (readIfPresent(installed) === readFileSync(lock, 'utf8')) return;
  const { status } = spawnSync('npm', ['ci', '--omit=optional', '--ignore-scripts'], { cwd: folder, stdio: 'inherit' });
  if (status !== 0) fail(`npm ci failed in test/${name}: check that the npm registry can be reached.`);
  copyFileSync(lock, installed);
}

function run(args: readonly string[]): void {
  const { status } = spawnSync(process.execPath, args, { cwd: PROJECT, stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}

async function findBrowser(): Promise<string> {
  const { CHROMIUM: named, PATH = '' } = process.env;
  for (const browser of named === undefined ? BROWSERS : [named]) {
    const found = await findExecutable(browser, PATH);
    if (found !== undefined) return found;
  }
  return fail('Chromium was not found. Install it (apt-get install chromium), or set CHROMIUM=/path/to/chromium.');
}

function readIfPresent(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

function fail(message: string): never {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}
