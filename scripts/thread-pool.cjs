'use strict';

const { availableParallelism } = require('node:os');

/** For files and names of hosts, beside the passwords that may be hashed on all cores at once (src/accounts/passwords). */
const SPARE_THREADS = 4;

/** Node's own pool has four threads, however many cores there are. To be called before anything uses it. */
function sizeThreadPool() {
  process.env.UV_THREADPOOL_SIZE ??= String(availableParallelism() + SPARE_THREADS);
}

module.exports = { sizeThreadPool };
