import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { JobList, JobRecord } from '../../../src/bridge/contract/jobs.ts';
import { call } from '../../kit/bridge/session-client.ts';
import { createScope } from '../../kit/create-scope.ts';
import { listenOnLoopback } from '../../kit/loopback-server.ts';
import { type RunningProgram, startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { type FaultOptions, type FaultSuite, seededRandom } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { checkOperations, figuresOf, type Operation } from './check-operations.ts';
import { createJobSubmits, seenOf } from './job-operations.ts';

const CLIENTS = 8;
/** So many answers come before a kill: by count and not by time, so that a slow machine does as much. */
const MIN_ANSWERS = 100;
const MAX_ANSWERS = 320;
const MAX_MS = 20_000;
/** Not always right after an answer. */
const LAG_MS = 20;
/** What a kill has interrupted is due again half a minute later. */
const LATE_WEBHOOKS_MS = 35_000;

/** Kills the program under submit load, starts it on the same files, and again; then compares what clients know with what is stored. */
export const jobsFaults: FaultSuite = async ({ cycles, seed, say }: FaultOptions) => {
  const scope = createScope();
  const folder = await temporaryFolder(scope);
  const log = openOperationLog<Operation>('jobs');
  const receiver = await startReceiver(log.note);
  scope.after(receiver.close);
  const random = seededRandom(seed);
  const { storedJobs, submitJob } = createJobSubmits();
  const keys: string[] = [];
  let answers = 0;

  async function start(): Promise<RunningProgram> {
    const began = performance.now();
    const program = await startProgram(scope, { args: ['bridge', '--log-level', 'silent'], dataDirectory: folder });
    log.note({ kind: 'ready', ms: performance.now() - began });
    return program;
  }

  async function submitUntilKilled(program: RunningProgram, isOver: () => boolean): Promise<void> {
    while (!isOver()) {
      const key = random() < 0.2 && keys.length > 0 ? String(keys[Math.floor(random() * keys.length)]) : newKey(keys);
      const params = {
        retryOnRestart: random() < 0.3,
        ...(random() < 0.5 && { callbackUrl: receiver.url }),
      };
      const submitted = await submitJob(program.url, key, params);
      log.note(submitted);
      if (submitted.outcome !== 'unknown') answers += 1;
      if (random() < 0.1) await noteList(program.url, log.note).catch(() => undefined);
    }
  }

  try {
    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const program = await start();
      let isOver = false;
      const load = Array.from({ length: CLIENTS }, () => submitUntilKilled(program, () => isOver));
      const enough = answers + MIN_ANSWERS + random() * (MAX_ANSWERS - MIN_ANSWERS);
      for (const limit = performance.now() + MAX_MS; answers < enough && performance.now() < limit; ) await sleep(1);
      await sleep(random() * LAG_MS);
      await program.stop('SIGKILL');
      isOver = true;
      await Promise.all(load);
      if (cycle % 20 === 0) say(`${cycle} of ${cycles} cycles, ${keys.length} keys`);
    }
    const last = await start();
    await sleep(LATE_WEBHOOKS_MS);
    const store = await storedJobs(last.url, keys);
    await last.stop('SIGTERM');
    return await log.report({
      check: (operations) => checkOperations(operations, store),
      figures: (operations) => figuresOf(operations, store),
      say,
    });
  } finally {
    await scope.end();
  }
};

function newKey(keys: string[]): string {
  const key = `key-${keys.length}`;
  keys.push(key);
  return key;
}

async function noteList(url: string, note: (operation: Operation) => void): Promise<void> {
  const { result } = await call(url, 'app.jobs.list', { limit: 50 });
  for (const job of (result as unknown as JobList).jobs) note({ kind: 'seen', job: seenOf(job) });
}

async function startReceiver(note: (operation: Operation) => void) {
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const job = JSON.parse(String(Buffer.concat(chunks))) as JobRecord;
    note({ kind: 'callback', jobId: job.jobId, delivery: String(request.headers['x-app-delivery']) });
    note({ kind: 'seen', job: seenOf(job) });
    response.writeHead(204).end();
  });
  return listenOnLoopback(server);
}
