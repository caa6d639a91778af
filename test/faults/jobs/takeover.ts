import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { createScope } from '../../kit/create-scope.ts';
import { startPostgres } from '../../kit/real-postgres.ts';
import { type RunningProgram, startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { checkTakeover, type Operation, type StoredTurn, takeoverFigures } from './check-takeover.ts';
import { createJobSubmits } from './job-operations.ts';
import { TURNS_OF_JOBS } from './turns-of-jobs.ts';

const BRIDGES = 3;
const CLIENTS = 3;
const PAUSE_MS = 100;
const MAX_RUN_MS = 3000;
/** Each word takes a moment, so that every kill finds jobs that run. */
const CONFIGURATION = { agents: { builtin: { model: 'demo/echo?delay=150' } }, jobs: { max_running: 8 } };
const PROMPT = 'one two three four';

interface Node {
  readonly program: RunningProgram;
  readonly instance: string;
}

/** Kills one of three bridges on one PostgreSQL again and again; the others take over what it was doing. */
export const takeoverFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const random = seededRandom(seed);
  const log = openOperationLog<Operation>('takeover');
  const scope = createScope();
  const { storedJobs, submitJob } = createJobSubmits();
  const keys: string[] = [];
  try {
    const server = await startPostgres();
    scope.after(() => server.stop());
    const store = new Client({ connectionString: server.url });
    await store.connect();
    scope.after(() => store.end());
    const rows = async <Row>(sql: string): Promise<Row[]> => (await store.query(sql)).rows as Row[];
    const instances = async () => (await rows<{ id: string }>('SELECT id FROM bridge.instances')).map(({ id }) => id);

    async function startNode(folder: string): Promise<Node> {
      const config = join(folder, 'trestle.yaml');
      await writeFile(config, JSON.stringify(CONFIGURATION));
      const before = new Set(nodes.map(({ instance }) => instance));
      for (const dead of killed) before.add(dead);
      const args = ['bridge', '--config', config, '--log-level', 'silent', '--database', server.url];
      const program = await startProgram(scope, { args, dataDirectory: folder });
      const instance = (await instances()).find((id) => !before.has(id)) ?? '';
      return { program, instance };
    }
    const killed = new Set<string>();
    const nodes: Node[] = [];
    for (let index = 0; index < BRIDGES; index += 1) nodes.push(await startNode(await temporaryFolder(scope)));

    let isOver = false;
    const submitUntilOver = async (_: unknown, client: number): Promise<void> => {
      for (let turn = client; !isOver; turn += 1) {
        const key = `key-${keys.length}`;
        keys.push(key);
        const url = nodes[turn % BRIDGES]?.program.url ?? '';
        log.note(await submitJob(url, key, { taskPrompt: PROMPT, retryOnRestart: random() < 0.5 }));
        await sleep(random() * PAUSE_MS);
      }
    };
    const load = Array.from({ length: CLIENTS }, submitUntilOver);
    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      await sleep(random() * MAX_RUN_MS);
      const index = Math.floor(random() * BRIDGES);
      const { program, instance } = nodes[index] as Node;
      await program.stop('SIGKILL');
      log.note({ kind: 'kill', instance, at: Date.now() });
      killed.add(instance);
      nodes[index] = await startNode(program.dataDirectory);
      if (cycle % 10 === 0) say(`${cycle} of ${cycles} kills`);
    }
    isOver = true;
    await Promise.all(load);
    const { jobs, jobOfKey } = await storedJobs(nodes[0]?.program.url ?? '', keys);
    const turns = await rows<StoredTurn>(TURNS_OF_JOBS);
    const found = { jobs, jobOfKey, turns };
    return await log.report({
      check: (operations) => checkTakeover(operations, found),
      figures: (operations) => takeoverFigures(operations, found),
      say,
    });
  } finally {
    await scope.end();
  }
};
