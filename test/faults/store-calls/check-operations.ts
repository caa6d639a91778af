import { countFigure, type FaultFigure, neverFigure, workFigure } from '../fault-suite.ts';
import { type Operation as JobOperation, submitFigures } from '../jobs/check-operations.ts';
import { type BridgeOperation, checkJobs, isJobOperation } from './bridge/check-jobs.ts';
import type { BrokenCall } from './broken-database.ts';
import { checkSteps, type StepOperation } from './check-steps.ts';
import { SERVICES, type Service } from './store-call-sites.ts';

/** What was done and found while one call of the store failed, one line of the log each. */
export type Operation =
  | StepOperation
  | BridgeOperation
  /** Something in the store at the end that must be so. */
  | { readonly kind: 'fact'; readonly name: string; readonly wanted: unknown; readonly found: unknown }
  /** What nobody has caught would end the program. */
  | { readonly kind: 'uncaught'; readonly error: string }
  /** The scenario could not go on. */
  | { readonly kind: 'ended'; readonly error: string };

export interface BrokenRun {
  readonly service: Service;
  readonly scenario: string;
  readonly broken: BrokenCall;
  /** Where calls failed: nowhere in a run for comparison. */
  readonly brokenSites: readonly string[];
  /** Where the store was called. */
  readonly sites: readonly string[];
  readonly operations: readonly Operation[];
}

/** Judges one run by its log. */
export function checkRun({ operations }: Pick<BrokenRun, 'operations'>): string[] {
  const others = operations.flatMap((one) => {
    switch (one.kind) {
      case 'fact':
        return JSON.stringify(one.wanted) === JSON.stringify(one.found)
          ? []
          : [`${one.name}: ${JSON.stringify(one.found)} instead of ${JSON.stringify(one.wanted)}`];
      case 'uncaught':
        return [`nobody has caught ${one.error}`];
      case 'ended':
        return [`it could not go on: ${one.error}`];
      default:
        return [];
    }
  });
  return [...checkSteps(operations.filter((one) => one.kind === 'step')), ...checkJobs(operations), ...others];
}

/** Places that were called and that nobody has counted would make the figure too good. */
export function checkSites(runs: readonly BrokenRun[], all: ReadonlySet<string>): string[] {
  const reached = new Set(runs.flatMap(({ sites }) => sites));
  return [...reached].filter((site) => !all.has(site)).map((site) => `${site} is not on the list of places`);
}

export function figuresOf(
  runs: readonly BrokenRun[],
  places: Readonly<Partial<Record<Service, readonly string[]>>>,
): FaultFigure[] {
  const operations = runs.flatMap((run) => run.operations);
  const steps = operations.filter((one) => one.kind === 'step');
  const withOutcome = (wanted: StepOperation['outcome']) => steps.filter(({ outcome }) => outcome === wanted).length;
  const failed = runs.flatMap(({ brokenSites }) => brokenSites);
  const hit = new Set(failed);
  return [
    countFigure('calls of the store that failed, one or two in each run', failed.length),
    ...SERVICES.flatMap((service): FaultFigure[] => {
      const all = places[service] ?? [];
      if (all.length === 0) return [];
      const count = all.filter((site) => hit.has(site)).length;
      const name = `places of src/${service} whose call failed`;
      return [{ name, value: `${count} of ${all.length}`, goal: 'all', met: count === all.length }];
    }),
    workFigure('steps granted', withOutcome('ok')),
    countFigure('steps refused', withOutcome('fail')),
    countFigure('steps with an answer that leaves it open', withOutcome('unknown')),
    ...submitFigures(operations.filter(isJobOperation), storedJobs(operations)),
    neverFigure('runs after which something did not hold', runs.filter((run) => checkRun(run).length > 0).length),
  ];
}

function storedJobs(operations: readonly Operation[]) {
  return operations.flatMap((one) => (one.kind === 'stored' ? one.jobs : []));
}

export type { JobOperation };
