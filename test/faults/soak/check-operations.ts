import { quantile } from '../../kit/samples.ts';
import { type FaultFigure, neverFigure, workFigure } from '../fault-suite.ts';

/** The kinds of call, and the status that each must get; 0: the client leaves before the end. */
const COMPLETIONS = { whole: 200, stream: 200, refused: 400, unknown: 404, hang: 0 } as const;
const OTHERS = {
  turn: 200,
  streamedTurn: 200,
  socketTurn: 200,
  leftTurn: 0,
  job: 200,
  login: 200,
  lists: 200,
} as const;
const CALLS = { ...COMPLETIONS, ...OTHERS };
export type CallName = keyof typeof CALLS;

/** How a call ended: with which status, and whether nothing of its answer was missing. */
export interface CallEnd {
  readonly name: CallName;
  readonly status: number;
  readonly isWhole: boolean;
  /** Why there was no answer at all. */
  readonly problem?: string;
}

/** What was done and seen, one line of the log for each second: a day has too many calls for a line each. */
export type Operation =
  /** Calls that ended in the same way. */
  | (CallEnd & { readonly kind: 'calls'; readonly count: number })
  /** What the program holds: memory, and open files and sockets. */
  | { readonly kind: 'level'; readonly bytes: number; readonly descriptors: number };

type Level = Extract<Operation, { kind: 'level' }>;

const MEGABYTE = 1_000_000;
/** Resident memory moves by some of it from one collection to the next. */
const GROWTH_BYTES = 25 * MEGABYTE;
const GROWTH_DESCRIPTORS = 10;

/** Judges a whole run by its log. */
export function checkOperations(operations: readonly Operation[]): string[] {
  const wrong = operations.filter((one) => one.kind === 'calls').filter(isWrong);
  const { descriptors } = growthOf(operations);
  return [
    ...wrong.map(
      ({ name, status, count, problem = '' }) =>
        `${count} calls of the kind "${name}" ended with ${status}, or were cut ${problem}`,
    ),
    ...(descriptors > GROWTH_DESCRIPTORS ? [`${descriptors} more files and sockets were open at the end`] : []),
  ];
}

/** What the run came to, by its log. */
export function figuresOf(operations: readonly Operation[]): FaultFigure[] {
  const calls = operations.filter((one) => one.kind === 'calls');
  const sum = (of: readonly { readonly count: number }[]) => of.reduce((total, { count }) => total + count, 0);
  const { bytes, descriptors } = growthOf(operations);
  const levels = levelsOf(operations);
  const megabytes = (value: number) => `${Math.round(value / MEGABYTE)} MB`;
  return [
    workFigure('calls', sum(calls)),
    workFigure('turns, jobs, logins and lists among them', sum(calls.filter(({ name }) => name in OTHERS))),
    neverFigure('of them ended otherwise than they must', sum(calls.filter(isWrong))),
    { name: 'memory (RSS), median', value: megabytes(middle(levels, 'bytes')), goal: '', met: true },
    {
      name: 'P-40: growth from the second fifth of the time to the last',
      value: megabytes(bytes),
      goal: `≤ ${megabytes(GROWTH_BYTES)}`,
      met: bytes <= GROWTH_BYTES,
    },
    {
      name: 'open files and sockets, the same',
      value: String(descriptors),
      goal: `≤ ${GROWTH_DESCRIPTORS}`,
      met: descriptors <= GROWTH_DESCRIPTORS,
    },
  ];
}

function isWrong({ name, status, isWhole }: CallEnd): boolean {
  return status !== CALLS[name] || (status !== 0 && !isWhole);
}

function levelsOf(operations: readonly Operation[]): readonly Level[] {
  return operations.filter((one) => one.kind === 'level');
}

/** The first fifth warms up. */
function growthOf(operations: readonly Operation[]): { readonly bytes: number; readonly descriptors: number } {
  const levels = levelsOf(operations);
  const fifth = Math.floor(levels.length / 5);
  const [early, late] = [levels.slice(fifth, 2 * fifth), levels.slice(-fifth)];
  return {
    bytes: middle(late, 'bytes') - middle(early, 'bytes'),
    descriptors: middle(late, 'descriptors') - middle(early, 'descriptors'),
  };
}

function middle(levels: readonly Level[], of: 'bytes' | 'descriptors'): number {
  return quantile(
    levels.map((level) => level[of]),
    0.5,
  );
}
