// Two packages are made of hundreds of small files, and every file has its price at each start, of the program and of
// every test. `npm install` joins each of them into a few files (docs/decisions/0012); where that was not done they
// are loaded as they are. Run as a program, this joins them.
'use strict';

const { createHash } = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const { pathToFileURL } = require('node:url');

/** By name what is imported from each: something else would bring a second copy of the package (test/runtime). */
const JOINED_PACKAGES = {
  kysely: ['kysely'],
  typebox: ['typebox', 'typebox/schema', 'typebox/value'],
};
const SPECIFIERS = Object.values(JOINED_PACKAGES).flat();

/** Its name depends on the versions and on the list: after a change of either the old files are not found. */
function folderOf(root) {
  const versions = Object.keys(JOINED_PACKAGES).map((name) => {
    const manifest = path.join(root, 'node_modules', name, 'package.json');
    return `${name}@${JSON.parse(fs.readFileSync(manifest, 'utf8')).version}`;
  });
  const name = createHash('sha256')
    .update([...versions, ...SPECIFIERS].join())
    .digest('hex')
    .slice(0, 16);
  return path.join(root, 'node_modules', '.cache', 'trestle', `joined-${name}`);
}

function fileOf(folder, specifier) {
  return path.join(folder, `${specifier.replace('/', '-')}.mjs`);
}

function joinPackages(root) {
  const folder = folderOf(root);
  if (fs.existsSync(folder)) return;
  // Made aside and then renamed: whoever starts meanwhile sees all of it or nothing.
  const unfinished = `${folder}.${process.pid}`;
  require('esbuild').buildSync({
    absWorkingDir: root,
    entryPoints: Object.fromEntries(SPECIFIERS.map((one) => [path.basename(fileOf('', one), '.mjs'), one])),
    outdir: unfinished,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node24',
    logLevel: 'silent',
  });
  try {
    fs.renameSync(unfinished, folder);
  } catch (error) {
    fs.rmSync(unfinished, { recursive: true });
    // Somebody else was quicker.
    if (!fs.existsSync(folder)) throw error;
  }
}

/**
 * What the program's own files import from those packages comes from the joined files, and what they import from each other
 * is resolved without Node's search for packages and links, unless a variable says no.
 */
function useJoinedPackages(root) {
  if (process.env.TRESTLE_JOINED_PACKAGES === '0') return;
  const folder = folderOf(root);
  const urls = new Map(
    fs.existsSync(folder) ? SPECIFIERS.map((one) => [one, pathToFileURL(fileOf(folder, one)).href]) : [],
  );
  const own = pathToFileURL(path.join(root, path.sep)).href;
  const packages = pathToFileURL(path.join(root, 'node_modules', path.sep)).href;
  require('node:module').registerHooks({
    resolve(specifier, context, nextResolve) {
      const importer = context.parentURL;
      // A package may depend on another version of them.
      if (importer?.startsWith(packages)) return nextResolve(specifier, context);
      if (specifier.startsWith('.') && specifier.endsWith('.ts') && importer?.startsWith(own)) {
        const file = new URL(specifier, importer);
        // Node's own error for a missing file names the importer.
        if (fs.existsSync(file)) return { url: file.href, format: 'module-typescript', shortCircuit: true };
      }
      const url = urls.get(specifier);
      return url === undefined ? nextResolve(specifier, context) : { url, format: 'module', shortCircuit: true };
    },
  });
}

module.exports = { JOINED_PACKAGES, joinPackages, useJoinedPackages };

if (require.main === module) {
  try {
    joinPackages(path.dirname(__dirname));
  } catch (error) {
    process.stderr.write(`The start will take a little longer: ${error.message}\n`);
  }
}
