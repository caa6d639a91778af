import type { AccountsCore } from '../accounts-core.ts';
import { createUserCountStore, DAY_MS, dayOf, type UserCounts } from '../storage/user-store.ts';

/** The users who registered in one period, and what has become of them. */
export interface MetricsPoint extends UserCounts {
  readonly period: string;
}

export interface UserSeries {
  readonly daily: readonly MetricsPoint[];
  readonly weekly: readonly MetricsPoint[];
}

const DAYS = 30;
const WEEKS = 12;
const NONE: UserCounts = { total: 0, active: 0, subscribed: 0 };

/** The first day that `userSeries` looks at: the Monday of the first of its weeks. */
export function firstDayOfSeries(now: number): number {
  return mondayOf(dayOf(now)) - (WEEKS - 1) * 7;
}

/** Oldest first; the last point is the day, or the week, that is going on. Days are UTC, weeks ISO 8601. */
export function userSeries(counts: readonly (UserCounts & { readonly day: number })[], now: number): UserSeries {
  const byDay = new Map(counts.map((each) => [each.day, each]));
  const today = dayOf(now);
  const thisMonday = mondayOf(today);
  const daily = Array.from({ length: DAYS }, (_, index) => {
    const day = today - (DAYS - 1) + index;
    return { period: dayText(day), ...pick(byDay.get(day)) };
  });
  const weekly = Array.from({ length: WEEKS }, (_, index) => {
    const monday = thisMonday - (WEEKS - 1 - index) * 7;
    const days = Array.from({ length: 7 }, (_day, offset) => pick(byDay.get(monday + offset)));
    return { period: weekText(monday), ...days.reduce(sum, NONE) };
  });
  return { daily, weekly };
}

function pick({ total, active, subscribed }: UserCounts = NONE): UserCounts {
  return { total, active, subscribed };
}

function sum(left: UserCounts, right: UserCounts): UserCounts {
  return {
    total: left.total + right.total,
    active: left.active + right.active,
    subscribed: left.subscribed + right.subscribed,
  };
}

/** 1970 began on a Thursday. */
function mondayOf(day: number): number {
  return day - ((day + 3) % 7);
}

function dayText(day: number): string {
  return new Date(day * DAY_MS).toISOString().slice(0, 10);
}

/** `2030-W01`: the week belongs to the year that its Thursday is in. */
function weekText(monday: number): string {
  const thursday = monday + 3;
  const year = new Date(thursday * DAY_MS).getUTCFullYear();
  const firstDay = dayOf(Date.UTC(year, 0, 1));
  const week = Math.floor((thursday - firstDay) / 7) + 1;
  return `${year}-W${String(week).padStart(2, '0')}`;
}

/** How many users there are, and when they came (contract/accounts: admin/users/metrics). */
export async function userMetrics({ database, clock }: Pick<AccountsCore, 'database' | 'clock'>) {
  const counts = createUserCountStore(database);
  const now = clock.now();
  const [totals, byDay, recent] = await Promise.all([
    counts.totals(),
    counts.byDay(firstDayOfSeries(now)),
    counts.registeredSince(now - DAY_MS),
  ]);
  return {
    overview: {
      totalUsers: totals.total,
      activeUsers: totals.active,
      subscribedUsers: totals.subscribed,
      newUsersLast24h: recent,
    },
    series: userSeries(byDay, now),
  };
}
