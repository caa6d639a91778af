// node scripts/run.cjs <entry> [arguments]: checks the runtime, makes starting quick and runs the entry in this
// very process, so that signals reach the program and its exit code is the process's own.
'use strict';

const path = require('node:path');
const { pathToFileURL } = require('node:url');
const { preflight } = require('./preflight.cjs');
const { enableCompileCache } = require('./compile-cache.cjs');
const { useJoinedPackages } = require('./joined-packages.cjs');
const { sizeThreadPool } = require('./thread-pool.cjs');
const { stopWithNpm } = require('./stop-with-npm.cjs');

preflight();
enableCompileCache();
useJoinedPackages(path.dirname(__dirname));
sizeThreadPool();

stopWithNpm();

const entry = path.resolve(process.argv[2]);
process.argv.splice(1, 2, entry);
import(pathToFileURL(entry).href);
