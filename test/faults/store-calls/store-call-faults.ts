import type { JobStatistics } from '../../../src/bridge/contract/jobs.ts';
import { listJobs } from '../../bridge/jobs/job-client.ts';
import { call } from '../../contract/bridge/session-client.ts';
import { type BridgeUnderTest, startBridge } from '../../contract/bridge/start-bridge.ts';
import { createScope } from '../../fakes/create-scope.ts';
import { createScriptedProvider, echo, endless, type TurnScript } from '../../fakes/scripted-provider.ts';
import { until } from '../../fakes/until.ts';
import type { FaultSuite } from '../fault-suite.ts';
import { storedJobs, submitJob } from '../jobs/job-operations.ts';
import { openOperationLog } from '../operation-log.ts';
import { type BrokenCall, breakDatabase } from './broken-database.ts';
import {
  type BrokenRun,
  checkRun,
  figuresOf,
  type Operation,
  type StoredTurn,
  type WholeStore,
} from './check-operations.ts';

const ENDLESS = 'work on';
/** The jobs are looked after each second. */
const REACHED_MS = 5000;
const script: TurnScript = (turn) => (turn.prompt === ENDLESS ? endless : echo)(turn);

/**
 * One run of jobs and turns for each call of the store, in which that call fails: the first, the second, and so on, until
 * a run has no so many calls; once before the call has done anything and once after it. `cycles` is the most calls.
 */
export const storeCallFaults: FaultSuite = async ({ cycles, say }) => {
  const violations: string[] = [];
  const runs: BrokenRun[] = [await runOnce({ which: undefined, when: 'before' }, say)];
  const judge = (run: BrokenRun, when: string): void => {
    runs.push(run);
    const broken = run.brokenSites.join(' and ');
    violations.push(...checkRun(run).map((problem) => `${broken} failed ${when} it was done: ${problem}`));
  };
  for (const when of ['before', 'after'] as const) {
    for (let number = 1; number <= cycles; number += 1) {
      const run = await runOnce({ which: number, when }, say);
      if (run.brokenSites.length === 0) break;
      judge(run, when);
      if (number % 20 === 0) say(`${number} calls failed ${when} they were done`);
    }
  }
  // Which call it is differs from run to run, as work goes on in the background: what was missed is waited for.
  for (const site of missedSites(runs)) judge(await runOnce({ which: site, when: 'before' }, say), 'before');
  // What is still missed is reached after a failure alone.
  for (const site of missedSites(runs)) {
    const which = runs.find(({ sites }) => sites.includes(site))?.brokenSites[0];
    judge(await runOnce({ which, next: site, when: 'before' }, say), 'before');
  }
  for (const site of missedSites(runs)) say(`never failed: ${site}`);
  return { violations, figures: figuresOf(runs) };
};

function missedSites(runs: readonly BrokenRun[]): readonly string[] {
  const hit = new Set(runs.flatMap(({ brokenSites }) => brokenSites));
  return [...new Set(runs.flatMap(({ sites }) => sites))].filter((site) => !hit.has(site));
}

let logs = 0;

async function runOnce(broken: BrokenCall, say: (line: string) => void): Promise<BrokenRun> {
  logs += 1;
  const log = openOperationLog<Operation>(`store-calls-${broken.when}-${logs}`);
  const scope = createScope();
  try {
    const bridge = await startBridge(scope, { providers: [createScriptedProvider('one', script)] });
    const database = breakDatabase(bridge.database, broken);
    const keys = await useBridge(bridge.url, log.note);
    if (typeof broken.which === 'string') {
      const wanted = broken.next === undefined ? 1 : 2;
      const isReached = () => database.brokenSites.length === wanted;
      await until('that place to be reached', isReached, REACHED_MS).catch(() => undefined);
    }
    database.mend();
    const store = await storeAtTheEnd(bridge, keys);
    const operations = await log.close();
    const run = { brokenSites: [...database.brokenSites], sites: [...database.sites], operations, store };
    await log.settle(checkRun(run), say);
    return run;
  } finally {
    await scope.end();
  }
}

/** Some of everything that stores something. Gives the keys of the submits. */
async function useBridge(url: string, note: (operation: Operation) => void): Promise<readonly string[]> {
  const turn = async (method: string, prompt: string): Promise<void> => {
    const answer = await call(url, method, { sessionId: 'talk', taskPrompt: prompt }).catch(() => undefined);
    const outcome = answer === undefined ? 'unknown' : answer.error === undefined ? 'ok' : 'fail';
    note({ kind: 'turn', prompt, outcome });
  };
  note(await submitJob(url, 'first'));
  note(await submitJob(url, 'second', { retryOnRestart: true }));
  note(await submitJob(url, 'first'));
  await turn('session.start', 'one two');
  await turn('session.message', 'three four');
  const long = await submitJob(url, 'long', { taskPrompt: ENDLESS });
  note(long);
  await call(url, 'app.jobs.list', {});
  await call(url, 'app.jobs.stats', {});
  await call(url, 'session.cancel', { sessionId: long.jobId ?? 'unknown' });
  // Closing takes the turns of a session away, so that it is another one.
  await call(url, 'session.start', { sessionId: 'closed', taskPrompt: 'five' });
  await call(url, 'session.close', { sessionId: 'closed' });
  return ['first', 'second', 'long'];
}

async function storeAtTheEnd({ url, database }: BridgeUnderTest, keys: readonly string[]): Promise<WholeStore> {
  const isQuiet = async (): Promise<boolean> => {
    // Whoever was to be cancelled when the call failed is cancelled now.
    const running = await listJobs(url, { status: 'running' });
    for (const { sessionId } of running) await call(url, 'session.cancel', { sessionId });
    return running.length === 0 && (await listJobs(url, { status: 'pending' })).length === 0;
  };
  const told = async (what: string) => until(what, isQuiet).catch(() => undefined);
  await told('all jobs to end');
  const { jobOfKey } = await storedJobs(url, keys);
  await told('the repeated jobs to end');
  const { jobs } = await storedJobs(url, []);
  const { result } = await call(url, 'app.jobs.stats', {});
  const { pending, running, completed, failed } = (result as unknown as JobStatistics).summary;
  const readTurns = async (): Promise<StoredTurn[]> => {
    const rows = await database.query.selectFrom('turns').select(['prompt', 'status', 'ended_at']).execute();
    return rows.map(({ prompt, status, ended_at: endedAt }) => ({
      prompt: JSON.parse(prompt) as string,
      status,
      isOpen: endedAt === null,
    }));
  };
  await until('all turns to end', async () => (await readTurns()).every(({ isOpen }) => !isOpen)).catch(
    () => undefined,
  );
  return { jobs, jobOfKey, turns: await readTurns(), counts: { pending, running, completed, failed } };
}
