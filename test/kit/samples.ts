/** Times of two kinds of call, in one unit. */
export interface Samples {
  readonly first: number[];
  readonly second: number[];
}

/** Both kinds `count` times, in an order that the seed decides: whatever else goes on falls on both alike. */
export async function takeSamples(
  count: number,
  random: () => number,
  first: (index: number) => Promise<number> | number,
  second: (index: number) => Promise<number> | number,
): Promise<Samples> {
  const samples: Samples = { first: [], second: [] };
  for (let index = 0; index < count; index += 1) {
    const isFirstNow = random() < 0.5;
    if (isFirstNow) samples.first.push(await first(index));
    samples.second.push(await second(index));
    if (!isFirstNow) samples.first.push(await first(index));
  }
  return samples;
}

export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

/** Welch's t of two kinds, without the slowest calls of both: those were interrupted, and say nothing about the code. */
export function welch({ first, second }: Samples, kept = 0.9): number {
  const limit = quantile([...first, ...second], kept);
  const [one, other] = [first, second].map((values) => momentsOf(values.filter((value) => value <= limit)));
  if (one === undefined || other === undefined) return Number.NaN;
  return (one.mean - other.mean) / Math.sqrt(one.variance / one.count + other.variance / other.count);
}

function momentsOf(values: readonly number[]): { mean: number; variance: number; count: number } {
  const count = values.length;
  const mean = values.reduce((sum, value) => sum + value, 0) / count;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (count - 1);
  return { mean, variance, count };
}
