import { isRole, ROLES, type Role } from '../permissions.ts';

/** Who may act on whom, besides holding the permission for it. */
const RANKS: Readonly<Record<Role, number>> = { root: 3, admin: 2, operator: 1, user: 0, readonly: 0 };

/** Nobody acts on someone above them: an operator cannot pause an administrator, and nobody else root. */
export function mayActOn(actorRole: string, role: string): boolean {
  return rankOf(actorRole) >= rankOf(role);
}

/** Nobody gives a role above their own; root is given by the set-up and on the command line only. */
export function mayAssign(actorRole: string, role: Role): boolean {
  return role !== 'root' && rankOf(actorRole) >= RANKS[role];
}

export function isAdminRole(role: string): boolean {
  return role === 'root' || role === 'admin';
}

export const ROLE_NAMES = ROLES.join(', ');

function rankOf(role: string): number {
  return isRole(role) ? RANKS[role] : 0;
}
