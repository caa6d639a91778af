import { quantile } from '../../kit/samples.ts';
import { countFigure, type FaultFigure, longestFigure, neverFigure, workFigure } from '../fault-suite.ts';

export type Phase = 'all read' | 'slow readers' | 'slow senders';

/** What was done and seen, one line of the log each. */
export type Operation =
  /** A call of a healthy client, meanwhile. */
  | { readonly kind: 'call'; readonly phase: Phase; readonly outcome: 'ok' | 'fail' | 'unknown'; readonly ms: number }
  /** What the program holds in memory. */
  | { readonly kind: 'memory'; readonly phase: Phase; readonly bytes: number }
  /** A socket that was not read: whether the program has cut it off in the end. */
  | { readonly kind: 'unread'; readonly isCut: boolean }
  /** A connection that sends a byte now and then, and how long the program has borne it; null: to the end of the run. */
  | { readonly kind: 'sender'; readonly what: Dripping; readonly closedAfterMs: number | null };

/** What drips. */
export type Dripping = 'headers' | 'body';

const MEGABYTE = 1_000_000;
const MEMORY_BYTES = 300 * MEGABYTE;
/** On a busy machine what is no longer needed is collected late. Without a bound it would be two gigabytes. */
const BOUNDED_BYTES = 2 * MEMORY_BYTES;
const SENDERS_P99_MS = 100;
const READERS_RATIO = 2;
/** The time that the program gives, the interval at which it looks, and a little. */
const GOAL_MS: Readonly<Record<Dripping, number>> = { headers: 12_000, body: 33_000 };

/** Judges a whole run by its log. Times are figures; what is violated here holds on slow machines, too. */
export function checkOperations(operations: readonly Operation[]): string[] {
  const growth = growthOf(operations);
  const perPhase = (phase: Phase) => {
    const unanswered = callsOf(operations, phase).filter(({ outcome }) => outcome !== 'ok').length;
    return unanswered === 0 ? [] : [`${unanswered} calls of healthy clients were not answered beside ${phase}`];
  };
  return [
    ...perPhase('all read'),
    ...perPhase('slow readers'),
    ...perPhase('slow senders'),
    ...(growth > BOUNDED_BYTES ? [`the memory grew by ${megabytes(growth)} beside slow readers`] : []),
    ...sendersOf(operations).flatMap(({ what, closedAfterMs }) =>
      closedAfterMs === null ? [`a connection with dripping ${what} was never closed`] : [],
    ),
  ];
}

/** What the run came to, by its log. */
export function figuresOf(operations: readonly Operation[]): FaultFigure[] {
  const p99 = (phase: Phase) =>
    quantile(
      callsOf(operations, phase).map(({ ms }) => ms),
      0.99,
    );
  const [usual, readers, senders] = [p99('all read'), p99('slow readers'), p99('slow senders')];
  const growth = growthOf(operations);
  const unread = operations.filter((one) => one.kind === 'unread');
  const closedAfter = (what: Dripping) =>
    sendersOf(operations).flatMap((one) => (one.what === what ? [one.closedAfterMs ?? Number.POSITIVE_INFINITY] : []));
  const failed = operations.filter((one) => one.kind === 'call' && one.outcome !== 'ok').length;
  return [
    workFigure('sockets that do not read', unread.length),
    countFigure('of them cut off', unread.filter(({ isCut }) => isCut).length),
    { name: 'calls of the others while all read, p99', value: milliseconds(usual), goal: '', met: true },
    {
      name: 'while those do not, p99',
      value: milliseconds(readers),
      goal: `≤ ${READERS_RATIO} × ${milliseconds(usual)}`,
      met: readers <= READERS_RATIO * usual,
    },
    {
      name: 'growth of the memory (RSS)',
      value: megabytes(growth),
      goal: `≤ ${megabytes(MEMORY_BYTES)}`,
      met: growth <= MEMORY_BYTES,
    },
    workFigure('connections that drip', sendersOf(operations).length),
    {
      name: 'calls of the others beside them, p99',
      value: milliseconds(senders),
      goal: `≤ ${SENDERS_P99_MS} ms`,
      met: senders <= SENDERS_P99_MS,
    },
    longestFigure('dripping headers are closed after', closedAfter('headers'), GOAL_MS.headers),
    longestFigure('dripping bodies are closed after', closedAfter('body'), GOAL_MS.body),
    neverFigure('calls of healthy clients not answered', failed),
  ];
}

function callsOf(operations: readonly Operation[], phase: Phase) {
  return operations.filter((one) => one.kind === 'call').filter((call) => call.phase === phase);
}

function sendersOf(operations: readonly Operation[]) {
  return operations.filter((one) => one.kind === 'sender');
}

/** From the most while all read to the most beside slow readers. */
function growthOf(operations: readonly Operation[]): number {
  const most = (phase: Phase) =>
    operations.reduce((bytes, one) => {
      return one.kind === 'memory' && one.phase === phase ? Math.max(bytes, one.bytes) : bytes;
    }, 0);
  return Math.max(0, most('slow readers') - most('all read'));
}

function megabytes(bytes: number): string {
  return `${Math.round(bytes / MEGABYTE).toLocaleString('en')} MB`;
}

function milliseconds(ms: number): string {
  return `${ms.toFixed(1)} ms`;
}
