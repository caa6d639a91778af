// Runs before anything else, so it must parse and work on any Node since 14.18: plain CommonJS, no dependency.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

/** As in sysexits.h, and as for a wrong configuration: starting again would not help. */
const EXIT_CONFIGURATION = 78;

/** `>=24.11` of package.json and `v24.21.0` of the process, compared as numbers. */
function isNewEnough(version, wanted) {
  const [major = 0, minor = 0] = numbers(version);
  const [wantedMajor = 0, wantedMinor = 0] = numbers(wanted);
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}

function numbers(version) {
  return version
    .replace(/^[^0-9]*/, '')
    .split('.')
    .map(Number);
}

/** What stands in the way, as one line that says what to do; undefined when nothing does. `root` holds package.json. */
function findProblem(root, version) {
  const manifest = JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8'));
  const isCheckout = fs.existsSync(path.join(root, 'src'));
  if (isCheckout && !Object.keys(manifest.dependencies).every((name) => isInstalled(root, name))) {
    return 'The dependencies of Trestle are not installed. Run: npm install';
  }
  if (isNewEnough(version, manifest.engines.node)) return undefined;
  const wanted = numbers(manifest.engines.node).join('.');
  const advice = isCheckout
    ? `Run: npm rebuild node --ignore-scripts=false (install scripts were switched off), or use your own Node ${wanted}.`
    : 'Install it from https://nodejs.org.';
  return `Trestle needs Node ${wanted} or newer; this is ${version}. ${advice}`;
}

function isInstalled(root, name) {
  return fs.existsSync(path.join(root, 'node_modules', name, 'package.json'));
}

/** Ends the process, with one line on standard error, when the program cannot run here. */
function preflight() {
  const problem = findProblem(path.dirname(__dirname), process.version);
  if (problem === undefined) return;
  process.stderr.write(`${problem}\n`);
  process.exit(EXIT_CONFIGURATION);
}

module.exports = { findProblem, preflight };

if (require.main === module) preflight();
