import { type Figure, limitFigure, median, ratioFigure, round, type Table } from '../report/figure.ts';
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
  /** At least this share of the rate of the bound. */
  readonly rate?: number;
  /** Microseconds of the main thread by area. Areas that the bound has as well are held to what the bound takes for them. */
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

function totalFigures(unit: string, ours: Measured, bound: Bound | undefined, { added, rate }: Goals): Figure[] {
  const name = `processor time of one ${unit}, all threads`;
  if (bound === undefined) return [amountFigure(name, median(ours.all))];
  const over = median(ours.all.map((us, index) => us - (bound.all[index] ?? Number.NaN)));
  const rates = { ours: ours.perSecond, bound: bound.perSecond };
  const total: Figure = {
    ...amountFigure(`${name}, against ${bound.name}`, median(ours.all)),
    bound: `${round(median(bound.all))} µs`,
    result: `${over < 0 ? '' : '+'}${round(over)} µs`,
    amounts: { ours: median(ours.all), bound: median(bound.all) },
  };
  return [
    added === undefined ? total : { ...total, goal: `≤ +${added} µs`, met: over <= added },
    ...(rate === undefined
      ? []
      : [ratioFigure({ name: `${unit}s a second, against ${bound.name}`, unit: `${unit}s/s`, ...rates, goal: rate })]),
  ];
}

function areaFigure(area: string, us: number, bound: Bound | undefined, goals: Goals): Figure {
  const own = goals.areas?.[area];
  const boundShare = bound?.shares?.get(area);
  const ofBound = bound === undefined || boundShare === undefined ? undefined : boundShare * median(bound.main);
  const goal = own ?? (goals.areas !== undefined && SHARED_AREAS.has(area) ? ofBound : undefined);
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
