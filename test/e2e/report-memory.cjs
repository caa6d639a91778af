// Preloaded into the program under test: on SIGUSR2 it collects garbage and writes down how much memory is still held. With
// COLLECTION_REPORT, a collection that the program asks for itself writes down the size of the young generation before and after.
'use strict';

const { writeFileSync } = require('node:fs');
const { getHeapSpaceStatistics, setFlagsFromString } = require('node:v8');
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

const { COLLECTION_REPORT } = process.env;
const own = globalThis.gc;
if (isMainThread && COLLECTION_REPORT !== undefined && own !== undefined) {
  const young = () => getHeapSpaceStatistics().find((space) => space.space_name === 'new_space').physical_space_size;
  globalThis.gc = (options) => {
    const before = young();
    own(options);
    writeFileSync(COLLECTION_REPORT, `${before} ${young()}\n`);
  };
}
