import {
  checkOperations as checkJobOperations,
  type Operation as JobOperation,
  type SeenJob,
} from '../../jobs/check-operations.ts';

export interface StoredTurn {
  readonly prompt: string;
  readonly status: string;
  readonly isOpen: boolean;
}

/** Jobs and turns as the store has them at the end. */
export interface StoredWork {
  readonly kind: 'stored';
  readonly jobs: readonly SeenJob[];
  /** Keys of submits with the jobs that they belong to, as repeating them told. */
  readonly jobOfKey: readonly (readonly [key: string, jobId: string])[];
  readonly turns: readonly StoredTurn[];
  /** How many jobs there are of each status, as the statistics say. */
  readonly counts: Readonly<Record<string, number>>;
}

export type BridgeOperation =
  | JobOperation
  | { readonly kind: 'turn'; readonly prompt: string; readonly outcome: 'ok' | 'fail' | 'unknown' }
  | StoredWork;

/** Judges jobs and turns by what was answered and by what is stored at the end. */
export function checkJobs(operations: readonly { readonly kind: string }[]): string[] {
  const own = operations.filter(isBridgeOperation);
  const turns = own.filter((one) => one.kind === 'turn');
  return own.flatMap((one) => {
    if (one.kind !== 'stored') return [];
    const { jobs, jobOfKey, counts } = one;
    const completed = new Set(one.turns.flatMap(({ prompt, status }) => (status === 'completed' ? [prompt] : [])));
    return [
      ...checkJobOperations(own.filter(isJobOperation), { jobs, jobOfKey: new Map(jobOfKey) }),
      ...turns.flatMap(({ prompt, outcome }) =>
        outcome === 'ok' && !completed.has(prompt) ? [`the turn "${prompt}" was answered and is not stored`] : [],
      ),
      ...one.turns.flatMap(({ prompt, isOpen }) => (isOpen ? [`the turn "${prompt}" was never ended`] : [])),
      ...Object.entries(counts).flatMap(([status, count]) => {
        const listed = jobs.filter((job) => job.status === status).length;
        return listed === count ? [] : [`${count} jobs are counted as ${status}, and ${listed} are`];
      }),
    ];
  });
}

export function isJobOperation(operation: { readonly kind: string }): operation is JobOperation {
  return ['submit', 'seen', 'callback', 'ready'].includes(operation.kind);
}

function isBridgeOperation(operation: { readonly kind: string }): operation is BridgeOperation {
  return isJobOperation(operation) || operation.kind === 'turn' || operation.kind === 'stored';
}
