import { countFigure, type FaultFigure, neverFigure, workFigure } from '../fault-suite.ts';

/** While the sockets are held, or the last call, which each of them gets. */
export type Phase = 'held' | 'last';

/** Calls of one second that ended in the same way, by how long they took from when they were due, in whole milliseconds. */
export interface EndedCalls {
  readonly kind: 'calls';
  readonly phase: Phase;
  readonly outcome: 'ok' | 'fail' | 'unknown';
  readonly times: Readonly<Record<string, number>>;
}

/** What was done and seen: a line of the log for each second, and one for each socket that was lost. */
export type Operation =
  | EndedCalls
  /** How many sockets were wanted, and how many of them the program has taken. */
  | { readonly kind: 'opened'; readonly wanted: number; readonly count: number }
  | { readonly kind: 'drop'; readonly socket: number; readonly afterMs: number; readonly why: string }
  /** What the program holds in memory. */
  | { readonly kind: 'memory'; readonly bytes: number }
  /** For how long calls were made. */
  | { readonly kind: 'held'; readonly ms: number };

export const CALLS_PER_SECOND = 1000;

const MEGABYTE = 1_000_000;
const MEMORY_BYTES = 600 * MEGABYTE;
const P99_MS = 250;
/** The first call and the last are not a whole second apart from the ends. */
const RATE_SHARE = 0.99;

/** Judges a whole run by its log. */
export function checkOperations(operations: readonly Operation[]): string[] {
  const { wanted, opened, answeredLast } = socketsOf(operations);
  const unanswered = countOf(callsOf(operations).filter(({ outcome }) => outcome !== 'ok'));
  return [
    ...(opened < wanted || wanted === 0 ? [`${opened} of ${wanted} sockets were opened`] : []),
    ...dropsOf(operations).map(({ socket, afterMs, why }) => `socket ${socket} was lost after ${afterMs} ms: ${why}`),
    ...(unanswered > 0 ? [`${unanswered} calls were not answered, or not rightly`] : []),
    ...(answeredLast < opened ? [`${opened - answeredLast} sockets did not answer a last call`] : []),
    ...(operations.some(({ kind }) => kind === 'held') ? [] : ['the sockets were not held to the end']),
  ];
}

/** What the run came to, by its log. */
export function figuresOf(operations: readonly Operation[]): FaultFigure[] {
  const { wanted, opened, answeredLast } = socketsOf(operations);
  const held = callsOf(operations).filter(({ phase }) => phase === 'held');
  const seconds = operations.reduce((sum, one) => (one.kind === 'held' ? sum + one.ms / 1000 : sum), 0);
  const rate = countOf(held) / seconds;
  const p99 = quantileOf(held, 0.99);
  const memory = Math.max(0, ...operations.flatMap((one) => (one.kind === 'memory' ? [one.bytes] : [])));
  return [
    reachedFigure('authenticated sockets', opened, wanted),
    countFigure('held for so many seconds', Math.round(seconds)),
    neverFigure('of them lost', dropsOf(operations).length),
    workFigure('calls over all of them', countOf(held)),
    {
      name: 'calls a second',
      value: rate.toFixed(0),
      goal: `≥ ${RATE_SHARE * CALLS_PER_SECOND}`,
      met: rate >= RATE_SHARE * CALLS_PER_SECOND,
    },
    neverFigure('of them not answered', countOf(callsOf(operations).filter(({ outcome }) => outcome !== 'ok'))),
    { name: 'answered after, median', value: `${quantileOf(held, 0.5)} ms`, goal: '', met: true },
    { name: 'answered after, p99', value: `${p99} ms`, goal: `≤ ${P99_MS} ms`, met: p99 <= P99_MS },
    reachedFigure('sockets that answer a last call', answeredLast, opened),
    {
      name: 'memory (RSS), at most',
      value: megabytes(memory),
      goal: `≤ ${megabytes(MEMORY_BYTES)}`,
      met: memory <= MEMORY_BYTES,
    },
  ];
}

function socketsOf(operations: readonly Operation[]) {
  const line = operations.find((one) => one.kind === 'opened');
  const last = callsOf(operations).filter(({ phase, outcome }) => phase === 'last' && outcome === 'ok');
  return { wanted: line?.wanted ?? 0, opened: line?.count ?? 0, answeredLast: countOf(last) };
}

function callsOf(operations: readonly Operation[]): readonly EndedCalls[] {
  return operations.filter((one) => one.kind === 'calls');
}

function dropsOf(operations: readonly Operation[]) {
  return operations.filter((one) => one.kind === 'drop');
}

function countOf(calls: readonly EndedCalls[]): number {
  return calls.reduce((sum, { times }) => sum + Object.values(times).reduce((all, count) => all + count, 0), 0);
}

/** The time within which that share of the calls had ended. */
function quantileOf(calls: readonly EndedCalls[], share: number): number {
  const counts = new Map<number, number>();
  for (const { times } of calls)
    for (const [ms, count] of Object.entries(times)) counts.set(Number(ms), (counts.get(Number(ms)) ?? 0) + count);
  let left = countOf(calls) * share;
  for (const [ms, count] of [...counts].sort(([one], [other]) => one - other)) {
    left -= count;
    if (left <= 0) return ms;
  }
  return Number.NaN;
}

function reachedFigure(name: string, count: number, all: number): FaultFigure {
  return { name, value: count.toLocaleString('en'), goal: all.toLocaleString('en'), met: count === all && all > 0 };
}

function megabytes(bytes: number): string {
  return `${Math.round(bytes / MEGABYTE)} MB`;
}
