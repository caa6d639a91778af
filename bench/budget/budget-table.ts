import { type Figure, limitFigure, median, ratioFigure, round, spread, type Table } from '../report/figure.ts';
import { GARBAGE, NATIVE } from './areas.ts';

/** What one state of the program, warm or cold, costs for each call. */
export interface Measured {
  /** Microseconds of processor time for each call, round by round: all threads, and the main thread. */
  readonly all: readonly number[];
  readonly main: readonly number[];
  /** Calls a second, round by round. */
  readonly perSecond: readonly number[];
  /** Of the main thread, by area. */
  readonly shares: ReadonlyMap<string, number>;
}

/** The bound in the same rounds. */
export interface Bound {
  readonly name: string;
  readonly all: readonly number[];
  readonly main: readonly number[];
  readonly perSecond: readonly number[];
  /** Where the bound was sampled as well. */
  readonly shares?: ReadonlyMap<string, number> | undefined;
}

export interface Goals {
  /** At most so many microseconds of processor time more than the bound. */
  readonly added?: number;
  /** At most so many milliseconds longer than the bound, where calls follow one another. */
  readonly addedMs?: number;
  /** At least this share of the rate of the bound. */
  readonly rate?: number;
  /** Microseconds of the main thread by area, on top of what the bound takes for that area. */
  readonly areas?: Readonly<Record<string, number>>;
}

export interface Budget {
  readonly title: string;
  /** `call`, `update`. */
  readonly unit: string;
  readonly ours: Measured;
  readonly bound?: Bound | undefined;
  readonly goals: Goals;
}

/** Areas that every server has. Their goal is what the bound takes for them in the same run. */
const SHARED_AREAS: ReadonlySet<string> = new Set(['reading', 'response', 'upstream', GARBAGE, NATIVE]);
/** Areas below this share of the main thread are shown together. */
const MIN_SHARE = 0.005;

export function budgetTable({ title, unit, ours, bound, goals }: Budget): Table {
  const main = median(ours.main);
  return {
    title,
    figures: [
      ...totalFigures(unit, ours, bound, goals),
      ...shown(ours.shares, goals).map(([area, share]) => areaFigure(area, share * main, bound, goals)),
      ...restFigure(ours.shares, goals, main),
      amountFigure('other threads: database, compiler, garbage collection', median(ours.all) - main),
    ],
  };
}

function totalFigures(unit: string, ours: Measured, bound: Bound | undefined, goals: Goals): Figure[] {
  const { added, addedMs, rate } = goals;
  const name = `processor time of one ${unit}, all threads`;
  if (bound === undefined) return [amountFigure(name, median(ours.all))];
  const rates = { ours: ours.perSecond, bound: bound.perSecond };
  return [
    differenceFigure(`${name}, against ${bound.name}`, 'µs', ours.all, bound.all, added),
    ...(addedMs === undefined
      ? []
      : [
          differenceFigure(
            `time of one ${unit}, one after the other, against ${bound.name}`,
            'ms',
            ours.perSecond.map(toMs),
            bound.perSecond.map(toMs),
            addedMs,
          ),
        ]),
    ...(rate === undefined
      ? []
      : [ratioFigure({ name: `${unit}s a second, against ${bound.name}`, unit: `${unit}s/s`, ...rates, goal: rate })]),
  ];
}

/** How much more than the bound, round by round, with half the spread of the middle half. */
function differenceFigure(
  name: string,
  unit: 'µs' | 'ms',
  ours: readonly number[],
  bound: readonly number[],
  goal: number | undefined,
): Figure {
  const differences = ours.map((value, index) => value - (bound[index] ?? Number.NaN));
  const over = median(differences);
  const half = Math.abs(spread(differences) * over) / 2;
  return {
    name,
    value: `${round(median(ours))} ${unit}`,
    bound: `${round(median(bound))} ${unit}`,
    result: `${over < 0 ? '' : '+'}${round(over)} ${unit} (±${round(half)})`,
    goal: goal === undefined ? '' : `≤ +${goal} ${unit}`,
    met: goal === undefined || over <= goal,
    amounts: { ours: median(ours), bound: median(bound) },
  };
}

function toMs(perSecond: number): number {
  return 1000 / perSecond;
}

function areaFigure(area: string, us: number, bound: Bound | undefined, goals: Goals): Figure {
  const own = goals.areas?.[area];
  const boundShare = bound?.shares?.get(area);
  const ofBound = bound === undefined || boundShare === undefined ? undefined : boundShare * median(bound.main);
  const isShared = goals.areas !== undefined && SHARED_AREAS.has(area);
  const goal = own === undefined ? (isShared ? ofBound : undefined) : own + (ofBound ?? 0);
  const figure = goal === undefined ? amountFigure(area, us) : limitFigure({ ...limitOf(goal), name: area, value: us });
  if (ofBound === undefined) return figure;
  return { ...figure, bound: `${round(ofBound)} µs`, amounts: { ...figure.amounts, bound: ofBound } };
}

function limitOf(goal: number) {
  return { unit: 'µs', goal: Number(goal.toFixed(1)) };
}

/** Those with a goal are always shown, the largest first. */
function shown(shares: Measured['shares'], { areas = {} }: Goals): readonly (readonly [string, number])[] {
  const missing = Object.keys(areas).filter((area) => !shares.has(area));
  return [...shares, ...missing.map((area) => [area, 0] as const)].filter(
    ([area, share]) => share >= MIN_SHARE || Object.hasOwn(areas, area),
  );
}

function restFigure(shares: Measured['shares'], goals: Goals, main: number): readonly Figure[] {
  const listed = new Set(shown(shares, goals).map(([area]) => area));
  const rest = [...shares].filter(([area]) => !listed.has(area)).reduce((sum, [, share]) => sum + share, 0);
  return rest === 0 ? [] : [amountFigure('areas below half a percent', rest * main)];
}

function amountFigure(name: string, us: number): Figure {
  return { name, value: `${round(us)} µs`, bound: '', result: '', goal: '', met: true, amounts: { ours: us } };
}
