import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { createScope } from '../../kit/create-scope.ts';
import { type RealPostgres, startPostgres } from '../../kit/real-postgres.ts';
import { startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import { createJobSubmits } from '../jobs/job-operations.ts';
import { openOperationLog } from '../operation-log.ts';
import { checkOperations, figuresOf, type Operation } from './check-operations.ts';

const CLIENTS = 4;
/** A client waits a little after each submit: what is to be seen is the outages, and not the rate. */
const PAUSE_MS = 20;
const MAX_OUTAGE_MS = 2000;
/** From one outage to the next: long enough for everything to work in between. */
const BETWEEN_MS = 6000;

interface Outage {
  readonly how: string;
  /** Resolves when the database takes connections again. */
  cause(server: RealPostgres, random: () => number): Promise<void>;
}

const OUTAGES: readonly Outage[] = [
  {
    how: 'stop and start',
    async cause(server, random) {
      await server.pause();
      await sleep(random() * MAX_OUTAGE_MS);
      await server.start();
    },
  },
  { how: 'restart', cause: (server) => server.restart() },
  { how: 'end of all connections', cause: ({ url }) => endConnections(url) },
];

/** Takes PostgreSQL away from a bridge under load, again and again, then compares what clients know with what is stored. */
export const databaseFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const random = seededRandom(seed);
  const log = openOperationLog<Operation>('database');
  const scope = createScope();
  const { storedJobs, submitJob } = createJobSubmits();
  const keys: string[] = [];
  try {
    const server = await startPostgres();
    scope.after(() => server.stop());
    const program = await startProgram(scope, {
      args: ['bridge', '--log-level', 'silent', '--database', server.url],
      dataDirectory: await temporaryFolder(scope),
    });
    let isOver = false;
    const submitUntilOver = async (): Promise<void> => {
      while (!isOver) {
        const key = `key-${keys.length}`;
        keys.push(key);
        log.note(await submitJob(program.url, key));
        await sleep(random() * PAUSE_MS);
      }
    };
    const load = Array.from({ length: CLIENTS }, submitUntilOver);
    await sleep(1000);
    for (let cycle = 0; cycle < cycles && program.child.exitCode === null; cycle += 1) {
      const { how, cause } = OUTAGES[cycle % OUTAGES.length] as Outage;
      const from = performance.now();
      await cause(server, random);
      log.note({ kind: 'outage', how, from, to: performance.now() });
      await sleep(BETWEEN_MS);
      if ((cycle + 1) % 10 === 0) say(`${cycle + 1} of ${cycles} outages`);
    }
    isOver = true;
    await Promise.all(load);
    const code = program.child.exitCode ?? program.child.signalCode;
    if (code !== null) log.note({ kind: 'exit', code: String(code) });
    const store = code === null ? await storedJobs(program.url, keys) : { jobs: [], jobOfKey: new Map() };
    return await log.report({
      check: (operations) => checkOperations(operations, store),
      figures: (operations) => figuresOf(operations, store),
      say,
    });
  } finally {
    await scope.end();
  }
};

async function endConnections(url: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL',
    );
  } finally {
    await client.end();
  }
}
