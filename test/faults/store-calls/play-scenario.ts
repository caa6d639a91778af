import { setTimeout as delay } from 'node:timers/promises';
import { createScope } from '../../kit/create-scope.ts';
import type { FakeClock } from '../../kit/fake-clock.ts';
import { openOperationLog } from '../operation-log.ts';
import { type BrokenCall, type BrokenDatabase, breakDatabases } from './broken-database.ts';
import { type BrokenRun, checkRun, type Operation } from './check-operations.ts';
import { CUT, LATE, type StepOperation } from './check-steps.ts';
import type { Asked, Scenario, Stage, Step } from './scenario.ts';

export interface PlayedRun extends BrokenRun {
  /** Where each call that could fail came from. */
  readonly calls: BrokenDatabase['calls'];
}

/** At most two calls fail in a run. */
const ATTEMPTS = 3;
const UNKNOWN = ['storage_unavailable', 'no_answer', CUT, LATE];
const BUSY = 'session_busy';
const BUSY_PAUSE_MS = 200;
const MAX_BUSY = 50;
const END_PAUSE_MS = 50;
const PATIENT_END_MS = 1000;
const MAX_END_MS = 60_000;
const PASSED_AT_ONCE_MS = 1000;
let logs = 0;

/** One run of a scenario in which that call fails. */
export async function playScenario(
  scenario: Scenario,
  broken: BrokenCall,
  say: (line: string) => void,
): Promise<PlayedRun> {
  logs += 1;
  const log = openOperationLog<Operation>(`store-calls-${scenario.service}-${logs}`);
  const scope = createScope();
  const clocks: FakeClock[] = [];
  let database = breakDatabases([], broken);
  const uncaught = (error: unknown) => log.note({ kind: 'uncaught', error: String(error) });
  process.on('unhandledRejection', uncaught);
  process.on('uncaughtException', uncaught);
  const stage: Stage = {
    scope,
    when: broken.when,
    watch(...databases) {
      database = breakDatabases(databases, broken);
    },
    aside: (work) => database.aside(work),
    passing(clock) {
      clocks.push(clock);
      return clock;
    },
    mend: () => database.mend(),
    step: (step) => takeStep(step, { database, clocks, note: log.note }),
    note: log.note,
  };
  try {
    await scenario.play(stage);
  } catch (error) {
    log.note({ kind: 'ended', error: String(error) });
  } finally {
    stage.mend();
    await endWithin(scope, clocks).catch((error: unknown) =>
      log.note({ kind: 'ended', error: `at the end: ${error}` }),
    );
    // What was left unhandled is told by then.
    await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', uncaught);
    process.off('uncaughtException', uncaught);
  }
  const operations = await log.close();
  await log.settle(checkRun({ operations }), say);
  return {
    service: scenario.service,
    scenario: scenario.name,
    broken,
    brokenSites: [...database.brokenSites],
    sites: [...database.sites],
    operations,
    calls: [...database.calls],
  };
}

interface StepTools {
  readonly database: BrokenDatabase;
  readonly clocks: readonly FakeClock[];
  note(operation: StepOperation): void;
}

/** Ends what a run has started. Where that takes long, it waits for its clock: then time passes. */
async function endWithin(scope: ReturnType<typeof createScope>, clocks: readonly FakeClock[]): Promise<void> {
  let isOver = false;
  const ended = scope.end().finally(() => {
    isOver = true;
  });
  for (let waited = 0; !isOver && waited < MAX_END_MS; waited += END_PAUSE_MS) {
    await Promise.race([ended, delay(END_PAUSE_MS)]);
    if (isOver || waited < PATIENT_END_MS) continue;
    for (const clock of clocks) await clock.advance(PASSED_AT_ONCE_MS);
  }
  if (!isOver) throw new Error(`what was started had not ended after ${MAX_END_MS} ms`);
  await ended;
}

async function takeStep<Told>(step: Step<Told>, { database, clocks, note }: StepTools): Promise<Told | undefined> {
  const { name, refusal, whenDone } = step;
  for (let attempt = 1; ; attempt += 1) {
    const before = database.brokenSites.length;
    const ask = () =>
      step.ask().catch((error): Asked<Told> => {
        return { code: 'no_answer', problems: [`there was no answer: ${error}`] };
      });
    let asked = await ask();
    // What an attempt before has begun is still being taken back, or on its way.
    for (let waits = 0; attempt > 1 && asked.code === BUSY && waits < MAX_BUSY; waits += 1) {
      await delay(BUSY_PAUSE_MS);
      for (const clock of clocks) await clock.advance(PASSED_AT_ONCE_MS);
      await step.pause?.();
      asked = await ask();
    }
    const failedCalls = database.brokenSites.length - before;
    const { code, problems, told } = asked;
    const outcome = code === '' ? 'ok' : UNKNOWN.includes(code) ? 'unknown' : 'fail';
    const stored = step.stored === undefined ? undefined : await database.aside(step.stored);
    note({
      kind: 'step',
      name,
      attempt,
      outcome,
      code,
      failedCalls,
      problems,
      ...(stored !== undefined && { stored }),
      ...(refusal !== undefined && { refusal }),
      ...(whenDone !== undefined && { whenDone }),
    });
    if (outcome !== 'unknown' || attempt === ATTEMPTS) return told;
    // Who asks again does so after a moment, in which the program tries again, too.
    for (const clock of clocks) await clock.advance(PASSED_AT_ONCE_MS);
    await step.pause?.();
  }
}
