import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** `npm run check`: everything that can be said about a change without running it. */

const root = fileURLToPath(new URL('../', import.meta.url));
/** Folders whose files run in a browser. */
const BROWSER_FOLDERS = ['src/platform/http/api-page/browser'];

interface Step {
  readonly name: string;
  /** Arguments of Node. */
  readonly run: readonly string[];
}

const steps: readonly Step[] = [
  { name: 'format and lint', run: ['node_modules/@biomejs/biome/bin/biome', 'ci', '--error-on-warnings'] },
  { name: 'types', run: ['node_modules/typescript/bin/tsc', '--noEmit'] },
  ...[...BROWSER_FOLDERS, 'src/client', 'src/console'].map((folder) => ({
    name: `types in the browser: ${folder}`,
    run: ['node_modules/typescript/bin/tsc', '--noEmit', '-p', `${folder}/tsconfig.json`],
  })),
  { name: 'dead code', run: ['node_modules/knip/bin/knip.js'] },
  { name: 'code that only tests use', run: ['node_modules/knip/bin/knip.js', '--production'] },
  { name: 'regular expressions', run: ['scripts/run.cjs', 'scripts/test-folder.ts', 'patterns'] },
  {
    name: 'architecture, documents and supply chain',
    run: ['--test', 'test/*.test.ts', 'test/{architecture,docs,deployment,supply-chain}/*.test.ts'],
  },
];

const failed: string[] = [];
for (const { name, run } of steps) {
  console.log(`\n== ${name}`);
  const { status } = spawnSync(process.execPath, run, { cwd: root, stdio: 'inherit' });
  if (status !== 0) failed.push(name);
}

console.log(failed.length === 0 ? '\nAll checks passed.' : `\nFailed: ${failed.join('; ')}`);
process.exitCode = failed.length === 0 ? 0 : 1;
