import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { JobList, JobRecord, JobStatistics } from '../../../src/bridge/contract/jobs.ts';
import { call } from '../../contract/bridge/session-client.ts';
import { type RunningProgram, startProgram } from '../../e2e/running-program.ts';
import { type FaultOptions, type FaultSuite, seededRandom } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { checkOperations, type Operation } from './check-operations.ts';

const CLIENTS = 8;
const SHORTEST_MS = 50;
const LONGEST_MS = 500;
/** Long enough for the last attempts of webhooks that a kill has put off. */
const QUIET_LIMIT_MS = 120_000;
const PAGE = 1000;

/** Kills the program under submit load, starts it on the same files, and again; then compares what clients know with what is stored. */
export const jobsFaults: FaultSuite = async ({ cycles, seed, say }: FaultOptions) => {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-faults-'));
  const logFile = join(tmpdir(), `trestle-faults-jobs-${process.pid}.log`);
  const log = openOperationLog<Operation>(logFile);
  const receiver = await startReceiver(log.note);
  const random = seededRandom(seed);
  const keys: string[] = [];
  const readyMs: number[] = [];
  const children = new Set<RunningProgram>();

  async function start(): Promise<RunningProgram> {
    const began = performance.now();
    const program = await startProgram(
      { after: () => undefined },
      { args: ['bridge', '--log-level', 'silent'], dataDirectory: folder },
    );
    const ms = performance.now() - began;
    readyMs.push(ms);
    log.note({ kind: 'ready', ms });
    children.add(program);
    return program;
  }

  async function submitUntilKilled(program: RunningProgram, isOver: () => boolean): Promise<void> {
    while (!isOver()) {
      const key = random() < 0.2 && keys.length > 0 ? String(keys[Math.floor(random() * keys.length)]) : newKey(keys);
      const params = {
        taskPrompt: 'hello',
        idempotencyKey: key,
        retryOnRestart: random() < 0.3,
        ...(random() < 0.5 && { callbackUrl: receiver.url }),
      };
      log.note(await submit(program.url, key, params));
      if (random() < 0.1) await noteList(program.url, log.note).catch(() => undefined);
    }
  }

  try {
    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const program = await start();
      let isOver = false;
      const load = Array.from({ length: CLIENTS }, () => submitUntilKilled(program, () => isOver));
      await sleep(SHORTEST_MS + random() * (LONGEST_MS - SHORTEST_MS));
      await program.stop('SIGKILL');
      isOver = true;
      await Promise.all(load);
      if (cycle % 20 === 0) say(`${cycle} of ${cycles} cycles, ${keys.length} keys`);
    }
    const last = await start();
    await untilQuiet(last.url);
    const jobs = await listAll(last.url);
    const jobOfKey = new Map<string, string>();
    for (const key of keys) {
      const { jobId } = await submit(last.url, key, { taskPrompt: 'hello', idempotencyKey: key });
      if (jobId !== undefined) jobOfKey.set(key, jobId);
    }
    await last.stop('SIGTERM');
    const operations = await log.close();
    const count = (outcome: string) =>
      operations.filter((one) => one.kind === 'submit' && one.outcome === outcome).length;
    const sorted = readyMs.toSorted((a, b) => a - b);
    say(`${cycles} kills: ${count('ok')} submits acknowledged, ${count('fail')} refused, ${count('unknown')} unknown`);
    say(`${jobs.length} jobs stored, ${operations.filter(({ kind }) => kind === 'callback').length} callbacks`);
    say(
      `ready after ${Math.round(sorted[sorted.length >> 1] ?? 0)} ms (median), ${Math.round(sorted.at(-1) ?? 0)} ms at most`,
    );
    const violations = checkOperations(operations, { jobs, jobOfKey });
    if (violations.length === 0) await rm(logFile, { force: true });
    else say(`the log is ${logFile}`);
    return violations;
  } finally {
    for (const child of children) await child.stop('SIGKILL');
    await receiver.close();
    await rm(folder, { recursive: true, force: true });
  }
};

function newKey(keys: string[]): string {
  const key = `key-${keys.length}`;
  keys.push(key);
  return key;
}

type Submit = Extract<Operation, { kind: 'submit' }>;

async function submit(url: string, key: string, params: object): Promise<Submit> {
  try {
    const { result } = await call(url, 'app.jobs.submit', params);
    if (result === undefined) return { kind: 'submit', key, outcome: 'fail' };
    return { kind: 'submit', key, outcome: 'ok', jobId: String(result.jobId) };
  } catch {
    return { kind: 'submit', key, outcome: 'unknown' };
  }
}

async function noteList(url: string, note: (operation: Operation) => void): Promise<void> {
  const { result } = await call(url, 'app.jobs.list', { limit: 50 });
  for (const job of (result as unknown as JobList).jobs) note({ kind: 'seen', job: seenOf(job) });
}

async function listAll(url: string): Promise<JobRecord[]> {
  const all: JobRecord[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const { result } = await call(url, 'app.jobs.list', { limit: PAGE, ...(cursor !== '' && { cursor }) });
    const page = result as unknown as JobList;
    all.push(...page.jobs);
    cursor = page.nextCursor;
  }
  return all;
}

/** Until every job has ended, and every webhook has arrived or was tried three times. */
async function untilQuiet(url: string): Promise<void> {
  for (const end = Date.now() + QUIET_LIMIT_MS; Date.now() < end; await sleep(500)) {
    const { result } = await call(url, 'app.jobs.stats', {});
    const { pending, running } = (result as unknown as JobStatistics).summary;
    if (pending + running === 0) break;
  }
  // What a kill has interrupted is due again half a minute later.
  await sleep(35_000);
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
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    async close() {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}

function seenOf({ jobId, status, completedAt, errorCode }: JobRecord) {
  return { jobId, status, completedAt, errorCode };
}
