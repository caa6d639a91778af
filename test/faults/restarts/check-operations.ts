import { countFigure, type FaultFigure, longestFigure, neverFigure, workFigure } from '../fault-suite.ts';
import {
  checkOperations as checkJobs,
  type Operation as JobOperation,
  submitFigures,
} from '../jobs/check-operations.ts';
import { overlaps, type SharedStore } from '../jobs/check-takeover.ts';

export type CallName = 'chat' | 'capabilities' | 'submit' | 'get' | 'stream';

/** `refused`: there was no connection. `turned away`: 503. `cut`: the call was sent, and its answer did not come, or not all of it. */
export type TryEnd = 'answered' | 'refused' | 'turned away' | 'cut';

interface Try {
  readonly instance: number;
  readonly end: TryEnd;
  /** How it was cut. */
  readonly why?: string;
}

/** A call of a client that tries again. Times are of the monotonic clock. */
export interface CallOperation {
  readonly kind: 'call';
  readonly name: CallName;
  readonly startedAt: number;
  readonly endedAt: number;
  readonly tries: readonly Try[];
  readonly outcome: 'ok' | 'fail' | 'unknown';
  readonly problem?: string;
}

/** An instance was asked to leave, and has left. */
export interface StopOperation {
  readonly kind: 'stop';
  readonly instance: number;
  readonly startedAt: number;
  readonly endedAt: number;
  readonly code: string;
}

/** What was done and seen, one line of the log each. */
export type Operation = JobOperation | CallOperation | StopOperation;

/** What is under way gets so long. */
const DRAIN_MS = 30_000;

/** Judges a whole run by its log and by what is stored at its end. */
export function checkOperations(operations: readonly Operation[], store: SharedStore): string[] {
  const calls = callsOf(operations);
  return [
    ...stopsOf(operations)
      .filter(isBadExit)
      .map(({ instance, code }) => `instance ${instance} ended with ${code}`),
    ...(stopsOf(operations).length === 0 ? ['no instance was stopped'] : []),
    ...calls.filter(isFailed).map((call) => `a call "${call.name}" failed: ${call.problem ?? call.outcome}`),
    ...calls.filter(isCut).map((call) => `a call "${call.name}" was cut in the middle: ${triesOf(call)}`),
    ...checkJobs(operations.filter(isJobOperation), store),
    ...failedJobs(store).map(({ jobId, errorCode }) => `job ${jobId} failed with ${errorCode}`),
    ...overlaps(store.turns).map((session) => `the job of session ${session} ran twice at the same time`),
    ...store.turns.flatMap(({ session, endedAt }) =>
      endedAt === null ? [`a turn of ${session} was never ended`] : [],
    ),
  ];
}

/** What the run came to, by its log and by what is stored at its end. */
export function figuresOf(operations: readonly Operation[], store: SharedStore): FaultFigure[] {
  const stops = stopsOf(operations);
  const calls = callsOf(operations).filter(({ name }) => name !== 'stream');
  const streams = callsOf(operations).filter(({ name }) => name === 'stream');
  const across = streams.filter((stream) => stops.some((stop) => isAcross(stream, stop)));
  const leastAcross = Math.floor(stops.length / 2);
  const repeated = callsOf(operations).filter(({ tries }) => tries.length > 1);
  const ready = operations.flatMap((one) => (one.kind === 'ready' ? [one.ms] : []));
  return [
    workFigure('restarts under load, one of three after the other', stops.length),
    neverFigure('exits other than with 0', stops.filter(isBadExit).length),
    longestFigure(
      'from SIGTERM to the end, at most',
      stops.map(({ startedAt, endedAt }) => endedAt - startedAt),
      DRAIN_MS,
    ),
    { name: 'started again within, at most', value: milliseconds(Math.max(0, ...ready)), goal: '', met: true },
    workFigure('calls without a stream', calls.length),
    neverFigure('of them failed behind a client that tries again', calls.filter(isFailed).length),
    neverFigure('calls and streams cut in the middle', callsOf(operations).filter(isCut).length),
    countFigure('calls and streams that needed more than one try', repeated.length),
    countFigure('tries for one of them, at most', Math.max(0, ...callsOf(operations).map(({ tries }) => tries.length))),
    workFigure('streams', streams.length),
    {
      name: 'of them under way at the SIGTERM of their instance',
      value: across.length.toLocaleString('en'),
      goal: `≥ ${leastAcross.toLocaleString('en')}`,
      met: across.length >= leastAcross,
    },
    neverFigure('streams that did not end whole', streams.filter(isFailed).length),
    ...submitFigures(operations.filter(isJobOperation), store.jobs),
    neverFigure('jobs that failed', failedJobs(store).length),
    neverFigure('jobs that ran twice at the same time', overlaps(store.turns).length),
  ];
}

function callsOf(operations: readonly Operation[]): readonly CallOperation[] {
  return operations.filter((one) => one.kind === 'call');
}

function stopsOf(operations: readonly Operation[]): readonly StopOperation[] {
  return operations.filter((one) => one.kind === 'stop');
}

function isJobOperation(operation: Operation): operation is JobOperation {
  return operation.kind !== 'call' && operation.kind !== 'stop';
}

function isBadExit({ code }: StopOperation): boolean {
  return code !== '0';
}

function isFailed({ outcome }: CallOperation): boolean {
  return outcome !== 'ok';
}

function isCut({ tries }: CallOperation): boolean {
  return tries.some(({ end }) => end === 'cut');
}

/** Whether a stream had begun on that instance before it was asked to leave, and ended after. */
function isAcross(stream: CallOperation, stop: StopOperation): boolean {
  const isThere = stream.tries.at(-1)?.instance === stop.instance;
  return isThere && stream.startedAt < stop.startedAt && stream.endedAt > stop.startedAt;
}

function failedJobs({ jobs }: SharedStore) {
  return jobs.filter(({ status }) => status === 'failed');
}

function triesOf({ tries, startedAt }: CallOperation): string {
  const told = tries.map(({ instance, end, why }) => `${instance} ${end}${why === undefined ? '' : ` (${why})`}`);
  return `${told.join(', ')}, begun at ${Math.round(startedAt)} ms`;
}

function milliseconds(ms: number): string {
  return `${Math.round(ms).toLocaleString('en')} ms`;
}
