import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { projectRoot, readSources } from '../architecture/source-file.ts';

const SCRIPT = join(projectRoot, 'scripts/joined-packages.cjs');
const { JOINED_PACKAGES, joinPackages } = createRequire(import.meta.url)(SCRIPT) as {
  JOINED_PACKAGES: Readonly<Record<string, readonly string[]>>;
  joinPackages(root: string): void;
};
const SPECIFIERS = Object.values(JOINED_PACKAGES).flat();

function put(root: string, path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

/** A project with packages of the same names, whose modules tell their version and where they lie. */
function projectIn(t: TestContext): string {
  const root = mkdtempSync(join(tmpdir(), 'trestle-joined-'));
  t.after(() => rmSync(root, { recursive: true }));
  for (const name of Object.keys(JOINED_PACKAGES)) putPackage(root, name, '1.0.0');
  put(root, 'src/main.mjs', "import { version, place } from 'typebox';\nconsole.log(version, place);");
  return root;
}

function putPackage(root: string, name: string, version: string): void {
  const exports = { '.': './index.mjs', './*': './index.mjs' };
  put(root, `node_modules/${name}/package.json`, JSON.stringify({ name, version, type: 'module', exports }));
  put(root, `node_modules/${name}/index.mjs`, "export * from './version.mjs';\nexport const place = import.meta.url;");
  put(root, `node_modules/${name}/version.mjs`, `export const version = '${version}';`);
}

function run(root: string, file: string): string {
  const setup = `require(${JSON.stringify(SCRIPT)}).useJoinedPackages(${JSON.stringify(root)});`;
  put(root, 'setup.cjs', setup);
  const { stdout, stderr } = spawnSync(process.execPath, ['--require', join(root, 'setup.cjs'), join(root, file)]);
  assert.equal(stderr.toString(), '');
  return stdout.toString();
}

test('the list has exactly what the sources import from the joined packages', () => {
  const imported = readSources(['src', 'test', 'bench', 'scripts', 'examples'])
    .flatMap(({ imports }) => imports)
    .filter(({ isTypeOnly }) => !isTypeOnly)
    .map(({ specifier }) => specifier)
    .filter((specifier) => Object.keys(JOINED_PACKAGES).includes(specifier.split('/')[0] ?? ''));
  assert.deepEqual([...new Set(imported)].sort(), [...SPECIFIERS].sort());
});

test('the project loads the joined files, and a package loads the package as it is', (t) => {
  const root = projectIn(t);
  const text = "export * from 'typebox';";
  put(root, 'node_modules/other/package.json', JSON.stringify({ name: 'other', type: 'module', exports: './a.mjs' }));
  put(root, 'node_modules/other/a.mjs', text);
  put(root, 'src/through.mjs', "import { version, place } from 'other';\nconsole.log(version, place);");
  joinPackages(root);
  assert.match(run(root, 'src/main.mjs'), /^1\.0\.0 .*\/node_modules\/\.cache\/trestle\//);
  assert.match(run(root, 'src/through.mjs'), /^1\.0\.0 .*\/node_modules\/typebox\//);
});

test('packages that were not joined are loaded as they are', (t) => {
  assert.match(run(projectIn(t), 'src/main.mjs'), /^1\.0\.0 .*\/node_modules\/typebox\//);
});

test('another version of a package is never answered from files of the one before', (t) => {
  const root = projectIn(t);
  joinPackages(root);
  putPackage(root, 'typebox', '2.0.0');
  assert.match(run(root, 'src/main.mjs'), /^2\.0\.0 .*\/node_modules\/typebox\//);
  joinPackages(root);
  assert.match(run(root, 'src/main.mjs'), /^2\.0\.0 .*\/node_modules\/\.cache\/trestle\//);
});

test('a package that cannot be joined leaves nothing half done', (t) => {
  const root = projectIn(t);
  put(root, 'node_modules/typebox/version.mjs', 'export const version = ;');
  assert.throws(() => joinPackages(root));
  assert.match(run(root, 'setup.cjs'), /^$/);
  assert.equal(readdirSync(join(root, 'node_modules')).includes('.cache'), false);
});

test('what own files import from each other is resolved without the search of Node, and a missing file is named with its importer', (t) => {
  const root = projectIn(t);
  put(root, 'src/start.ts', "import { name } from './named.ts';\nconsole.log(name, 'searched:', globalThis.searched);");
  put(root, 'src/named.ts', "export const name: string = 'named';");
  put(root, 'src/broken.ts', "import './missing.ts';");
  const count = `globalThis.searched = [];
    require('node:module').registerHooks({
      resolve(specifier, context, next) {
        if (context.parentURL !== undefined) globalThis.searched.push(specifier);
        return next(specifier, context);
      },
    });`;
  // Hooks that were registered before are asked last, after which Node searches.
  const start = (file: string): { stdout: string; stderr: string } => {
    const text = `${count}require(${JSON.stringify(SCRIPT)}).useJoinedPackages(${JSON.stringify(root)});`;
    put(root, 'setup.cjs', text);
    const found = spawnSync(process.execPath, ['--require', join(root, 'setup.cjs'), join(root, file)]);
    return { stdout: String(found.stdout), stderr: String(found.stderr) };
  };
  const { stdout } = start('src/start.ts');
  assert.match(stdout, /^named searched: \[/);
  assert.doesNotMatch(stdout, /named\.ts/);
  assert.match(start('src/broken.ts').stderr, /Cannot find module '.*missing\.ts' imported from .*broken\.ts/);
});
