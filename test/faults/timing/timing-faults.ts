import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import { timeEnumeration } from './enumeration.ts';
import { timeHostileTexts } from './hostile-texts.ts';
import { quantile } from './samples.ts';
import { timeTokenCompare } from './token-compare.ts';

const MOST_T = 4.5;
const MOST_DIFFERENCE_MS = 5;
const MOST_READING_MS = 5;
/** A compare takes a microsecond, a login twenty milliseconds: as many thousands of one as there are of the other. */
const COMPARES_PER_CYCLE = 1000;

/** What times tell a stranger. `cycles` is the number of calls of each kind; compares of tokens are a thousand times as many. */
export const timingFaults: FaultSuite = async ({ cycles, seed, say }) => {
  say(`seed ${seed}, ${cycles} calls of each kind`);
  const random = seededRandom(seed);
  return [
    ...judgeCompare(cycles * COMPARES_PER_CYCLE, random, say),
    ...judgeHostileTexts(say),
    ...(await judgeEnumeration(cycles, random, say)),
  ];
};

type Say = (line: string) => void;

function judgeCompare(count: number, random: () => number, say: Say): string[] {
  const { ours, leaking } = timeTokenCompare(count, random);
  say(`B-28: ${count} wrong tokens, t = ${ours.toFixed(2)}; a compare that leaks: t = ${leaking.toFixed(1)}`);
  return [
    ...(Math.abs(ours) < MOST_T ? [] : [`B-28: |t| is ${Math.abs(ours).toFixed(2)}, not below ${MOST_T}`]),
    ...(Math.abs(leaking) >= MOST_T ? [] : ['B-28: the compare that leaks was not noticed: take more samples']),
  ];
}

function judgeHostileTexts(say: Say): string[] {
  const { reader, text, ms } = timeHostileTexts();
  const told = `A-12: the slowest hostile text takes ${ms.toFixed(2)} ms (${reader}, ${text}...)`;
  say(told);
  return ms < MOST_READING_MS ? [] : [told];
}

async function judgeEnumeration(count: number, random: () => number, say: Say): Promise<string[]> {
  const closing: (() => unknown)[] = [];
  try {
    const results = await timeEnumeration({ after: (run) => closing.push(run) }, count, random);
    return results.flatMap(({ name, samples: { first, second }, otherAnswers }) => {
      const [known, unknown] = [quantile(first, 0.5), quantile(second, 0.5)];
      const difference = Math.abs(known - unknown);
      const times = `${known.toFixed(2)} ms for known and ${unknown.toFixed(2)} ms for unknown people`;
      say(`${name}: p50 ${times}, difference ${difference.toFixed(2)} ms`);
      return [
        ...(difference < MOST_DIFFERENCE_MS ? [] : [`${name}: the difference is not below ${MOST_DIFFERENCE_MS} ms`]),
        ...(otherAnswers === 0 ? [] : [`${name}: ${otherAnswers} answers are unlike the others`]),
      ];
    });
  } finally {
    for (const close of closing.reverse()) await close();
  }
}
