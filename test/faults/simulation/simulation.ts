import { countFigure, type FaultFigure, type FaultSuite, neverFigure } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { accountsScenario } from './accounts/accounts-scenario.ts';
import { instancesScenario } from './bridge/instances-scenario.ts';
import { jobsScenario } from './bridge/jobs-scenario.ts';
import { permissionsScenario } from './bridge/permissions-scenario.ts';
import { sessionsScenario } from './bridge/sessions-scenario.ts';
import { attemptsScenario } from './completions/attempts-scenario.ts';
import type { PlayedRun, Scenario } from './scenario.ts';

export const SCENARIOS: readonly Scenario[] = [
  jobsScenario,
  sessionsScenario,
  instancesScenario,
  permissionsScenario,
  attemptsScenario,
  accountsScenario,
];

const SAID_EVERY = 500;

/** Plays each scenario once for each seed. Nothing in it is real but the code under test, so that a seed is a run. */
export const simulationFaults =
  (scenarios: readonly Scenario[] = SCENARIOS): FaultSuite =>
  async ({ cycles, seed: first, say }) => {
    const violations: string[] = [];
    const counts = new Map<string, number>();
    let failed = 0;
    for (let seed = first; seed < first + cycles; seed += 1) {
      for (const scenario of scenarios) {
        const run = await playOnce(scenario, seed);
        for (const [name, count] of Object.entries(run.counts)) {
          const key = `${scenario.name}: ${name}`;
          counts.set(key, (counts.get(key) ?? 0) + count);
        }
        if (run.violations.length === 0) continue;
        failed += 1;
        const suite = scenario === instancesScenario ? scenario.name : 'simulation';
        const again = `npm run faults -- ${suite} --cycles 1 --seed ${seed}`;
        violations.push(
          ...run.violations.map((problem) => `seed ${seed}, ${scenario.name}: ${problem} (again: ${again})`),
        );
        await keepLog(`simulation-${scenario.name}-${seed}`, run, say);
      }
      if ((seed - first + 1) % SAID_EVERY === 0) say(`${seed - first + 1} of ${cycles} seeds, ${failed} failed runs`);
    }
    return { violations, figures: figuresOf(cycles, counts, failed) };
  };

/** What the program leaves unhandled would end it. */
export async function playOnce(scenario: Scenario, seed: number): Promise<PlayedRun> {
  const unhandled: string[] = [];
  const take = (error: unknown) => void unhandled.push(`nobody has caught: ${error}`);
  process.on('unhandledRejection', take);
  process.on('uncaughtException', take);
  try {
    const run = await scenario.play(seed);
    return { ...run, violations: [...run.violations, ...unhandled] };
  } finally {
    process.off('unhandledRejection', take);
    process.off('uncaughtException', take);
  }
}

async function keepLog(name: string, { log, violations }: PlayedRun, say: (line: string) => void): Promise<void> {
  const file = openOperationLog<object>(name);
  for (const event of log) file.note(event);
  await file.close();
  await file.settle(violations, say);
}

function figuresOf(seeds: number, counts: ReadonlyMap<string, number>, failed: number): FaultFigure[] {
  return [
    countFigure('seeds', seeds),
    ...[...counts].map(([name, count]) => countFigure(name, count)),
    neverFigure('runs in which something did not hold', failed),
  ];
}
