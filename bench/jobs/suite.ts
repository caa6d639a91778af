import { type Figure, limitFigure, median, round, type Table } from '../report/figure.ts';
import { benchGrowth } from './growth.bench.ts';
import { benchSubmits } from './submits.bench.ts';

/** No bridge needs more than this, however fast its disk is. */
const ENOUGH_PER_SECOND = 3000;
const MOST_GROWTH = 1.3;

/** What it costs to submit a job for good, and to look at jobs when there are many. */
export async function jobsSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  return [
    { title: 'Jobs: submits', figures: await submitFigures(quick) },
    { title: 'Jobs: growth', figures: await growthFigures(quick) },
  ];
}

async function submitFigures(quick: boolean): Promise<readonly Figure[]> {
  const { submits, raw, halfLoadMs } = await benchSubmits({ rounds: quick ? 6 : 30, roundMs: 500 });
  const goal = Math.min(median(raw), ENOUGH_PER_SECOND);
  const sorted = halfLoadMs.toSorted((a, b) => a - b);
  return [
    {
      name: 'durable submits over HTTP, 64 in flight, against raw one-row FULL commits',
      value: `${round(median(submits))} submits/s`,
      bound: `${round(median(raw))} commits/s`,
      result: (median(submits) / median(raw)).toFixed(2),
      goal: `≥ ${round(goal)} submits/s (the smaller of the bound and ${round(ENOUGH_PER_SECOND)})`,
      met: median(submits) >= goal,
    },
    limitFigure({
      name: 'a submit at half of that rate, p99',
      unit: 'ms',
      value: sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN,
      goal: 50,
    }),
  ];
}

async function growthFigures(quick: boolean): Promise<readonly Figure[]> {
  const many = quick ? 50_000 : 1_000_000;
  const growth = await benchGrowth({ few: 1000, many, rounds: quick ? 10 : 40, callsPerRound: quick ? 50 : 200 });
  return (['get', 'list', 'stats'] as const).map((name) => {
    const ratios = growth.many[name].map((us, index) => us / (growth.few[name][index] ?? Number.NaN));
    return {
      name: `\`app.jobs.${name}\` with ${round(many)} jobs against 1,000`,
      value: `${round(median(growth.many[name]))} µs`,
      bound: `${round(median(growth.few[name]))} µs`,
      result: median(ratios).toFixed(2),
      goal: `≤ ${MOST_GROWTH}`,
      met: median(ratios) <= MOST_GROWTH,
    };
  });
}
