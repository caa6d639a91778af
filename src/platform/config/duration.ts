const UNITS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 } as const;

/** What a duration looks like: a whole number and its unit. */
export const DURATION_PATTERN = '^\\d{1,12}(ms|s|m|h|d)$';

const DURATION = /^(\d{1,12})(ms|s|m|h|d)$/;

/** `30s` as milliseconds; undefined when it is no duration. */
export function parseDuration(text: string): number | undefined {
  const [, count, unit] = DURATION.exec(text) ?? [];
  if (count === undefined || unit === undefined) return undefined;
  const milliseconds = Number(count) * UNITS[unit as keyof typeof UNITS];
  return Number.isSafeInteger(milliseconds) ? milliseconds : undefined;
}

/** Milliseconds in the largest unit that holds them exactly: 90000 is `90s`. */
export function formatDuration(milliseconds: number): string {
  if (milliseconds === 0) return '0s';
  for (const [unit, size] of Object.entries(UNITS)) {
    if (milliseconds % size === 0) return `${milliseconds / size}${unit}`;
  }
  return `${milliseconds}ms`;
}
