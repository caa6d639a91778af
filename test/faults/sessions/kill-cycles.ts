import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createScope } from '../../kit/create-scope.ts';
import { type RunningProgram, startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { checkOperations, figuresOf, type Operation } from './check-operations.ts';
import { startCountingModel } from './counting-model.ts';
import { createResumingClient } from './resuming-client.ts';
import { readStoredSessions } from './stored-sessions.ts';

const SESSIONS = 16;
/** So many updates come before a kill: by count and not by time, so that a slow machine does as much. */
const MIN_UPDATES = 50;
const MAX_UPDATES = 1000;
const MAX_MS = 20_000;
/** Not always right after an update. */
const LAG_MS = 20;

/** Kills the bridge in the middle of turns whose clients resume; then compares what they saw with what is stored. */
export const sessionsFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const scope = createScope();
  const log = openOperationLog<Operation>('sessions');
  const random = seededRandom(seed);
  let updates = 0;
  const note = (operation: Operation): void => {
    log.note(operation);
    if (operation.kind === 'update') updates += 1;
  };
  const clients = Array.from({ length: SESSIONS }, (_, index) =>
    createResumingClient({ session: `s${index}`, random: seededRandom(seed * 1000 + index), note }),
  );

  try {
    const folder = await temporaryFolder(scope);
    const model = await startCountingModel((prompt) => note({ kind: 'asked', prompt }), seededRandom(seed + 1));
    scope.after(model.close);

    const start = async (): Promise<RunningProgram> => {
      const began = performance.now();
      const program = await startProgram(scope, {
        args: ['bridge', '--log-level', 'silent'],
        environment: { TRESTLE_AGENTS_BUILTIN_BASE_URL: model.url },
        dataDirectory: folder,
      });
      note({ kind: 'ready', ms: performance.now() - began });
      return program;
    };

    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const running = await start();
      let isOver = false;
      const load = clients.map((client) => client.workUntil(running.url, () => isOver));
      const enough = updates + MIN_UPDATES + random() * (MAX_UPDATES - MIN_UPDATES);
      for (const limit = Date.now() + MAX_MS; updates < enough && Date.now() < limit; ) await sleep(1);
      await sleep(random() * LAG_MS);
      note({ kind: 'kill', at: performance.now() });
      const stopped = running.stop('SIGKILL');
      isOver = true;
      await Promise.all([stopped, ...load]);
      if (cycle % 20 === 0) say(`${cycle} of ${cycles} cycles`);
    }
    const last = await start();
    await Promise.all(clients.map((client) => client.finish(last.url)));
    await last.stop('SIGTERM');
    const store = readStoredSessions(join(folder, 'bridge.db'));
    return await log.report({
      check: (operations) => checkOperations(operations, store),
      figures: (operations) => figuresOf(operations, store),
      say,
    });
  } finally {
    await scope.end();
  }
};
