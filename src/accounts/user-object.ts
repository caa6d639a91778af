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
  /** What the text that was read last says. Only the text is read each time. */
  let last: ReadMatrix = { text: '{}', matrix: {}, permissions: new Map() };

  async function current(): Promise<ReadMatrix> {
    const text = (await store.read())?.matrix ?? '{}';
    if (text !== last.text) last = { text, matrix: JSON.parse(text) as PermissionMatrix, permissions: new Map() };
    return last;
  }
  return {
    matrix: async () => (await current()).matrix,
    describe: async (user) => describeUser(user, permissionsIn(await current(), user.role), clock.now()),
    async describeAll(users) {
      const read = await current();
      return users.map((user) => describeUser(user, permissionsIn(read, user.role), clock.now()));
    },
  };
}

interface ReadMatrix {
  readonly text: string;
  readonly matrix: PermissionMatrix;
  readonly permissions: Map<string, string[]>;
}

/** Roles are few: each is worked out once. */
function permissionsIn({ matrix, permissions }: ReadMatrix, role: string): string[] {
  const known = permissions.get(role) ?? permissionsOf(role, matrix);
  permissions.set(role, known);
  return known;
}

function describeUser(user: UserRow, permissions: string[], now: number): User {
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
    permissions,
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
