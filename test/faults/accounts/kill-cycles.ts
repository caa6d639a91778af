import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createScope } from '../../kit/create-scope.ts';
import { type RunningProgram, startProgram, temporaryFolder } from '../../kit/running-program.ts';
import {
  countFigure,
  type FaultFigure,
  type FaultSuite,
  longestFigure,
  neverFigure,
  seededRandom,
} from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { createAccountWorker } from './account-worker.ts';
import { checkOperations, type Operation } from './check-operations.ts';
import { readStoredAccounts } from './stored-accounts.ts';

const WORKERS = 8;
/** So many answers come before a kill: by count and not by time, so that a slow machine does as much. */
const MIN_ANSWERS = 20;
const MAX_ANSWERS = 150;
const MAX_MS = 20_000;
const READY_MS = 2000;
/** Not always right after an answer. */
const LAG_MS = 20;
/** Every call may come from another address, anyone may register, and a registration is one call. */
const CONFIGURATION = {
  trusted_proxies: ['127.0.0.1/32'],
  accounts: { registration: 'open', require_verification: false },
};
const KINDS: readonly Operation['kind'][] = ['register', 'login', 'refresh', 'check', 'end', 'code'];

/** Kills the program while people register, log in, refresh and log out; then compares what they know with what is stored. */
export const accountsFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const scope = createScope();
  const folder = await temporaryFolder(scope);
  const log = openOperationLog<Operation>('accounts');
  const random = seededRandom(seed);
  const readyMs: number[] = [];
  let answers = 0;
  const note = (operation: Operation): void => {
    log.note(operation);
    if (operation.outcome !== 'unknown') answers += 1;
  };
  const workers = Array.from({ length: WORKERS }, (_, index) =>
    createAccountWorker({ name: `worker${index}`, random: seededRandom(seed * 1000 + index), note }),
  );

  async function start(): Promise<RunningProgram> {
    const began = performance.now();
    const args = ['accounts', '--config', join(folder, 'trestle.yaml'), '--log-level', 'silent'];
    const program = await startProgram(scope, { args, dataDirectory: folder });
    readyMs.push(performance.now() - began);
    return program;
  }

  try {
    await writeFile(join(folder, 'trestle.yaml'), JSON.stringify(CONFIGURATION));
    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const running = await start();
      let isOver = false;
      const load = workers.map((worker) => worker.workUntil(running.url, () => isOver));
      const enough = answers + MIN_ANSWERS + random() * (MAX_ANSWERS - MIN_ANSWERS);
      for (const limit = Date.now() + MAX_MS; answers < enough && Date.now() < limit; ) await sleep(1);
      await sleep(random() * LAG_MS);
      const stopped = running.stop('SIGKILL');
      isOver = true;
      await Promise.all([stopped, ...load]);
      if (cycle % 20 === 0) say(`${cycle} of ${cycles} cycles`);
    }
    const last = await start();
    await Promise.all(workers.map((worker) => worker.checkAll(last.url)));
    await last.stop('SIGTERM');
    const operations = await log.close();
    const violations = checkOperations(operations, readStoredAccounts(join(folder, 'accounts.db')));
    await log.settle(violations, say);
    const figures = [
      countFigure('kills under load', cycles),
      ...countsOf(operations),
      neverFigure('what was acknowledged and is lost, undone or given twice', violations.length),
      longestFigure('ready after a kill, at most', readyMs.slice(1), READY_MS),
    ];
    return { violations, figures };
  } finally {
    await scope.end();
  }
};

/** `120: 118 ok, 0 fail, 2 unknown` for each kind of call. A kind that never succeeded was not tried. */
function countsOf(operations: readonly Operation[]): FaultFigure[] {
  const byKind = Object.groupBy(operations, ({ kind }) => kind);
  return KINDS.map((kind) => {
    const all = byKind[kind] ?? [];
    const count = (wanted: string) => all.filter(({ outcome }) => outcome === wanted).length;
    const outcomes = ['ok', 'fail', 'unknown'].map((wanted) => `${count(wanted)} ${wanted}`);
    const isEmpty = count('ok') === 0;
    return { name: `calls: ${kind}`, value: `${all.length}: ${outcomes.join(', ')}`, goal: '', met: !isEmpty, isEmpty };
  });
}
