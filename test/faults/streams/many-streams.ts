import { setTimeout as sleep } from 'node:timers/promises';
import { createScope } from '../../kit/create-scope.ts';
import { residentBytes } from '../../kit/resident-bytes.ts';
import type { FaultSuite } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { startBeforeModel } from '../program-before-model.ts';
import { checkOperations, figuresOf, type Operation } from './check-operations.ts';
import { agent, readStream } from './read-stream.ts';

const AT_ONCE = 1000;
/** Half a minute for each stream. */
const WORDS = 600;
const STREAM_MS = 30_000;
const LOOK_EVERY_MS = 250;

/** A thousand streams at once, of twenty words a second each; one that has ended is followed by another, so often. */
export const streamsFaults: FaultSuite = async ({ cycles, say }) => {
  const scope = createScope();
  const log = openOperationLog<Operation>('streams');
  try {
    const { program, upstream } = await startBeforeModel(scope, new URL('../paced-model.ts', import.meta.url));
    scope.after(() => agent.destroy());
    let running = true;
    let ended = 0;

    async function look(): Promise<void> {
      while (running) {
        log.note({ kind: 'memory', bytes: await residentBytes(program.pid) });
        log.note(await readStream(`${upstream}/v1`, 'm', 1, true));
        await sleep(LOOK_EVERY_MS);
      }
    }
    async function read(index: number): Promise<void> {
      await sleep((index * STREAM_MS) / AT_ONCE);
      for (let count = 0; count < cycles; count += 1) {
        log.note(await readStream(`${program.url}/v1`, 'fake/m', WORDS, false));
        ended += 1;
        if (ended % AT_ONCE === 0) say(`${ended} of ${AT_ONCE * cycles} streams`);
      }
    }
    const looking = look();
    await Promise.all(Array.from({ length: AT_ONCE }, (_, index) => read(index)));
    running = false;
    await looking;
    await program.stop('SIGTERM');
    return await log.report({ check: checkOperations, figures: figuresOf, say });
  } finally {
    await scope.end();
  }
};
