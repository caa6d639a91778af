import { seededRandom } from '../fault-suite.ts';
import { type BrokenCall, isChange } from './broken-database.ts';
import type { Scenario } from './scenario.ts';

export interface PlannedFault {
  readonly scenario: Scenario;
  readonly broken: BrokenCall;
}

/** Where the calls of a scenario come from while nothing fails, in their order. */
export interface CountedScenario {
  readonly scenario: Scenario;
  readonly calls: readonly string[];
}

/**
 * Plans every call of every scenario to fail before it is done, and after it if it changes something. When that is more
 * than `most`: from each place one call before and one after, and then others. The seed chooses which.
 */
export function planFaults(counted: readonly CountedScenario[], most: number, seed: number): readonly PlannedFault[] {
  const all = counted.flatMap(allFaults);
  if (all.length <= most) return all;
  const random = seededRandom(seed);
  const shuffled = all.map((fault) => ({ fault, at: random() })).sort((one, other) => one.at - other.at);
  const planned = new Set<string>();
  const ranked = shuffled.map(({ fault }) => {
    const { which, when } = fault.broken;
    const what = `${which?.site} ${when}`;
    const isFirst = !planned.has(what);
    planned.add(what);
    return { fault, rank: !isFirst ? 2 : when === 'before' ? 0 : 1 };
  });
  return ranked
    .sort((one, other) => one.rank - other.rank)
    .slice(0, most)
    .map(({ fault }) => fault);
}

function allFaults({ scenario, calls }: CountedScenario): readonly PlannedFault[] {
  const seen = new Map<string, number>();
  return calls.flatMap((site) => {
    const nth = (seen.get(site) ?? 0) + 1;
    seen.set(site, nth);
    const moments = isChange(site) ? (['before', 'after'] as const) : (['before'] as const);
    return moments.map((when): PlannedFault => ({ scenario, broken: { which: { site, nth }, when } }));
  });
}
