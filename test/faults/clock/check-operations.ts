import { type FaultFigure, longestFigure, neverFigure, workFigure } from '../fault-suite.ts';

export type Outcome = 'ok' | 'fail' | 'unknown';

/** What was done and seen while the wall clock jumped. Times are of the monotonic clock, which did not. */
export type Operation =
  | { readonly kind: 'jump'; readonly shiftMs: number }
  | JobOperation
  /** A code of the second factor. */
  | { readonly kind: 'code'; readonly email: string; readonly step: number; readonly outcome: Outcome }
  /** A refresh token, so long after it was used for the first time. */
  | { readonly kind: 'refresh'; readonly sinceUseMs: number; readonly outcome: Outcome }
  /** A session that was opened when the clock was right, looked at when it is off by so much. */
  | { readonly kind: 'check'; readonly shiftMs: number; readonly outcome: Outcome }
  | { readonly kind: 'health'; readonly outcome: Outcome }
  /** The program has ended by itself. */
  | { readonly kind: 'exit'; readonly code: string };

/** A job from its submit to the end that was seen; `open` when none was seen for long after its time. */
export interface JobOperation {
  readonly kind: 'job';
  readonly name: string;
  readonly timeoutMs: number;
  readonly ms: number;
  readonly status: string;
  readonly errorCode: string | null;
}

const MAX_EARLY_MS = 1000;
const MAX_LATE_MS = 3000;
/** As long as tokens are good, with a little for the way. */
const REPLAY_MS = 10_000 + 500;
const SESSION_LIFE_MS = 24 * 3_600_000;
const SESSION_IDLE_MS = 12 * 3_600_000;

/** Judges a whole run by its log. */
export function checkOperations(operations: readonly Operation[]): string[] {
  return [...operations.flatMap(checkOne), ...checkCodes(operations)];
}

export function figuresOf(operations: readonly Operation[]): FaultFigure[] {
  const jobs = operations.filter((one) => one.kind === 'job');
  const timedOut = jobs.filter(({ errorCode }) => errorCode === 'JOB_TIMEOUT');
  const replays = operations.flatMap((one) => (one.kind === 'refresh' && one.sinceUseMs > REPLAY_MS ? [one] : []));
  const countOf = (kind: Operation['kind']) => operations.filter((one) => one.kind === kind).length;
  return [
    workFigure('jumps of the clock', countOf('jump')),
    workFigure('jobs', jobs.length),
    longestFigure(
      'a job that timed out too early, by at most',
      timedOut.map(({ ms, timeoutMs }) => timeoutMs - ms),
      MAX_EARLY_MS,
    ),
    longestFigure(
      'a job that went on after its time, by at most',
      jobs.map(({ ms, timeoutMs }) => ms - timeoutMs),
      MAX_LATE_MS,
    ),
    workFigure('codes of the second factor that were tried', countOf('code')),
    neverFigure('of those accepted again', checkCodes(operations).length),
    workFigure('refresh tokens that were sent again too late', replays.length),
    neverFigure('of those answered', replays.filter(({ outcome }) => outcome === 'ok').length),
    neverFigure('exits of the program', countOf('exit')),
  ];
}

function checkOne(operation: Operation): string[] {
  switch (operation.kind) {
    case 'job':
      return checkJob(operation);
    case 'refresh': {
      const { sinceUseMs, outcome } = operation;
      if (outcome === 'unknown') return ['a refresh was not answered'];
      const isReplay = outcome === 'ok' && sinceUseMs > REPLAY_MS;
      return isReplay ? [`a refresh token was answered ${Math.round(sinceUseMs)} ms after its use`] : [];
    }
    case 'check': {
      const { shiftMs, outcome } = operation;
      if (outcome === 'unknown') return ['a look at a session was not answered'];
      if (outcome === 'ok' && shiftMs > SESSION_LIFE_MS) return ['a session was good for longer than it may live'];
      const isYoung = Math.abs(shiftMs) < SESSION_IDLE_MS;
      return outcome === 'fail' && isYoung ? [`a young session was refused (the clock is off by ${shiftMs} ms)`] : [];
    }
    case 'code':
      return operation.outcome === 'unknown' ? ['a code was not answered'] : [];
    case 'health':
      return operation.outcome === 'ok' ? [] : ['the program does not say that it is well'];
    case 'exit':
      return [`the program ended (${operation.code})`];
    case 'jump':
      return [];
  }
}

function checkJob({ name, timeoutMs, ms, status, errorCode }: JobOperation): string[] {
  if (status === 'open') return [`${name} was open ${Math.round(ms - timeoutMs)} ms after its time`];
  const early = timeoutMs - ms;
  if (errorCode !== 'JOB_TIMEOUT') return errorCode === null ? [] : [`${name} ended as ${errorCode}`];
  return early > MAX_EARLY_MS ? [`${name} timed out ${Math.round(early)} ms early`] : [];
}

/** Of one person each step is accepted once, and none that is older than one that was. */
function checkCodes(operations: readonly Operation[]): string[] {
  const last = new Map<string, number>();
  return operations.flatMap((operation) => {
    if (operation.kind !== 'code' || operation.outcome !== 'ok') return [];
    const { email, step } = operation;
    const before = last.get(email) ?? 0;
    last.set(email, Math.max(before, step));
    return step > before ? [] : [`step ${step} of ${email} was accepted after step ${before}`];
  });
}
