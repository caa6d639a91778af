// Builds the console (src/console) into one folder: files with a hash in their names, each as gzip and brotli, and
// manifest.json. `npm install` runs this, `npm run build` puts the folder into dist/, and a server in a checkout whose
// sources have changed since runs it at the first request (docs/decisions/0057). Run as a program, this prints the folder.
'use strict';

const { createHash } = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const zlib = require('node:zlib');

const OPTIONS = {
  bundle: true,
  splitting: true,
  format: 'esm',
  target: ['chrome120', 'firefox121', 'safari17.2'],
  minify: true,
  jsx: 'automatic',
  legalComments: 'none',
  entryNames: '[name]-[hash]',
  chunkNames: '[name]-[hash]',
  define: { 'process.env.NODE_ENV': '"production"' },
};
const TYPES = { '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8' };

/** Its name depends on the sources, the versions of the packages and this file: after a change of any it is not found. */
function consoleFolder(root) {
  const hash = createHash('sha256');
  for (const folder of ['src/console', 'src/client']) {
    const names = fs.readdirSync(path.join(root, folder), { recursive: true }).sort();
    for (const name of names) {
      if (!/\.(tsx?|css)$/.test(name)) continue;
      hash.update(name).update(fs.readFileSync(path.join(root, folder, name)));
    }
  }
  for (const file of [path.join(root, 'package-lock.json'), __filename]) hash.update(fs.readFileSync(file));
  return path.join(root, 'node_modules', '.cache', 'trestle', `console-${hash.digest('hex').slice(0, 16)}`);
}

function buildConsole(root, folder = consoleFolder(root)) {
  if (fs.existsSync(path.join(folder, 'manifest.json'))) return folder;
  // Written aside and then renamed: a server that starts during this sees all of it or nothing.
  const unfinished = `${folder}.${process.pid}`;
  const { outputFiles, metafile } = require('esbuild').buildSync({
    ...OPTIONS,
    absWorkingDir: root,
    entryPoints: ['src/console/main.tsx'],
    // Every file imports it, so that all of it is one file, and not one for each set of screens that use the same.
    inject: ['src/console/used-by-most-screens.ts'],
    outdir: unfinished,
    write: false,
    metafile: true,
    logLevel: 'silent',
  });
  fs.mkdirSync(unfinished, { recursive: true });
  const files = outputFiles.map(({ path: target, contents }) => {
    const name = path.basename(target);
    fs.writeFileSync(path.join(unfinished, `${name}.gz`), zlib.gzipSync(contents, { level: 9 }));
    const params = { [zlib.constants.BROTLI_PARAM_QUALITY]: 9 };
    fs.writeFileSync(path.join(unfinished, `${name}.br`), zlib.brotliCompressSync(contents, { params }));
    return { name, type: TYPES[path.extname(name)], bytes: contents.length };
  });
  const [script] = Object.entries(metafile.outputs).filter(([, one]) => one.entryPoint === 'src/console/main.tsx');
  const imports = importsOf(metafile.outputs, script[0]);
  const manifest = {
    script: path.basename(script[0]),
    style: path.basename(script[1].cssBundle),
    imports: [...imports].map((name) => path.basename(name)),
    screens: screensOf(metafile.outputs, new Set([script[0], ...imports])),
    files,
  };
  fs.writeFileSync(path.join(unfinished, 'manifest.json'), JSON.stringify(manifest));
  try {
    fs.renameSync(unfinished, folder);
  } catch (error) {
    fs.rmSync(unfinished, { recursive: true });
    // Another process was quicker.
    if (!fs.existsSync(path.join(folder, 'manifest.json'))) throw error;
  }
  removeOlder(folder);
  return folder;
}

/** What a file imports, and what that imports: without them it does not run. What it loads by `import()` is not among them. */
function importsOf(outputs, name, found = new Set()) {
  for (const { path: imported, kind } of outputs[name].imports) {
    if (kind !== 'import-statement' || found.has(imported)) continue;
    found.add(imported);
    importsOf(outputs, imported, found);
  }
  return found;
}

/** The files of each screen besides those of every screen, by the name of its source: a page can load them from the beginning. */
function screensOf(outputs, known) {
  const screens = {};
  for (const [name, { entryPoint = '' }] of Object.entries(outputs)) {
    if (!entryPoint.startsWith('src/console/screens/')) continue;
    const needed = [name, ...importsOf(outputs, name)].filter((one) => !known.has(one));
    screens[path.basename(entryPoint, '.tsx')] = needed.map((one) => path.basename(one));
  }
  return screens;
}

/** Every change of the sources makes a folder: the newest five stay. */
function removeOlder(folder) {
  const parent = path.dirname(folder);
  const older = fs
    .readdirSync(parent)
    .filter((name) => /^console-[0-9a-f]{16}$/.test(name) && name !== path.basename(folder))
    .map((name) => path.join(parent, name))
    .sort((a, b) => fs.statSync(b).mtimeMs - fs.statSync(a).mtimeMs);
  for (const one of older.slice(4)) fs.rmSync(one, { recursive: true, force: true });
}

/** A running server takes the newest build. The name is put in place as a new file: a copy of the checkout by hard links shares the old one. */
function nameNewest(folder) {
  const newest = path.join(path.dirname(folder), 'console-newest');
  fs.writeFileSync(`${newest}.${process.pid}`, folder);
  fs.renameSync(`${newest}.${process.pid}`, newest);
}

module.exports = { buildConsole };

if (require.main === module) {
  const [given] = process.argv.slice(2);
  try {
    const folder = buildConsole(path.dirname(__dirname), given);
    if (given === undefined) nameNewest(folder);
    process.stdout.write(`${folder}\n`);
  } catch (error) {
    process.stderr.write(`The console was not built: ${error.message}\n`);
    process.exitCode = 1;
  }
}
