import { quantile } from '../../kit/samples.ts';
import { countFigure, type FaultFigure, longestFigure, neverFigure, workFigure } from '../fault-suite.ts';

/** What an upstream does in the middle of a stream; `whole` is the one that does nothing wrong. */
export const FAULTS = [
  'whole',
  'closed',
  'reset',
  'silent',
  'half-frame',
  'half-frame-then-silent',
  'error-frame',
  'ended',
] as const;
export type Fault = (typeof FAULTS)[number];

/** What was done and seen, one line of the log each. Times are of one monotonic clock. */
export type Operation =
  /** The upstream has got the call. */
  | { readonly kind: 'begun'; readonly id: string }
  /** The upstream has sent so many words and does what it is told. */
  | { readonly kind: 'fault'; readonly id: string; readonly fault: Fault; readonly words: number; readonly at: number }
  /** The upstream's side of the call is over. */
  | { readonly kind: 'closed'; readonly id: string; readonly at: number }
  | StreamSeen
  /** A client has left. */
  | { readonly kind: 'abort'; readonly id: string; readonly at: number }
  /** Connections that are open when all is over. `spare`: what may be. */
  | { readonly kind: 'sockets'; readonly of: string; readonly open: number; readonly spare: number };

/** A stream as its client saw it: whole, failed in words, or with an end that says nothing. */
export interface StreamSeen {
  readonly kind: 'stream';
  readonly id: string;
  readonly outcome: 'ok' | 'fail' | 'unknown';
  readonly status: number;
  /** `end`: as an answer ends. `broken`: in its middle. `none`: the client gave up. */
  readonly end: 'end' | 'broken' | 'none';
  readonly isDone: boolean;
  readonly errors: number;
  readonly text: string;
  readonly at: number;
}

/** What the store has of a call. */
export interface StoredOutcome {
  readonly id: string;
  readonly outcome: string;
}

const ABORT_MS = 200;
/** Time for a busy machine. A client that has waited so much longer than the idle timeout is hung. */
const SLACK_MS = 10_000;
const GOAL_SLACK_MS = 500;

/** What the upstream says, word by word. */
const wordsOf = (count: number): string => Array.from({ length: count }, (_, word) => `w${word} `).join('');

/** Judges a whole run by its log and by what is stored at its end. */
export function checkOperations(
  operations: readonly Operation[],
  stored: readonly StoredOutcome[],
  idleMs: number,
): string[] {
  return [
    ...checkStreams(operations),
    ...checkWaits(operations, idleMs),
    ...checkAborts(operations),
    ...checkSockets(operations),
    ...checkStored(operations, stored),
  ];
}

/** What the run came to, by its log and by what is stored at its end. */
export function figuresOf(
  operations: readonly Operation[],
  stored: readonly StoredOutcome[],
  idleMs: number,
): FaultFigure[] {
  const streams = [...pairs(operations)];
  const broken = streams.filter(({ fault }) => fault.fault !== 'whole');
  const delays = abortDelays(operations);
  const slowest = quantile(delays, 0.99);
  const isOpenEnd = ({ seen }: Pair) => seen.end === 'end' && seen.errors === 0 && !seen.isDone && seen.status === 200;
  return [
    countFigure('streams that stayed whole', streams.length - broken.length),
    workFigure('streams broken by the upstream', broken.length),
    countFigure('of them with an error in words', broken.filter(({ seen }) => seen.outcome === 'fail').length),
    countFigure('of them with a broken body', broken.filter(({ seen }) => seen.end === 'broken').length),
    neverFigure('false [DONE]', broken.filter(({ seen }) => seen.isDone).length),
    neverFigure('ends that say nothing', broken.filter(isOpenEnd).length),
    neverFigure('hung beyond the idle timeout', checkWaits(operations, idleMs).length),
    longestFigure(
      'from the fault to the end at the client, at most',
      broken.map(({ fault, seen }) => seen.at - fault.at),
      idleMs + GOAL_SLACK_MS,
    ),
    workFigure('streams left by their client', operations.filter(({ kind }) => kind === 'abort').length),
    neverFigure('of them still open at the upstream', checkAborts(operations).length),
    {
      name: 'upstream closed after its client left, p99',
      value: `${Math.round(slowest)} ms`,
      goal: `≤ ${ABORT_MS} ms`,
      met: slowest <= ABORT_MS,
    },
    neverFigure('sockets leaked', checkSockets(operations).length),
    neverFigure('calls recorded as something else', checkStored(operations, stored).length),
  ];
}

