import { AppError } from '../platform/errors/app-error.ts';

/** Decides who may do what. All functions are pure: callers pass the matrix. */

export const ROLES = ['root', 'admin', 'operator', 'user', 'readonly'] as const;

export type Role = (typeof ROLES)[number];

/** Module -> role -> whether it is granted. Modules are the permission keys below, and the app's own. */
export type PermissionMatrix = Readonly<Record<string, Readonly<Record<string, boolean>>>>;

export const ADMIN_PERMISSIONS = [
  'admin.settings.read',
  'admin.settings.write',
  'admin.users.metrics.read',
  'admin.users.list.read',
  'admin.agents.status.read',
  'admin.users.pause.write',
  'admin.users.resume.write',
  'admin.users.delete.write',
  'admin.users.renew_uuid.write',
  'admin.users.role.write',
  'admin.blacklist.read',
  'admin.blacklist.write',
  'admin.audit.read',
  'admin.bridge.read',
] as const;

export type AdminPermission = (typeof ADMIN_PERMISSIONS)[number];

const NOT_FOR_OPERATORS: ReadonlySet<string> = new Set<AdminPermission>([
  'admin.users.delete.write',
  'admin.users.role.write',
]);
const ADMIN_KEYS: ReadonlySet<string> = new Set(ADMIN_PERMISSIONS);

/** Returns whether a role holds a permission key. No role holds an unknown key that starts with `admin.`. */
export function holdsPermission(role: string, key: string, matrix: PermissionMatrix): boolean {
  const stated = Object.hasOwn(matrix, key) ? matrix[key] : undefined;
  const granted = stated !== undefined && Object.hasOwn(stated, role) ? stated[role] : undefined;
  if (ADMIN_KEYS.has(key)) {
    if (role === 'root' || role === 'admin') return true;
    return role === 'operator' && (granted ?? !NOT_FOR_OPERATORS.has(key));
  }
  if (key.startsWith('admin.')) return false;
  return role === 'root' || (granted ?? (role === 'admin' && stated !== undefined));
}

/** Returns all keys that a role holds, as the user object lists them. */
export function permissionsOf(role: string, matrix: PermissionMatrix): string[] {
  const keys = new Set<string>([...ADMIN_PERMISSIONS, ...Object.keys(matrix)]);
  return [...keys].filter((key) => holdsPermission(role, key, matrix)).sort();
}

export function isRole(text: string): text is Role {
  return (ROLES as readonly string[]).includes(text);
}

/** Ranks of roles: a permission does not allow acting on a higher rank. */
const RANKS: Readonly<Record<Role, number>> = { root: 3, admin: 2, operator: 1, user: 0, readonly: 0 };

/** Returns whether a role may act on another: not on a higher one, so an operator cannot pause an administrator. */
export function mayActOn(actorRole: string, role: string): boolean {
  return rankOf(actorRole) >= rankOf(role);
}

/** Returns whether a role may assign another: never a higher one, and never root, which only set-up and commands assign. */
function mayAssign(actorRole: string, role: Role): boolean {
  return role !== 'root' && rankOf(actorRole) >= RANKS[role];
}

export function isAdminRole(role: string): boolean {
  return role === 'root' || role === 'admin';
}

export const ROLE_NAMES = ROLES.join(', ');

function rankOf(role: string): number {
  return isRole(role) ? RANKS[role] : 0;
}

/** Returns the role if the actor may assign it. Throws INVALID_ROLE for an unknown role and for root, otherwise FORBIDDEN. */
export function requireRole(role: string, actorRole: string): Role {
  if (!isRole(role)) throw unknownRole();
  if (role === 'root') throw new AppError('INVALID_ROLE', { reason: 'There is one root, and it is not given away.' });
  if (!mayAssign(actorRole, role)) throw new AppError('FORBIDDEN');
  return role;
}

export function unknownRole(): AppError {
  return new AppError('INVALID_ROLE', { reason: `There is no such role; use one of ${ROLE_NAMES}.` });
}
