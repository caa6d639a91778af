import { quantile } from '../../test/kit/samples.ts';
import { type Figure, limitFigure, median, round, type Table } from '../report/figure.ts';
import { benchDeliveries, benchUpdateBytes, type DeliveryOptions, type UpdateBytes } from './live.bench.ts';
import { benchLists, benchOpening, type ReadCost } from './reads.bench.ts';

const MAX_GROWTH = 1.3;
const MAX_BYTES = 0.35;
const MAX_LATE_MS = 100;

/** How long each measurement takes: a full run, and a short one of about 40 s. */
const PARAMETERS = {
  full: {
    lists: { few: 1000, many: 1_000_000, rounds: 30, callsPerRound: 40 },
    opening: { few: 100, many: 100_000, rounds: 30, callsPerRound: 40 },
    deliveries: { watchers: 100, sessions: 200, perSecond: 2000, seconds: 60 },
  },
  quick: {
    lists: { few: 1000, many: 100_000, rounds: 5, callsPerRound: 15 },
    opening: { few: 100, many: 100_000, rounds: 8, callsPerRound: 20 },
    deliveries: { watchers: 100, sessions: 200, perSecond: 2000, seconds: 10 },
  },
};

type Parameters = typeof PARAMETERS.full;

/** What lists, histories and the live socket cost. All of it with the program as a user starts it. */
export async function workbenchSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  const { lists, opening, deliveries } = quick ? PARAMETERS.quick : PARAMETERS.full;
  return [
    { title: 'Workbench: lists', figures: await listFigures(lists) },
    { title: 'Workbench: opening a session', figures: await openingFigures(opening) },
    { title: 'Workbench: bytes of updates', figures: await byteFigures() },
    { title: 'Workbench: deliveries', figures: await deliveryFigures(deliveries) },
  ];
}

async function listFigures(options: Parameters['lists']): Promise<readonly Figure[]> {
  const costs = await benchLists(options);
  const stored = `with ${round(options.many)} of everything stored against ${round(options.few)}`;
  return costs.map((cost) => growthFigure(`${cost.name}, ${stored}`, cost));
}

async function openingFigures(options: Parameters['opening']): Promise<readonly Figure[]> {
  const costs = await benchOpening(options);
  const sizes = `of a session of ${round(options.many)} updates against one of ${round(options.few)}`;
  return costs.map((cost) => growthFigure(`${cost.name}, ${sizes}`, cost));
}

function growthFigure(name: string, cost: ReadCost): Figure {
  const ratio = median(cost.many.map((us, index) => us / (cost.few[index] ?? Number.NaN)));
  const [few, many] = [median(cost.few), median(cost.many)];
  return {
    name,
    value: `${round(many)} µs`,
    bound: `${round(few)} µs`,
    result: ratio.toFixed(2),
    goal: `≤ ${MAX_GROWTH}`,
    met: ratio <= MAX_GROWTH,
    amounts: { ours: many, bound: few, goal: MAX_GROWTH * few },
  };
}

async function byteFigures(): Promise<readonly Figure[]> {
  const { text, others } = await benchUpdateBytes();
  const compare = (name: string, { live, first, updates }: UpdateBytes, hasGoal: boolean): Figure => ({
    name: `${name} on the live socket against the same on \`/acp\``,
    value: `${round(live / updates)} B`,
    bound: `${round(first / updates)} B`,
    result: (live / first).toFixed(2),
    goal: hasGoal ? `≤ ${MAX_BYTES}` : '',
    met: !hasGoal || live / first <= MAX_BYTES,
    amounts: {
      ours: live / updates,
      bound: first / updates,
      ...(hasGoal && { goal: (MAX_BYTES * first) / updates }),
    },
  });
  return [
    compare('a piece of text', text, true),
    // The first surface repeats only the text: these are shown beside it.
    compare('any other update of a turn', others, false),
  ];
}

async function deliveryFigures(options: DeliveryOptions): Promise<readonly Figure[]> {
  const { watchers, sessions, perSecond: goal } = options;
  const { perSecond, lost, lateMs } = await benchDeliveries(options);
  const place = `to ${watchers} watchers of ${sessions} live sessions`;
  const late = (name: string, value: number) =>
    limitFigure({ name: `from the agent's report to the watcher, ${name}`, unit: 'ms', value, goal: MAX_LATE_MS });
  return [
    {
      name: `changes delivered ${place}`,
      value: `${round(perSecond)} deliveries/s`,
      bound: '',
      result: '',
      goal: `≥ ${round(goal)} deliveries/s`,
      met: perSecond >= goal,
      amounts: { ours: perSecond, goal },
    },
    limitFigure({ name: `changes that were not delivered ${place}`, unit: 'deliveries', value: lost, goal: 0 }),
    late('p99', quantile(lateMs, 0.99)),
    late('the latest', quantile(lateMs, 1)),
  ];
}