interface Pair {
  readonly fault: Extract<Operation, { kind: 'fault' }>;
  readonly seen: StreamSeen;
}

/** What happened to each stream, and what its client saw of it. */
function* pairs(operations: readonly Operation[]): Generator<Pair> {
  const faults = new Map(operations.flatMap((one) => (one.kind === 'fault' ? [[one.id, one]] : [])));
  for (const seen of operations) {
    const fault = seen.kind === 'stream' ? faults.get(seen.id) : undefined;
    if (seen.kind === 'stream' && fault !== undefined) yield { fault, seen };
  }
}

function checkStreams(operations: readonly Operation[]): string[] {
  const known = new Set(operations.flatMap((one) => (one.kind === 'fault' ? [one.id] : [])));
  const unasked = operations.filter((one) => one.kind === 'stream' && !known.has(one.id));
  return [
    ...unasked.map((one) => `a stream never reached the upstream: ${JSON.stringify(one)}`),
    ...[...pairs(operations)].flatMap(({ fault: { fault, words }, seen }) => {
      const { id, end, isDone, errors, status, text } = seen;
      if (!wordsOf(words).startsWith(text)) return [`${id} (${fault}) was sent ${words} words, and has "${text}"`];
      if (fault === 'whole') {
        const isWhole = isDone && errors === 0 && end === 'end' && text === wordsOf(words);
        return isWhole ? [] : [`${id} was whole, and its client saw ${JSON.stringify(seen)}`];
      }
      if (isDone) return [`${id} (${fault}) has a false [DONE]`];
      return errors > 0 || end !== 'end' || status >= 400 ? [] : [`${id} (${fault}) ended as if nothing were wrong`];
    }),
  ];
}

function checkWaits(operations: readonly Operation[], idleMs: number): string[] {
  return [...pairs(operations)].flatMap(({ fault, seen }) => {
    const waited = seen.at - fault.at;
    if (seen.end !== 'none' && waited <= idleMs + SLACK_MS) return [];
    return [`${seen.id} (${fault.fault}) waited ${Math.round(waited)} ms`];
  });
}

function abortDelays(operations: readonly Operation[]): number[] {
  const closed = new Map(operations.flatMap((one) => (one.kind === 'closed' ? [[one.id, one.at]] : [])));
  return operations.flatMap((one) => {
    const at = one.kind === 'abort' ? closed.get(one.id) : undefined;
    return one.kind === 'abort' && at !== undefined ? [at - one.at] : [];
  });
}

/** What the upstream has got and its client has left must be over there. */
function checkAborts(operations: readonly Operation[]): string[] {
  const ids = (kind: Operation['kind']) =>
    new Set(operations.flatMap((one) => (one.kind === kind && 'id' in one ? [one.id] : [])));
  const [begun, closed] = [ids('begun'), ids('closed')];
  return [...ids('abort')].flatMap((id) =>
    begun.has(id) && !closed.has(id) ? [`${id} was left by its client, and is open at the upstream`] : [],
  );
}

function checkSockets(operations: readonly Operation[]): string[] {
  return operations.flatMap((one) =>
    one.kind === 'sockets' && one.open > one.spare ? [`${one.open} sockets of ${one.of} are open at the end`] : [],
  );
}

/** Each call is recorded once, as what it was: whole, not whole, or left. */
function checkStored(operations: readonly Operation[], stored: readonly StoredOutcome[]): string[] {
  const records = Map.groupBy(stored, ({ id }) => id);
  const expect = (id: string, isRight: (outcome: string) => boolean): string[] => {
    const outcomes = (records.get(id) ?? []).map(({ outcome }) => outcome);
    return outcomes.length === 1 && outcomes.every(isRight) ? [] : [`${id} is recorded as [${outcomes}]`];
  };
  const begun = new Set(operations.flatMap((one) => (one.kind === 'begun' ? [one.id] : [])));
  return [
    ...[...pairs(operations)].flatMap(({ fault: { id, fault } }) =>
      expect(id, (outcome) => (outcome === 'ok') === (fault === 'whole')),
    ),
    ...operations.flatMap((one) =>
      one.kind === 'abort' && begun.has(one.id) ? expect(one.id, (outcome) => outcome === 'aborted') : [],
    ),
  ];
}
