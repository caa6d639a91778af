import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { UserCall } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { MatrixSettings } from '../contract/administration.ts';
import { ADMIN_PERMISSIONS, holdsPermission, isRole, type PermissionMatrix, ROLES } from '../permissions.ts';
import { createPermissionStore } from '../storage/administration-stores.ts';
import { createUserCountStore, DAY_MS, dayOf, type UserCounts } from '../storage/user-store.ts';

/** The users who registered in one period, and how many of them are active and subscribed now. */
interface MetricsPoint extends UserCounts {
  readonly period: string;
}

interface UserSeries {
  readonly daily: readonly MetricsPoint[];
  readonly weekly: readonly MetricsPoint[];
}

const DAYS = 30;
const WEEKS = 12;
const NONE: UserCounts = { total: 0, active: 0, subscribed: 0 };

/** Returns the first day of `userSeries`: the Monday of its first week. */
export function firstDayOfSeries(now: number): number {
  return mondayOf(dayOf(now)) - (WEEKS - 1) * 7;
}

/** Oldest first; the last point is the current day or week. Days are UTC, weeks ISO 8601. */
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

/** Counts the users, in total and by the period in which they registered. */
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

/** The permission matrix. */
export function createMatrixSettings({ database, audit, clock }: Pick<AccountsCore, 'database' | 'audit' | 'clock'>) {
  const store = createPermissionStore(database);

  async function read(): Promise<MatrixSettings> {
    const row = await store.read();
    return row === undefined ? { version: 0, matrix: {} } : { version: row.version, matrix: JSON.parse(row.matrix) };
  }

  return {
    read,
    /** Replaces the matrix, unless someone else has done so since. */
    async replace({ version, matrix }: MatrixSettings, { caller: { user }, head }: UserCall): Promise<MatrixSettings> {
      checkMatrix(matrix);
      const before = await read();
      if (before.version !== version) throw new AppError('VERSION_CONFLICT', { ...before });
      const permission = grantNotHeld(user.role, before.matrix, matrix);
      if (permission !== undefined) throw new AppError('PERMISSION_NOT_HELD', { permission });
      const details = { version: version + 1, diff: matrixDiff(before.matrix, matrix) };
      const entry = { event: 'matrix.changed', actor: user.id, subject: 'permission_matrix', head, details };
      try {
        await database.write([store.replace(JSON.stringify(matrix), version, clock.now()), audit.statement(entry)]);
      } catch (error) {
        throw errorCode(error) === 'STORAGE_CONFLICT' ? new AppError('VERSION_CONFLICT', { ...(await read()) }) : error;
      }
      return { version: version + 1, matrix };
    },
  };
}

const MODULE = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const MAX_MODULES = 500;
const ADMIN_KEYS: ReadonlySet<string> = new Set(ADMIN_PERMISSIONS);
/** Cells of this service's permission keys that cannot be changed. Only those of operators can. */
const FIXED: Readonly<Record<string, boolean>> = { root: true, admin: true, user: false, readonly: false };

/** Throws INVALID_MODULE or INVALID_ROLE. */
function checkMatrix(matrix: PermissionMatrix): void {
  const modules = Object.entries(matrix);
  if (modules.length > MAX_MODULES) {
    throw new AppError('INVALID_REQUEST', { reason: `the matrix has more than ${MAX_MODULES} modules` });
  }
  for (const [module, roles] of modules) {
    const isKnown = ADMIN_KEYS.has(module) || (MODULE.test(module) && !module.startsWith('admin.'));
    if (!isKnown) throw new AppError('INVALID_MODULE', { module: module.slice(0, 128) });
    for (const [role, granted] of Object.entries(roles)) checkCell(module, role, granted);
  }
}

function checkCell(module: string, role: string, granted: boolean): void {
  if (!isRole(role)) throw invalidRole(`There is no role "${role.slice(0, 64)}"; there are ${ROLES.join(', ')}.`);
  const fixed = ADMIN_KEYS.has(module) ? FIXED[role] : undefined;
  if (fixed === undefined || fixed === granted) return;
  throw invalidRole(`"${module}" can be given to operators and taken from them; for ${role} it is fixed.`);
}

/** The first permission that someone would gain and that `role`, who makes the change, does not hold. */
function grantNotHeld(role: string, before: PermissionMatrix, after: PermissionMatrix): string | undefined {
  if (role === 'root' || role === 'admin') return undefined;
  // Compares the resulting permissions, because an omitted cell restores its default.
  const keys = new Set<string>([...ADMIN_PERMISSIONS, ...Object.keys(before), ...Object.keys(after)]);
  return [...keys].find((key) => {
    const isGained = ROLES.some((each) => holdsPermission(each, key, after) && !holdsPermission(each, key, before));
    return isGained && !holdsPermission(role, key, before);
  });
}

/** Returns every cell that differs, for the audit log: module -> role -> [before, after]; null for an omitted cell. */
function matrixDiff(
  before: PermissionMatrix,
  after: PermissionMatrix,
): Record<string, Record<string, [boolean | null, boolean | null]>> {
  const diff: Record<string, Record<string, [boolean | null, boolean | null]>> = {};
  for (const module of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const changed = ROLES.flatMap((role) => {
      const cells: [boolean | null, boolean | null] = [cellOf(before, module, role), cellOf(after, module, role)];
      return cells[0] === cells[1] ? [] : [[role, cells] as const];
    });
    if (changed.length > 0) diff[module] = Object.fromEntries(changed);
  }
  return diff;
}

function cellOf(matrix: PermissionMatrix, module: string, role: string): boolean | null {
  const roles = Object.hasOwn(matrix, module) ? matrix[module] : undefined;
  return roles !== undefined && Object.hasOwn(roles, role) ? (roles[role] ?? null) : null;
}

function invalidRole(reason: string): AppError {
  return new AppError('INVALID_ROLE', { reason });
}
