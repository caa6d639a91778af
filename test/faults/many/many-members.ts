import { createScope } from '../../kit/create-scope.ts';
import { until } from '../../kit/until.ts';
import {
  callBridge,
  callUntilAnswered,
  isAscending,
  modelOf,
  readTurn,
  readUpdates,
} from '../cluster/followed-turn.ts';
import { startInstances } from '../cluster/instances.ts';
import {
  countFigure,
  type FaultReport,
  type FaultSuite,
  neverFigure,
  seededRandom,
  workFigure,
} from '../fault-suite.ts';

const PROCESSES = 4;
/** Members of all runs together, unless it is said; each process runs a quarter of them. */
const USUAL_MEMBERS = 100;
/** Members with an even number have finished when a process is killed; the others have not. */
const QUICK = { words: 3, delayMs: 100 };
const SLOW = { words: 60, delayMs: 1000 };
const PATIENCE_MS = 240_000;

interface MemberRecord {
  readonly index: number;
  readonly status: string;
  readonly output?: string;
}

/**
 * In each cycle four processes on one PostgreSQL run a parallel run of many agents each, as jobs. When half of the members have finished,
 * one process is killed. Every run must be completed, by whichever process, with the answer of every member; members that had finished
 * are not asked again.
 */
export const manyFaults: FaultSuite = async ({ cycles, seed, load = USUAL_MEMBERS, say }): Promise<FaultReport> => {
  const random = seededRandom(seed);
  const scope = createScope();
  const violations: string[] = [];
  const members = Math.ceil(load / PROCESSES);
  let askedAgain = 0;
  let runsAgain = 0;
  try {
    // One run for each process.
    const { url, kill } = await startInstances(scope, PROCESSES, { TRESTLE_JOBS_MAX_RUNNING: '1' });
    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const runs = Array.from({ length: PROCESSES }, (_, index) => `run ${cycle} ${index}`);
      const jobs = await Promise.all(runs.map((name) => submitRun(url, name, members)));
      for (const jobId of jobs) await until(`half of ${jobId}`, () => isHalfDone(url, jobId, members), PATIENCE_MS);
      say(`${PROCESSES} runs have finished half of ${PROCESSES * members} members`);
      await kill(Math.floor(random() * PROCESSES));
      for (const [index, jobId] of jobs.entries()) {
        const name = runs[index] ?? '';
        const steps = await until(`the end of ${name}`, () => endedSteps(url, jobId), PATIENCE_MS);
        violations.push(...wrongOfSteps(name, members, steps));
        const begun = await beginnings(url, jobId);
        const { turns, seqs } = await readTurn(url, jobId);
        if (!isAscending(seqs)) violations.push(`${name} has numbers twice or out of order`);
        runsAgain += turns.length - 1;
        for (let member = 0; member < members; member += 1) {
          const times = begun.get(member) ?? 0;
          askedAgain += Math.max(0, times - 1);
          const isRight = times === 1 || (times === turns.length && !isQuick(member));
          if (!isRight)
            violations.push(`member ${member} of ${name} was asked ${times} times in ${turns.length} turns`);
        }
      }
      say(`${cycle} of ${cycles} cycles, ${violations.length} violations`);
    }
  } finally {
    await scope.end();
  }
  // The run of the killed process, and no other.
  if (runsAgain !== cycles) violations.push(`${runsAgain} runs were taken up again in ${cycles} cycles`);
  return {
    violations,
    figures: [
      countFigure('members of all runs', cycles * PROCESSES * members),
      countFigure('runs in four processes', cycles * PROCESSES),
      workFigure('runs that another process took up', runsAgain),
      countFigure('members that were asked again, unfinished ones', askedAgain),
      neverFigure('violations', violations.length),
    ],
  };
};

const isQuick = (member: number): boolean => member % 2 === 0;

function wordsOf(name: string, member: number): string {
  const { words } = isQuick(member) ? QUICK : SLOW;
  return Array.from({ length: words }, (_, index) => `${name.replaceAll(' ', '-')}-${member}-${index}`).join(' ');
}

async function submitRun(url: string, name: string, members: number): Promise<string> {
  const steps = Array.from({ length: members }, (_, member) => {
    const model = modelOf(isQuick(member) ? QUICK : SLOW);
    return { providerId: 'builtin', model, prompt: wordsOf(name, member) };
  });
  const routing = { orchestrationMode: 'parallel', steps };
  const params = { taskPrompt: name, idempotencyKey: name, multiAgent: true, routing, retryOnRestart: true };
  const { result, code } = await callUntilAnswered(url, 'app.jobs.submit', params, name);
  if (result === undefined) throw new Error(`${name} was refused with ${code}`);
  return String(result.jobId);
}

async function countEvents(url: string, jobId: string, wanted: string): Promise<Map<number, number>> {
  const counts = new Map<number, number>();
  for (const { kind, stepIndex } of await readUpdates(url, jobId))
    if (kind === wanted) counts.set(Number(stepIndex), (counts.get(Number(stepIndex)) ?? 0) + 1);
  return counts;
}

const beginnings = (url: string, jobId: string) => countEvents(url, jobId, 'multi_agent_step_started');

/** Whether all have begun, and those that are quick have finished. */
async function isHalfDone(url: string, jobId: string, members: number): Promise<boolean> {
  const begun = await beginnings(url, jobId).catch(() => new Map());
  if (begun.size < members) return false;
  const finished = await countEvents(url, jobId, 'multi_agent_step_completed').catch(() => new Map());
  return finished.size >= Math.ceil(members / 2);
}

/** Undefined until the job has ended. */
async function endedSteps(url: string, jobId: string): Promise<readonly MemberRecord[] | undefined> {
  const { result } = await callBridge(url, 'app.jobs.get', { jobId }).catch(() => ({ result: undefined }));
  const { status, result: ended } = Object(result) as { readonly status?: string; readonly result?: object };
  if (status === 'failed') return [];
  if (status !== 'completed') return undefined;
  return (Object(ended) as { readonly steps?: readonly MemberRecord[] }).steps ?? [];
}

function wrongOfSteps(name: string, members: number, steps: readonly MemberRecord[]): readonly string[] {
  if (steps.length !== members) return [`${name} ended with ${steps.length} of ${members} members`];
  return steps.flatMap(({ status, output = '' }, member) => {
    const isRight = status === 'completed' && output.trim() === wordsOf(name, member);
    return isRight ? [] : [`member ${member} of ${name} ended as ${status} with ${output.slice(0, 100)}`];
  });
}
