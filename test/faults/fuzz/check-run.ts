import type { CountedTries } from '../../kit/count-tries.ts';
import { countFigure, type FaultFigure, leastFigure, longestFigure, neverFigure } from '../fault-suite.ts';

/** How the properties of one file ended. */
export interface FuzzRun {
  readonly file: string;
  readonly status: number | null;
  /** What failed, with the seed and the path by which it fails again. */
  readonly output: string;
}

const MAX_TRY_MS = 1000;
/** Of what a failed file printed, its end: there the failures stand. */
const SHOWN_LENGTH = 4000;

export function checkRun(runs: readonly FuzzRun[], counted: readonly CountedTries[]): string[] {
  return [
    ...runs.filter(hasFailed).map(({ file, output }) => `${file} did not hold: ${output.slice(-SHOWN_LENGTH)}`),
    ...runs
      .filter(({ file }) => !counted.some((one) => one.file.endsWith(file) && one.tries > 0))
      .map(({ file }) => `${file} tried nothing`),
  ];
}

export function figuresOf(
  runs: readonly FuzzRun[],
  counted: readonly CountedTries[],
  minTries?: number,
): FaultFigure[] {
  const tries = counted.reduce((sum, one) => sum + one.tries, 0);
  return [
    countFigure('files of properties', runs.length),
    minTries === undefined ? countFigure('tries', tries) : leastFigure('tries', tries, minTries),
    neverFigure('files in which something did not hold', runs.filter(hasFailed).length),
    longestFigure(
      'a single try, at most',
      counted.map(({ longestMs }) => longestMs),
      MAX_TRY_MS,
    ),
  ];
}

function hasFailed({ status }: FuzzRun): boolean {
  return status !== 0;
}
