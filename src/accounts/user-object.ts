import type { Clock } from '../platform/clock/clock.ts';
import type { User } from './contract/user.ts';
import { type PermissionMatrix, permissionsOf } from './permissions.ts';
import type { UserRow } from './storage/accounts-schema.ts';
import type { PermissionStore } from './storage/permission-store.ts';

export interface UserObjects {
  /** Read each time: a change of the matrix counts on the next request (contract/accounts, Rules: Admin). */
  matrix(): Promise<PermissionMatrix>;
  describe(user: UserRow): Promise<User>;
  describeAll(users: readonly UserRow[]): Promise<User[]>;
}

export function createUserObjects(store: PermissionStore, clock: Pick<Clock, 'now'>): UserObjects {
  async function matrix(): Promise<PermissionMatrix> {
    const row = await store.read();
    return row === undefined ? {} : (JSON.parse(row.matrix) as PermissionMatrix);
  }
  return {
    matrix,
    describe: async (user) => describeUser(user, await matrix(), clock.now()),
    async describeAll(users) {
      const current = await matrix();
      return users.map((user) => describeUser(user, current, clock.now()));
    },
  };
}

function describeUser(user: UserRow, matrix: PermissionMatrix, now: number): User {
  const { totp_issued_at: issued, totp_confirmed_at: confirmed, totp_locked_until: locked } = user;
  const totpEnabled = user.totp_secret !== null;
  return {
    id: user.id,
    uuid: user.id,
    name: user.name,
    username: user.name,
    email: user.email,
    emailVerified: user.email_verified === 1,
    mfaEnabled: totpEnabled,
    mfa: {
      totpEnabled,
      totpPending: user.totp_pending !== null,
      ...(issued === null ? {} : { totpSecretIssuedAt: timeText(issued) }),
      ...(confirmed === null ? {} : { totpConfirmedAt: timeText(confirmed) }),
      ...(locked > now ? { totpLockedUntil: timeText(locked) } : {}),
    },
    role: user.role,
    groups: JSON.parse(user.groups) as string[],
    permissions: permissionsOf(user.role, matrix),
    active: user.active === 1,
    proxyUuid: user.proxy_uuid,
    proxyUuidExpiresAt: user.proxy_uuid_expires_at === null ? null : timeText(user.proxy_uuid_expires_at),
    createdAt: timeText(user.created_at),
  };
}

/** RFC 3339, UTC. */
export function timeText(moment: number): string {
  return new Date(moment).toISOString();
}
