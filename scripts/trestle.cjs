#!/usr/bin/env -S node --max-semi-space-size=16 --expose-gc
// The command of the published package; the build puts it into dist/.
'use strict';

const path = require('node:path');
const { pathToFileURL } = require('node:url');
const { preflight } = require('./preflight.cjs');
const { enableCompileCache } = require('./compile-cache.cjs');
const { sizeThreadPool } = require('./thread-pool.cjs');

preflight();
enableCompileCache();
sizeThreadPool();
import(pathToFileURL(path.join(__dirname, 'program/main.js')).href);
