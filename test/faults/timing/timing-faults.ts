import { createScope } from '../../kit/create-scope.ts';
import { quantile } from '../../kit/samples.ts';
import { type FaultFigure, type FaultReport, type FaultSuite, seededRandom } from '../fault-suite.ts';
import { timeEnumeration } from './enumeration.ts';
import { timeHostileTexts } from './hostile-texts.ts';
import { timeTokenCompare } from './token-compare.ts';

const MAX_T = 4.5;
const MAX_DIFFERENCE_MS = 5;
const MAX_READING_MS = 5;
/** A compare takes a microsecond, a login twenty milliseconds: as many thousands of one as there are of the other. */
const COMPARES_PER_CYCLE = 1000;

/** What times tell a stranger. `cycles` is the number of calls of each kind; compares of tokens are a thousand times as many. */
export const timingFaults: FaultSuite = async ({ cycles, seed, say }) => {
  say(`${cycles} calls of each kind`);
  const random = seededRandom(seed);
  const parts = [
    judgeCompare(cycles * COMPARES_PER_CYCLE, random),
    judgeHostileTexts(),
    await judgeEnumeration(cycles, random),
  ];
  return {
    violations: parts.flatMap(({ violations }) => violations),
    figures: parts.flatMap(({ figures }) => figures),
  };
};

/** Here the times themselves are what must hold, so that a missed goal is a violation. */
function asReport(figures: readonly FaultFigure[]): FaultReport {
  const missed = figures.filter(({ met }) => !met);
  return { figures, violations: missed.map(({ name, value, goal }) => `${name}: ${value}, and not ${goal}`) };
}

function judgeCompare(count: number, random: () => number): FaultReport {
  const [ours, leaking] = Object.values(timeTokenCompare(count, random)).map(Math.abs) as [number, number];
  return asReport([
    {
      name: `B-28: |t| of ${count.toLocaleString('en')} wrong tokens`,
      value: ours.toFixed(2),
      goal: `< ${MAX_T}`,
      met: ours < MAX_T,
    },
    {
      name: 'B-28: the same of a compare that leaks, which must be noticed',
      value: leaking.toFixed(1),
      goal: `≥ ${MAX_T}`,
      met: leaking >= MAX_T,
    },
  ]);
}

function judgeHostileTexts(): FaultReport {
  const { reader, text, ms } = timeHostileTexts();
  const name = `A-12: the slowest hostile text (${reader}, ${text}...)`;
  return asReport([{ name, value: `${ms.toFixed(2)} ms`, goal: `< ${MAX_READING_MS} ms`, met: ms < MAX_READING_MS }]);
}

async function judgeEnumeration(count: number, random: () => number): Promise<FaultReport> {
  const scope = createScope();
  try {
    const results = await timeEnumeration(scope, count, random);
    const figures = results.flatMap(({ name, samples: { first, second }, otherAnswers }) => {
      const [known, unknown] = [quantile(first, 0.5), quantile(second, 0.5)];
      const difference = Math.abs(known - unknown);
      const times = `${known.toFixed(2)} ms for known and ${unknown.toFixed(2)} ms for unknown people`;
      return [
        {
          name: `${name}: difference of p50 (${times})`,
          value: `${difference.toFixed(2)} ms`,
          goal: `< ${MAX_DIFFERENCE_MS} ms`,
          met: difference < MAX_DIFFERENCE_MS,
        },
        { name: `${name}: answers unlike the others`, value: `${otherAnswers}`, goal: '0', met: otherAnswers === 0 },
      ];
    });
    return asReport(figures);
  } finally {
    await scope.end();
  }
}
