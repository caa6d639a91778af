// For `node --require`: the database threads are given an environment of their own, without the variable that asks for coverage.
'use strict';

const { syncBuiltinESMExports } = require('node:module');
const threads = require('node:worker_threads');

const { NODE_V8_COVERAGE } = process.env;

class CoveredWorker extends threads.Worker {
  constructor(file, options = {}) {
    super(file, typeof options.env === 'object' ? { ...options, env: { ...options.env, NODE_V8_COVERAGE } } : options);
  }
}

if (NODE_V8_COVERAGE !== undefined) {
  threads.Worker = CoveredWorker;
  syncBuiltinESMExports();
}
