/** What a chart draws of a figure, all in one unit. */
export interface Amounts {
  /** Missing where only the bound is shown. */
  readonly ours?: number;
  readonly bound?: number;
  /** Another program that does the same work. */
  readonly peer?: number;
  readonly goal?: number;
}

/** One line of a table: what was measured, what it is compared with, and the goal. */
export interface Figure {
  readonly name: string;
  readonly value: string;
  /** Measured beside it, in the same run: a bound, or a peer. */
  readonly bound: string;
  readonly result: string;
  /** Empty where a figure is only shown. */
  readonly goal: string;
  readonly met: boolean;
  readonly amounts: Amounts;
}

export interface Table {
  readonly title: string;
  readonly figures: readonly Figure[];
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2;
}

/** How far the middle half of the values lies apart, as a share of their median. */
export function spread(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number): number => sorted[Math.floor((sorted.length - 1) * share)] ?? Number.NaN;
  return (at(0.75) - at(0.25)) / median(values);
}

export interface RatioInput {
  readonly name: string;
  readonly unit: string;
  readonly ours: readonly number[];
  readonly bound: readonly number[];
  readonly goal: number;
  /** The other side is a peer, not a bound. */
  readonly isPeer?: boolean;
}

/** Ours as a share of the bound, round by round: rounds that lie side by side had the same weather. */
export function ratioFigure({ name, unit, ours, bound, goal, isPeer = false }: RatioInput): Figure {
  const ratios = ours.map((value, index) => value / (bound[index] ?? Number.NaN));
  const ratio = median(ratios);
  return {
    name,
    value: `${round(median(ours))} ${unit}`,
    bound: `${round(median(bound))} ${unit}`,
    result: `${ratio.toFixed(2)} (±${(spread(ratios) / 2).toFixed(2)})`,
    goal: `≥ ${goal}`,
    met: ratio >= goal,
    amounts: {
      ours: median(ours),
      ...(isPeer ? { peer: median(bound) } : { bound: median(bound) }),
      goal: goal * median(bound),
    },
  };
}

export interface LimitInput {
  readonly name: string;
  readonly unit: string;
  readonly value: number;
  readonly goal: number;
}

/** A figure that must not exceed a limit. */
export function limitFigure({ name, unit, value, goal }: LimitInput): Figure {
  return {
    name,
    value: `${round(value)} ${unit}`,
    bound: '',
    result: '',
    goal: `≤ ${goal} ${unit}`,
    met: value <= goal,
    amounts: { ours: value, goal },
  };
}

export function round(value: number): string {
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}
