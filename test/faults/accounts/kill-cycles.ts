import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type RunningProgram, startProgram } from '../../e2e/running-program.ts';
import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import { createAccountWorker } from './account-worker.ts';
import { checkOperations, type Operation } from './check-operations.ts';
import { openAccountOperationLog } from './operation-log.ts';
import { readStoredAccounts } from './stored-accounts.ts';

const WORKERS = 8;
const SHORTEST_MS = 300;
const LONGEST_MS = 2000;
/** Every call may come from another address, and a registration is one call. */
const CONFIGURATION = { trusted_proxies: ['127.0.0.1/32'], accounts: { require_verification: false } };

/** Kills the program while people register, log in, refresh and log out; then compares what they know with what is stored. */
export const accountsFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-faults-'));
  const logFile = join(tmpdir(), `trestle-faults-accounts-${process.pid}.log`);
  const log = openAccountOperationLog(logFile);
  const random = seededRandom(seed);
  const readyMs: number[] = [];
  const workers = Array.from({ length: WORKERS }, (_, index) =>
    createAccountWorker({ name: `worker${index}`, random: seededRandom(seed * 1000 + index), note: log.note }),
  );
  let program: RunningProgram | undefined;

  async function start(): Promise<RunningProgram> {
    const began = performance.now();
    const args = ['accounts', '--config', join(folder, 'trestle.yaml'), '--log-level', 'silent'];
    program = await startProgram({ after: () => undefined }, { args, dataDirectory: folder });
    readyMs.push(performance.now() - began);
    return program;
  }

  try {
    await writeFile(join(folder, 'trestle.yaml'), JSON.stringify(CONFIGURATION));
    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const running = await start();
      let isOver = false;
      const load = workers.map((worker) => worker.workUntil(running.url, () => isOver));
      await sleep(SHORTEST_MS + random() * (LONGEST_MS - SHORTEST_MS));
      isOver = true;
      await running.stop('SIGKILL');
      await Promise.all(load);
      if (cycle % 20 === 0) say(`${cycle} of ${cycles} cycles`);
    }
    const last = await start();
    await Promise.all(workers.map((worker) => worker.checkAll(last.url)));
    await last.stop('SIGTERM');
    const operations = await log.close();
    say(`${cycles} kills, seed ${seed}: ${summaryOf(operations)}`);
    say(`ready after ${Math.round(Math.max(...readyMs))} ms at most`);
    const violations = checkOperations(operations, readStoredAccounts(join(folder, 'accounts.db')));
    if (violations.length === 0) await rm(logFile, { force: true });
    else say(`the log is ${logFile}`);
    return violations;
  } finally {
    await program?.stop('SIGKILL');
    await rm(folder, { recursive: true, force: true });
  }
};

/** `120 register (118 ok, 0 fail, 2 unknown), ...` */
function summaryOf(operations: readonly Operation[]): string {
  const kinds = Object.entries(Object.groupBy(operations, ({ kind }) => kind));
  return kinds
    .map(([kind, all = []]) => {
      const count = (wanted: string) => `${all.filter(({ outcome }) => outcome === wanted).length} ${wanted}`;
      return `${all.length} ${kind} (${['ok', 'fail', 'unknown'].map(count).join(', ')})`;
    })
    .join(', ');
}
