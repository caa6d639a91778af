import type { Budget } from '../../platform/identity/owner.ts';

/** The period that a moment belongs to, in UTC: `2030-01-31`, `2030-01` or `total`. */
export function periodOf(period: Budget['period'], now: number): string {
  if (period === 'total') return 'total';
  return dayOf(now).slice(0, period === 'day' ? 10 : 7);
}

/** `2030-01-31`, in UTC. */
export function dayOf(now: number): string {
  return new Date(now).toISOString().slice(0, 10);
}

/** How long until the period ends; undefined for one that never does. */
export function periodEndsAfterMs(period: Budget['period'], now: number): number | undefined {
  if (period === 'total') return undefined;
  const date = new Date(now);
  const [year, month, day] = [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()];
  return (period === 'day' ? Date.UTC(year, month, day + 1) : Date.UTC(year, month + 1, 1)) - now;
}
