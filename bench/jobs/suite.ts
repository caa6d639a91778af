import { type Figure, limitFigure, median, ratioFigure, round, type Table } from '../report/figure.ts';
import { benchGrowth } from './growth.bench.ts';
import { benchSubmits } from './submits.bench.ts';

/** No bridge needs more than this, however fast its disk is. */
const ENOUGH_PER_SECOND = 3000;
const MIN_SHARE_OF_COMMITS = 0.9;
const MAX_GROWTH = 1.3;

/** How long each measurement takes: a full run, and a short one of about 20 s. */
const PARAMETERS = {
  full: {
    submits: { rounds: 30, roundMs: 500 },
    growth: { few: 1000, many: 1_000_000, rounds: 40, callsPerRound: 200 },
  },
  quick: {
    submits: { rounds: 6, roundMs: 500 },
    growth: { few: 1000, many: 30_000, rounds: 10, callsPerRound: 50 },
  },
};

type Parameters = typeof PARAMETERS.full;

/** What it costs to submit a job for good, and to look at jobs when there are many. */
export async function jobsSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  const { submits, growth } = quick ? PARAMETERS.quick : PARAMETERS.full;
  return [
    { title: 'Jobs: submits', figures: await submitFigures(submits) },
    { title: 'Jobs: growth', figures: await growthFigures(growth) },
  ];
}

async function submitFigures(rounds: Parameters['submits']): Promise<readonly Figure[]> {
  const { submits, raw, halfLoadMs } = await benchSubmits(rounds);
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
      amounts: { ours: median(submits), bound: median(raw), goal },
    },
    ratioFigure({
      name: 'the same, as a share of those commits',
      unit: 'submits/s',
      ours: submits,
      bound: raw,
      goal: MIN_SHARE_OF_COMMITS,
    }),
    limitFigure({
      name: 'a submit at half of that rate, p99',
      unit: 'ms',
      value: sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN,
      goal: 15,
    }),
  ];
}

const CALLS = [
  ['get', '`app.jobs.get`'],
  ['list', '`app.jobs.list`'],
  ['stats', '`app.jobs.stats`'],
  ['key', 'finding the job of an idempotency key'],
] as const;

async function growthFigures(options: Parameters['growth']): Promise<readonly Figure[]> {
  const growth = await benchGrowth(options);
  return CALLS.map(([name, title]) => {
    const ratios = growth.many[name].map((us, index) => us / (growth.few[name][index] ?? Number.NaN));
    const [few, many] = [median(growth.few[name]), median(growth.many[name])];
    return {
      name: `${title} with ${round(options.many)} jobs against ${round(options.few)}`,
      value: `${round(many)} µs`,
      bound: `${round(few)} µs`,
      result: median(ratios).toFixed(2),
      goal: `≤ ${MAX_GROWTH}`,
      met: median(ratios) <= MAX_GROWTH,
      amounts: { ours: many, bound: few, goal: MAX_GROWTH * few },
    };
  });
}
