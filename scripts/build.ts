import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, type Plugin } from 'esbuild';

/** Builds dist/, the package `trestle`, and dist-client/, the package `trestle-client`. */

const require = createRequire(import.meta.url);
const { buildConsole } = require('./build-console.cjs') as { buildConsole(root: string, folder: string): string };
const root = fileURLToPath(new URL('../', import.meta.url));
const sources = join(root, 'src');

/** What is no TypeScript: the scripts and styles that browsers get, and what starts the program. */
const COPIES = [
  { from: 'src', pattern: '**/browser/*.{js,css}' },
  { from: 'scripts', pattern: '{trestle,preflight,compile-cache,thread-pool}.cjs' },
];

/**
 * Packages that come with the program's own code in a few files, because they would load hundreds of small ones at every
 * start (docs/decisions/0009). Everything else is loaded from where npm has put it.
 */
const BUNDLED = Object.keys(require('./joined-packages.cjs').JOINED_PACKAGES);

/** Packages that are in the built files of the console (docs/decisions/0057), with those that they bring. */
const IN_CONSOLE = [
  'react',
  'react-dom',
  'scheduler',
  'wouter',
  'regexparam',
  'use-sync-external-store',
  '@tanstack/react-query',
  '@tanstack/query-core',
  '@tanstack/react-virtual',
  '@tanstack/virtual-core',
  'marked',
  '@shikijs/primitive',
  '@shikijs/engine-javascript',
  '@shikijs/langs',
  '@shikijs/types',
  '@shikijs/vscode-textmate',
  'oniguruma-to-es',
  'oniguruma-parser',
  'regex',
  'regex-recursion',
  'regex-utilities',
  'anser',
  'diff',
  'lucide-react',
  'eventsource-parser',
];

/** Those files lie here, so that a module can be told its own place: one folder below dist/. */
const FOLDER = 'program';

/** Leaves every package but those of `BUNDLED` to be found at run time. */
const onlyBundled: Plugin = {
  name: 'only-bundled',
  setup({ onResolve }) {
    onResolve({ filter: /^[^./]/ }, ({ path, kind }) => {
      const isOurs = kind === 'entry-point' || BUNDLED.some((name) => path === name || path.startsWith(`${name}/`));
      return isOurs ? undefined : { path, external: true };
    });
  },
};

/** A module that looks for files beside itself finds them where they lie in dist/, whichever file it ended up in. */
const keepPlaces: Plugin = {
  name: 'keep-places',
  setup({ onLoad }) {
    onLoad({ filter: /\/src\/.*\.ts$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      if (!text.includes('import.meta.url')) return undefined;
      const place = `../${relative(sources, path).replace(/\.ts$/, '.js')}`;
      return {
        contents: text.replaceAll('import.meta.url', `new URL(${JSON.stringify(place)}, import.meta.url).href`),
        loader: 'ts',
      };
    });
  },
};

rmSync(join(root, 'dist'), { recursive: true, force: true });
rmSync(join(root, 'dist-client'), { recursive: true, force: true });
await bundleProgram();
await bundleClient();
buildConsole(root, join(root, 'dist/console'));
// The types of what apps import; against the libraries of a browser, which shows that it needs nothing of Node.
compile('src/client/tsconfig.json');
copyFiles();
writeFileSync(join(root, 'dist/bundled-licenses.txt'), [...BUNDLED, ...IN_CONSOLE].map(licenceOf).join('\n'));
chmodSync(join(root, 'dist/trestle.cjs'), 0o755);
packClient();

async function bundleProgram(): Promise<void> {
  const worker = 'platform/database/sqlite/sqlite-worker';
  const { outputFiles } = await build({
    entryPoints: [
      { in: join(sources, 'main.ts'), out: `${FOLDER}/main` },
      // At its own place, where the thread that starts it looks for it.
      { in: join(sources, `${worker}.ts`), out: worker },
    ],
    outdir: join(root, 'dist'),
    chunkNames: `${FOLDER}/[name]-[hash]`,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node24',
    plugins: [onlyBundled, keepPlaces],
    logLevel: 'warning',
    write: false,
  });
  for (const { path, text } of outputFiles) {
    if (dirname(path) !== join(root, 'dist', FOLDER) && text.includes('import.meta')) {
      throw new Error(`${path} holds a module that would be told a wrong place`);
    }
    // esbuild writes escapes in strings, but not in regular expressions.
    const wide = /[\u0100-\uffff]/.exec(text)?.[0];
    if (wide !== undefined) {
      throw new Error(`${path} has "${wide}": with it, V8 keeps two bytes for every character. Write it as an escape`);
    }
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
}

async function bundleClient(): Promise<void> {
  await build({
    entryPoints: [join(sources, 'client/trestle-client.ts')],
    outfile: join(root, 'dist/client/trestle-client.js'),
    bundle: true,
    format: 'esm',
    platform: 'neutral',
    // Node 20 and the browsers of 2023; the types of src/client/tsconfig.json keep newer functions out.
    target: 'es2022',
    logLevel: 'warning',
  });
}

/** Puts the client into a package of its own: apps need neither the program nor what it depends on. */
function packClient(): void {
  const target = join(root, 'dist-client');
  for (const path of globSync('{client,bridge}/**/*.{js,d.ts}', { cwd: join(root, 'dist') })) {
    mkdirSync(dirname(join(target, path)), { recursive: true });
    cpSync(join(root, 'dist', path), join(target, path));
  }
  cpSync(join(root, 'LICENSE'), join(target, 'LICENSE'));
  cpSync(join(sources, 'client/package-readme.md'), join(target, 'README.md'));
  writeFileSync(join(target, 'bundled-licenses.txt'), licenceOf('eventsource-parser'));
  const { version, license, dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const description = 'The typed client of a Trestle bridge, for Node 20 and newer and for browsers.';
  const entry = { types: './client/trestle-client.d.ts', default: './client/trestle-client.js' };
  const manifest = {
    name: 'trestle-client',
    version,
    description,
    license,
    type: 'module',
    engines: { node: '>=20' },
    sideEffects: false,
    exports: { '.': entry, './package.json': './package.json' },
    // The types of the contract are derived from its schemas; nothing of it runs.
    dependencies: { typebox: dependencies.typebox },
  };
  writeFileSync(join(target, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
}

function compile(project: string): void {
  const compiler = join(root, 'node_modules/typescript/bin/tsc');
  const { status } = spawnSync(process.execPath, [compiler, '--project', project], {
    cwd: root,
    stdio: 'inherit',
  });
  if (status !== 0) process.exit(1);
}

function copyFiles(): void {
  for (const { from, pattern } of COPIES) {
    for (const path of globSync(pattern, { cwd: join(root, from) })) {
      const target = join(root, 'dist', path);
      mkdirSync(dirname(target), { recursive: true });
      cpSync(join(root, from, path), target);
    }
  }
}

function licenceOf(name: string): string {
  const folder = join(root, 'node_modules', name);
  const { version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Record<string, string>;
  const [file] = globSync('{license,LICENSE,LICENCE}*', { cwd: folder });
  // The Unlicense asks for no text to be shipped.
  if (file === undefined && license === 'Unlicense') return `${name} ${version}\n\nPublic domain (Unlicense)\n`;
  if (file === undefined) throw new Error(`${name} has no licence to be shipped with it`);
  return `${name} ${version}\n\n${readFileSync(join(folder, file), 'utf8')}`;
}
