import type { CheckedStore, SubmitOperation } from '../../faults/jobs/check-operations.ts';

/** A store that holds one job, as a fault run finds it at its end. */
export const store: CheckedStore = {
  jobs: [{ jobId: 'a', status: 'completed', completedAt: 'now', errorCode: null }],
  jobOfKey: new Map([['key', 'a']]),
};

/** A submit of that job, which began then and took so long. */
export function submitOf(startedAt: number, outcome: SubmitOperation['outcome'], ms: number): SubmitOperation {
  const endedAt = startedAt + ms;
  return { kind: 'submit', key: 'key', outcome, startedAt, endedAt, ...(outcome === 'ok' && { jobId: 'a' }) };
}
