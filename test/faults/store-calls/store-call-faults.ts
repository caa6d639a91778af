import { countFigure, type FaultSuite } from '../fault-suite.ts';
import { isChange } from './broken-database.ts';
import { type BrokenRun, checkRun, checkSites, figuresOf } from './check-operations.ts';
import { planFaults } from './plan-faults.ts';
import { type PlayedRun, playScenario } from './play-scenario.ts';
import type { Scenario } from './scenario.ts';
import { SCENARIOS } from './scenarios.ts';
import { SERVICES, type Service, sharedCallSites, storeCallSites } from './store-call-sites.ts';

const SAID_EVERY = 50;
const LEFT_OUT = 'places that only several instances on one PostgreSQL reach, left out';
/** A run mostly waits: for commits, and for what happens by itself. */
const AT_ONCE = 4;

/**
 * One run of a scenario for each call of the store in it, in which that call fails: once before the call has done
 * anything and, if it changes something, once after it. `cycles` is the most such runs for each service: with fewer than
 * that, one call of each place fails before and one after, which the seed chooses.
 */
export const storeCallFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const violations: string[] = [];
  const runs: BrokenRun[] = [];
  const places: Partial<Record<Service, readonly string[]>> = {};
  for (const service of SERVICES) {
    const scenarios = SCENARIOS.filter((scenario) => scenario.service === service);
    if (scenarios.length === 0) continue;
    places[service] = storeCallSites(service);
    runs.push(...(await breakService(scenarios, { cycles, seed, say })));
  }
  const all = new Set(Object.values(places).flat());
  for (const site of missed(runs, all)) say(`never failed: ${site}`);
  const shared = SERVICES.flatMap(sharedCallSites);
  for (const { site, reason } of shared) say(`left out: ${site} ${reason}`);
  violations.push(...runs.flatMap(describeViolations), ...checkSites(runs, all));
  return { violations, figures: [...figuresOf(runs, places), countFigure(LEFT_OUT, shared.length)] };
};

async function breakService(
  scenarios: readonly Scenario[],
  { cycles, seed, say }: Parameters<FaultSuite>[0],
): Promise<readonly BrokenRun[]> {
  const untouched: { readonly scenario: Scenario; readonly run: PlayedRun }[] = [];
  for (const scenario of scenarios) {
    const run = await playScenario(scenario, { which: undefined, when: 'before' }, say);
    const changes = run.calls.filter(isChange).length;
    say(`${scenario.service}, ${scenario.name}: ${run.calls.length} calls, ${changes} of them change something`);
    untouched.push({ scenario, run });
  }
  const runs: PlayedRun[] = untouched.map(({ run }) => run);
  const counted = untouched.map(({ scenario, run }) => ({ scenario, calls: run.calls }));
  const planned = planFaults(counted, cycles, seed);
  const left = planned.values();
  const playNext = async (): Promise<void> => {
    for (const { scenario, broken } of left) {
      runs.push(await playScenario(scenario, broken, say));
      const done = runs.length - untouched.length;
      if (done % SAID_EVERY === 0) say(`${scenario.service}: ${done} of ${planned.length} calls have failed`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, playNext));
  await breakMissed(scenarios, runs, say);
  return runs;
}

/** Which call it is may differ from run to run, and some places are reached after a failure alone. */
async function breakMissed(scenarios: readonly Scenario[], runs: PlayedRun[], say: (line: string) => void) {
  const reached = new Set(runs.flatMap(({ sites }) => sites));
  const find = (name: string) => scenarios.filter((scenario) => scenario.name === name);
  for (const site of missed(runs, reached)) {
    const first = runs.find(({ sites }) => sites.includes(site));
    for (const scenario of find(first?.scenario ?? '')) {
      runs.push(await playScenario(scenario, { which: { site, nth: 1 }, when: 'before' }, say));
    }
  }
  for (const site of missed(runs, reached)) {
    const first = runs.find(({ sites, brokenSites }) => sites.includes(site) && brokenSites.length > 0);
    for (const scenario of find(first?.scenario ?? '')) {
      if (first === undefined) continue;
      runs.push(await playScenario(scenario, { ...first.broken, next: site }, say));
    }
  }
}

function missed(runs: readonly BrokenRun[], all: ReadonlySet<string>): readonly string[] {
  const hit = new Set(runs.flatMap(({ brokenSites }) => brokenSites));
  return [...all].filter((site) => !hit.has(site));
}

function describeViolations(run: BrokenRun): string[] {
  const { scenario, service, broken, brokenSites } = run;
  const what =
    brokenSites.length === 0 ? 'nothing failed' : `${brokenSites.join(' and ')} failed ${broken.when} it was done`;
  return checkRun(run).map((problem) => `${service}, ${scenario}: ${what}: ${problem}`);
}
