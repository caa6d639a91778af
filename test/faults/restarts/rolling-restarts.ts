import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { createScope } from '../../kit/create-scope.ts';
import { startPostgres } from '../../kit/real-postgres.ts';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import type { StoredTurn } from '../jobs/check-takeover.ts';
import { createJobSubmits } from '../jobs/job-operations.ts';
import { TURNS_OF_JOBS } from '../jobs/turns-of-jobs.ts';
import { openOperationLog } from '../operation-log.ts';
import { startModel } from '../program-before-model.ts';
import { checkOperations, figuresOf, type Operation } from './check-operations.ts';
import { startLoad } from './load.ts';

const INSTANCES = 3;
/** Between two restarts. */
const MAX_REST_MS = 500;
/** Each word of a job takes a moment, so that a signal finds jobs that run. */
const SETTINGS = { agents: { builtin: { model: 'demo/echo?delay=150' } }, jobs: { max_running: 8 } };

/** Restarts three instances on one PostgreSQL one after the other, so often, under calls, jobs and streams that must not notice. */
export const restartsFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const random = seededRandom(seed);
  const log = openOperationLog<Operation>('restarts');
  const scope = createScope();
  const { noteParams, storedJobs } = createJobSubmits();
  try {
    const server = await startPostgres();
    scope.after(() => server.stop());
    const { completions } = await startModel(scope, new URL('../paced-model.ts', import.meta.url));
    const settings = JSON.stringify({ ...SETTINGS, completions });

    async function start(folder: string): Promise<RunningProgram> {
      const config = join(folder, 'trestle.yaml');
      await writeFile(config, settings, { mode: 0o600 });
      const args = ['--config', config, '--log-level', 'silent', '--database', server.url];
      return startProgram(scope, { args, dataDirectory: folder });
    }
    const programs: RunningProgram[] = [];
    for (let index = 0; index < INSTANCES; index += 1) programs.push(await start(await temporaryFolder(scope)));

    const load = startLoad({ urls: () => programs.map(({ url }) => url), random, note: log.note, noteParams });
    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const instance = cycle % INSTANCES;
      const { stop, dataDirectory } = programs[instance] as RunningProgram;
      // Every other time, so that some instances have nothing to wait for but short calls.
      if (cycle % 2 === 0) await load.beginStreams(instance);
      const startedAt = performance.now();
      const code = String(await stop('SIGTERM'));
      log.note({ kind: 'stop', instance, startedAt, endedAt: performance.now(), code });
      const began = performance.now();
      programs[instance] = await start(dataDirectory);
      log.note({ kind: 'ready', ms: performance.now() - began });
      await sleep(random() * MAX_REST_MS);
      if (cycle % 10 === 0) say(`${cycle} of ${cycles} restarts`);
    }
    const keys = await load.end();
    const jobs = await storedJobs(programs[0]?.url ?? '', keys);
    const found = { ...jobs, turns: await storedTurns(scope, server.url) };
    return await log.report({
      check: (operations) => checkOperations(operations, found),
      figures: (operations) => figuresOf(operations, found),
      say,
    });
  } finally {
    await scope.end();
  }
};

async function storedTurns(scope: Scope, url: string): Promise<readonly StoredTurn[]> {
  const store = new Client({ connectionString: url });
  await store.connect();
  scope.after(() => store.end());
  return (await store.query(TURNS_OF_JOBS)).rows as StoredTurn[];
}
