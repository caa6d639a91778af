import { countFigure, type FaultFigure, neverFigure } from '../fault-suite.ts';
import {
  type CheckedStore,
  checkOperations as checkJobs,
  type Operation as JobOperation,
  submitFigures,
} from '../jobs/check-operations.ts';

/** What was done while one call of the store failed. */
export type Operation =
  | JobOperation
  | { readonly kind: 'turn'; readonly prompt: string; readonly outcome: 'ok' | 'fail' | 'unknown' };

export interface StoredTurn {
  readonly prompt: string;
  readonly status: string;
  readonly isOpen: boolean;
}

export interface WholeStore extends CheckedStore {
  readonly turns: readonly StoredTurn[];
  /** How many jobs there are of each status, as the statistics say. */
  readonly counts: Readonly<Record<string, number>>;
}

export interface BrokenRun {
  /** None when nothing failed, for comparison. */
  readonly brokenSites: readonly string[];
  readonly sites: readonly string[];
  readonly operations: readonly Operation[];
  readonly store: WholeStore;
}

/** Judges one run by its log and by what is stored at its end. */
export function checkRun({ operations, store }: BrokenRun): string[] {
  const { jobs, turns, counts } = store;
  const completed = new Set(turns.flatMap(({ prompt, status }) => (status === 'completed' ? [prompt] : [])));
  const wrongCounts = Object.entries(counts).flatMap(([status, count]) => {
    const listed = jobs.filter((job) => job.status === status).length;
    return listed === count ? [] : [`${count} jobs are counted as ${status}, and ${listed} are`];
  });
  return [
    ...checkJobs(operations.filter(isJobOperation), store),
    ...operations.flatMap((one) =>
      one.kind === 'turn' && one.outcome === 'ok' && !completed.has(one.prompt)
        ? [`the turn "${one.prompt}" was answered and is not stored`]
        : [],
    ),
    ...turns.flatMap(({ prompt, isOpen }) => (isOpen ? [`the turn "${prompt}" was never ended`] : [])),
    ...wrongCounts,
  ];
}

export function figuresOf(runs: readonly BrokenRun[]): FaultFigure[] {
  const broken = runs.flatMap(({ brokenSites }) => brokenSites);
  const all = new Set(runs.flatMap(({ sites }) => sites));
  const hit = new Set(broken);
  const operations = runs.flatMap((run) => run.operations.filter(isJobOperation));
  return [
    countFigure('calls of the store that failed, one or two in each run', broken.length),
    {
      name: 'places in the sources whose call failed',
      value: `${hit.size} of ${all.size}`,
      goal: 'all',
      met: hit.size === all.size,
    },
    ...submitFigures(
      operations,
      runs.flatMap(({ store }) => store.jobs),
    ),
    neverFigure('runs after which something did not hold', runs.filter((run) => checkRun(run).length > 0).length),
  ];
}

function isJobOperation(operation: Operation): operation is JobOperation {
  return operation.kind !== 'turn';
}
