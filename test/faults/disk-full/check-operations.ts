import { countFigure, type FaultFigure, longestFigure, neverFigure, workFigure } from '../fault-suite.ts';
import {
  type CheckedStore,
  checkOperations as checkJobs,
  type Operation as JobOperation,
  type SubmitOperation,
  submitFigures,
} from '../jobs/check-operations.ts';

/** What was done and seen while the disk was full and while it was not, in this order. */
export type Operation =
  | JobOperation
  /** From here on there is no room, or there is room again. */
  | { readonly kind: 'disk'; readonly state: 'full' | 'free'; readonly at: number }
  | {
      readonly kind: 'look';
      readonly what: string;
      readonly outcome: 'ok' | 'fail' | 'unknown';
      readonly problem?: string;
    }
  /** The program has ended by itself. */
  | { readonly kind: 'exit'; readonly code: string };

type Look = Extract<Operation, { kind: 'look' }>;

interface FullTime {
  readonly submits: SubmitOperation[];
  readonly looks: Look[];
  /** How long after there was room again a submit was acknowledged; undefined: never. */
  recoveredMs: number | undefined;
}

const RECOVERED_MS = 5000;

/** Judges one cycle by its log and by what is stored at its end, before a restart and after it. */
export function checkOperations(operations: readonly Operation[], stores: readonly CheckedStore[]): string[] {
  const times = fullTimes(operations);
  return [
    ...stores.flatMap((store) => checkJobs(operations.filter(isJobOperation), store)),
    ...operations.flatMap((one) => (one.kind === 'exit' ? [`the program ended (${one.code})`] : [])),
    ...times.flatMap(({ submits, looks, recoveredMs }) => [
      ...(submits.some(({ outcome }) => outcome === 'fail') ? [] : ['no submit was refused: the disk was not full']),
      ...submits.flatMap(({ key, outcome, problem }) =>
        outcome === 'unknown' ? [`the submit ${key} was not answered on a full disk: ${problem}`] : [],
      ),
      ...(looks.length > 0 ? [] : ['nothing was read on the full disk']),
      ...looks.flatMap(({ what, outcome, problem }) =>
        outcome === 'ok' ? [] : [`${what} did not work on a full disk: ${problem}`],
      ),
      ...(recoveredMs === undefined ? ['no submit was acknowledged after there was room again'] : []),
    ]),
  ];
}

export function figuresOf(cycles: readonly { operations: readonly Operation[]; store: CheckedStore }[]): FaultFigure[] {
  const operations = cycles.flatMap((cycle) => cycle.operations);
  const times = cycles.flatMap((cycle) => fullTimes(cycle.operations));
  const jobs = cycles.flatMap(({ store }) => store.jobs);
  const looks = times.flatMap((time) => time.looks);
  const recovered = times.flatMap(({ recoveredMs }) => (recoveredMs === undefined ? [] : [recoveredMs]));
  return [
    workFigure('times that the disk was full', times.length),
    ...submitFigures(operations.filter(isJobOperation), jobs),
    countFigure('reads and checks of health on a full disk', looks.length),
    neverFigure('of those without success', looks.filter(({ outcome }) => outcome !== 'ok').length),
    neverFigure('times that it did not go on by itself', times.length - recovered.length),
    longestFigure('a submit acknowledged after there was room, at most', recovered, RECOVERED_MS),
    neverFigure('exits of the program', operations.filter(({ kind }) => kind === 'exit').length),
  ];
}

function fullTimes(operations: readonly Operation[]): FullTime[] {
  const times: FullTime[] = [];
  let [fullFrom, freeFrom] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (const operation of operations) {
    const time = times.at(-1);
    if (operation.kind === 'disk') {
      if (operation.state === 'full') times.push({ submits: [], looks: [], recoveredMs: undefined });
      fullFrom = operation.state === 'full' ? operation.at : fullFrom;
      freeFrom = operation.state === 'full' ? Number.POSITIVE_INFINITY : operation.at;
    } else if (operation.kind === 'look' && freeFrom === Number.POSITIVE_INFINITY) {
      time?.looks.push(operation);
    } else if (operation.kind === 'submit' && time !== undefined) {
      // What was under way when things changed belongs to neither.
      if (operation.startedAt >= fullFrom && operation.endedAt < freeFrom) time.submits.push(operation);
      if (operation.outcome === 'ok' && operation.startedAt >= freeFrom)
        time.recoveredMs ??= operation.endedAt - freeFrom;
    }
  }
  return times;
}

function isJobOperation(operation: Operation): operation is JobOperation {
  return operation.kind !== 'disk' && operation.kind !== 'look' && operation.kind !== 'exit';
}
