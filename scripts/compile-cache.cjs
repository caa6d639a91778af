// Compiled code is kept between starts. Not in the system's temp folder, which is Node's default: what lies there may
// have been put there by another user, and this is code that will run.
'use strict';

const os = require('node:os');
const path = require('node:path');

function enableCompileCache() {
  const { NODE_COMPILE_CACHE: chosen, XDG_CACHE_HOME: cacheHome } = process.env;
  const folder = chosen || path.join(cacheHome || path.join(os.homedir(), '.cache'), 'trestle', 'compile-cache');
  // Answers with a status instead of throwing when the folder cannot be written: then there is no cache, and that is all.
  require('node:module').enableCompileCache(folder);
}

module.exports = { enableCompileCache };
