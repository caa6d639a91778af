// Preloaded into the program under test: on SIGUSR2 it collects garbage and writes down how much memory is still held.
'use strict';

const { writeFileSync } = require('node:fs');
const { setFlagsFromString } = require('node:v8');
const { runInNewContext } = require('node:vm');
const { isMainThread } = require('node:worker_threads');

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');

if (isMainThread) {
  process.on('SIGUSR2', async () => {
    for (let round = 0; round < 3; round += 1) {
      collect();
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const { heapUsed, external } = process.memoryUsage();
    writeFileSync(process.env.MEMORY_REPORT, String(heapUsed + external));
  });
}
