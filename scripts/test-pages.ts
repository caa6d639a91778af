import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { findExecutable } from '../src/platform/child-process/child-environment.ts';

/** `npm run test:pages`: the pages in a real Chromium, the one that `CHROMIUM` names or the first on the path. */

const PROJECT = join(import.meta.dirname, '..');
const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

async function findChromium(): Promise<string | undefined> {
  const { CHROMIUM: named, PATH = '' } = process.env;
  for (const name of named === undefined ? NAMES : [named]) {
    const found = await findExecutable(name, PATH);
    if (found !== undefined) return found;
  }
  return undefined;
}

const chromium = await findChromium();
if (chromium === undefined) {
  process.stderr.write('no Chromium found: install one (apt install chromium), or name it with CHROMIUM=/path/to/it\n');
  process.exit(1);
}
const files = globSync('test/pages/*.test.ts', { cwd: PROJECT });
const child = spawn(process.execPath, ['--test', '--test-timeout=120000', ...files], {
  cwd: PROJECT,
  stdio: 'inherit',
  env: { ...process.env, CHROMIUM: chromium },
});
const [code] = (await once(child, 'exit')) as [number | null];
process.exitCode = code ?? 1;
