import type { BrokenCall } from './broken-database.ts';
import type { Scenario } from './scenario.ts';

export interface PlannedFault {
  readonly scenario: Scenario;
  readonly broken: BrokenCall;
}

/** How many calls a run of the scenario has when nothing fails. */
export interface CountedScenario {
  readonly scenario: Scenario;
  readonly calls: number;
  readonly changes: number;
}

/**
 * Every call of every scenario, before it is done, and after it if it changes something. When that is more than `most`,
 * so many of them, evenly: which ones, the seed says.
 */
export function planFaults(counted: readonly CountedScenario[], most: number, seed: number): readonly PlannedFault[] {
  const all = counted.flatMap(({ scenario, calls, changes }) => [
    ...numbers(calls).map((which): PlannedFault => ({ scenario, broken: { which, when: 'before' } })),
    ...numbers(changes).map((which): PlannedFault => ({ scenario, broken: { which, when: 'after' } })),
  ]);
  if (all.length <= most) return all;
  const stride = all.length / most;
  const first = seed % Math.floor(stride);
  return numbers(most).flatMap(
    (number) => all[Math.min(all.length - 1, first + Math.floor((number - 1) * stride))] ?? [],
  );
}

function numbers(count: number): readonly number[] {
  return Array.from({ length: count }, (_, index) => index + 1);
}
