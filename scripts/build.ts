import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, globSync, mkdirSync, rmSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Makes dist/ out of src/: what `npm pack` ships. */

const root = fileURLToPath(new URL('../', import.meta.url));

/** What is no TypeScript: the scripts and styles that browsers get, and what starts the program. */
const COPIES = [
  { from: 'src', pattern: '**/browser/*.{js,css}' },
  { from: 'scripts', pattern: '{trestle,preflight,compile-cache}.cjs' },
];

rmSync(join(root, 'dist'), { recursive: true, force: true });
compile('tsconfig.build.json');
// The types of what apps import; against the libraries of a browser, which shows that it needs nothing of Node.
compile('src/client/tsconfig.json');
copyAssets();
chmodSync(join(root, 'dist/trestle.cjs'), 0o755);

function compile(project: string): void {
  const compiler = join(root, 'node_modules/typescript/bin/tsc');
  const { status } = spawnSync(process.execPath, [compiler, '--project', project], {
    cwd: root,
    stdio: 'inherit',
  });
  if (status !== 0) process.exit(1);
}

function copyAssets(): void {
  for (const { from, pattern } of COPIES) {
    for (const path of globSync(pattern, { cwd: join(root, from) })) {
      const target = join(root, 'dist', path);
      mkdirSync(dirname(target), { recursive: true });
      cpSync(join(root, from, path), target);
      console.log(relative(root, target));
    }
  }
}
