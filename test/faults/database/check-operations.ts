import { countFigure, type FaultFigure, longestFigure, neverFigure } from '../fault-suite.ts';
import {
  type CheckedStore,
  checkOperations as checkJobs,
  type Operation as JobOperation,
  type SubmitOperation,
  submitFigures,
} from '../jobs/check-operations.ts';

/** What was done while the database went away and came back. */
export type Operation =
  | JobOperation
  /** Times of the monotonic clock: from before it was broken until it took connections again. */
  | { readonly kind: 'outage'; readonly how: string; readonly from: number; readonly to: number }
  /** The program has ended by itself. */
  | { readonly kind: 'exit'; readonly code: string };

type Outage = Extract<Operation, { kind: 'outage' }>;

/** So long after the database is back everything works again. */
const RECOVERY_MS = 5000;
/** A submit that began before an outage may be answered in it. */
const isWithin = ({ startedAt, endedAt }: SubmitOperation, { from, to }: Outage): boolean =>
  endedAt >= from && startedAt <= to + RECOVERY_MS;

/** Judges a whole run by its log and by what is stored at its end. */
export function checkOperations(operations: readonly Operation[], store: CheckedStore): string[] {
  return [
    ...checkJobs(operations.filter(isJobOperation), store),
    ...operations.flatMap((one) => (one.kind === 'exit' ? [`the program ended (${one.code})`] : [])),
    ...strayErrors(operations).map(
      ({ key, problem }) => `the submit ${key} failed outside of every outage: ${problem}`,
    ),
    ...outagesOf(operations).flatMap((outage) =>
      recoveryOf(outage, operations) === undefined ? [`nothing was acknowledged after the ${outage.how}`] : [],
    ),
  ];
}

export function figuresOf(operations: readonly Operation[], store: CheckedStore): FaultFigure[] {
  const outages = outagesOf(operations);
  const kinds = Object.entries(Object.groupBy(outages, ({ how }) => how));
  const recoveries = outages.flatMap((outage) => recoveryOf(outage, operations) ?? []);
  return [
    ...kinds.map(([how, all = []]) => countFigure(`outages: ${how}`, all.length)),
    ...submitFigures(operations.filter(isJobOperation), store.jobs),
    neverFigure('errors outside of every outage', strayErrors(operations).length),
    longestFigure('a submit acknowledged after an outage, at most', recoveries, RECOVERY_MS),
    neverFigure('exits of the program', operations.filter(({ kind }) => kind === 'exit').length),
  ];
}

function strayErrors(operations: readonly Operation[]): SubmitOperation[] {
  const outages = outagesOf(operations);
  const errors = operations.filter((one) => one.kind === 'submit' && one.outcome !== 'ok');
  return (errors as SubmitOperation[]).filter((error) => !outages.some((outage) => isWithin(error, outage)));
}

/** How long after its end something was acknowledged. */
function recoveryOf({ to }: Outage, operations: readonly Operation[]): number | undefined {
  const answers = operations.flatMap((one) =>
    one.kind === 'submit' && one.outcome === 'ok' && one.endedAt >= to ? [one.endedAt - to] : [],
  );
  return answers.length === 0 ? undefined : Math.min(...answers);
}

function outagesOf(operations: readonly Operation[]): Outage[] {
  return operations.filter((one) => one.kind === 'outage');
}

function isJobOperation(operation: Operation): operation is JobOperation {
  return operation.kind !== 'outage' && operation.kind !== 'exit';
}
