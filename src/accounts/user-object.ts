import type { Clock } from '../platform/clock/clock.ts';
import type { User } from './contract/conventions.ts';
import { holdsPermission, type PermissionMatrix, permissionsOf } from './permissions.ts';
import type { FoundUser } from './storage/accounts-schema.ts';
import type { PermissionStore } from './storage/administration-stores.ts';
import type { LimitStore } from './storage/limit-store.ts';
import type { TeamStore } from './storage/team-store.ts';

export interface UserObjects {
  /** A change of the matrix counts on the next request. */
  matrix(): Promise<PermissionMatrix>;
  /** The matrix was written, or may have been: it is read again. */
  matrixChanged(): void;
  describe(user: FoundUser): User | Promise<User>;
  describeAll(users: readonly FoundUser[]): Promise<User[]>;
  /** As someone else sees them: the proxy UUID, which is a credential, is for those who may change users. */
  describeFor(viewer: { readonly id: string; readonly role: string }, users: readonly FoundUser[]): Promise<User[]>;
}

interface UserObjectsOptions {
  readonly store: PermissionStore;
  readonly limits: Pick<LimitStore, 'lockedUntil'>;
  readonly teams: Pick<TeamStore, 'namesOf'>;
  readonly clock: Pick<Clock, 'now'>;
  /** Others write to the store too: the matrix is read for each request. */
  readonly isShared: boolean;
}

export function createUserObjects({ store, limits, teams, clock, isShared }: UserObjectsOptions): UserObjects {
  /** The matrix that was read last. If other instances write too, its text is read each time, and parsed only after a change. */
  let last: ReadMatrix = { text: '{}', matrix: {}, permissions: new Map() };
  let isCurrent = false;
  let changes = 0;

  async function current(): Promise<ReadMatrix> {
    if (isCurrent) return last;
    const before = changes;
    const text = (await store.read())?.matrix ?? '{}';
    if (text !== last.text) last = { text, matrix: JSON.parse(text) as PermissionMatrix, permissions: new Map() };
    // A matrix that was read during a change may be older than the change.
    isCurrent = !isShared && before === changes;
    return last;
  }
  /** Reads locks only for users with a second factor, because no one else can have a locked one. */
  function lockedOf(users: readonly FoundUser[]): Promise<ReadonlyMap<string, number>> {
    const enrolled = users.filter(({ totp_state: state }) => state !== null).map(({ id }) => id);
    return limits.lockedUntil('second_factor', enrolled, clock.now());
  }
  /** Descriptions of users without teams and second factor: for an unchanged row, only the matrix can change them. */
  const described = new WeakMap<FoundUser, { readonly read: ReadMatrix; readonly user: User }>();
  function describeAlone(user: FoundUser, read: ReadMatrix): User {
    const known = described.get(user);
    if (known?.read === read) return known.user;
    const fresh = describeUser(user, permissionsIn(read, user.role), [], undefined);
    described.set(user, { read, user: fresh });
    return fresh;
  }
  const groupsOf = (users: readonly FoundUser[]) =>
    teams.namesOf(users.filter((user) => user.teams > 0).map(({ id }) => id));
  async function describeAll(users: readonly FoundUser[]): Promise<User[]> {
    const read = await current();
    const [locked, groups] = await Promise.all([lockedOf(users), groupsOf(users)]);
    return users.map((user) =>
      describeUser(user, permissionsIn(read, user.role), groups.get(user.id) ?? [], locked.get(user.id)),
    );
  }
  return {
    matrix: async () => (await current()).matrix,
    matrixChanged() {
      changes += 1;
      isCurrent = false;
    },
    describe(user) {
      if (isCurrent && user.teams === 0 && user.totp_state === null) return describeAlone(user, last);
      return describeAll([user]).then(([only]) => only as User);
    },
    describeAll,
    async describeFor(viewer, users) {
      const described = await describeAll(users);
      if (holdsPermission(viewer.role, 'admin.users.role.write', (await current()).matrix)) return described;
      return described.map((user) =>
        user.id === viewer.id ? user : { ...user, proxyUuid: null, proxyUuidExpiresAt: null },
      );
    },
  };
}

interface ReadMatrix {
  readonly text: string;
  readonly matrix: PermissionMatrix;
  readonly permissions: Map<string, string[]>;
}

/** Computes the permissions of each role once. */
function permissionsIn({ matrix, permissions }: ReadMatrix, role: string): string[] {
  const known = permissions.get(role) ?? permissionsOf(role, matrix);
  permissions.set(role, known);
  return known;
}

function describeUser(user: FoundUser, permissions: string[], groups: string[], lockedUntil: number | undefined): User {
  const { totp_issued_at: issued, totp_confirmed_at: confirmed } = user;
  const totpEnabled = user.totp_state === 'active';
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
      totpPending: user.totp_state === 'pending',
      ...(issued === null ? {} : { totpSecretIssuedAt: timeText(issued) }),
      ...(confirmed === null ? {} : { totpConfirmedAt: timeText(confirmed) }),
      ...(lockedUntil === undefined ? {} : { totpLockedUntil: timeText(lockedUntil) }),
    },
    role: user.role,
    groups,
    permissions,
    active: user.active === 1,
    proxyUuid: user.proxy_uuid,
    proxyUuidExpiresAt: user.proxy_uuid_expires_at === null ? null : timeText(user.proxy_uuid_expires_at),
    createdAt: timeText(user.created_at),
    ...(user.closing_at === null ? {} : { deletesAt: timeText(user.closing_at) }),
  };
}

/** RFC 3339, UTC. */
export function timeText(moment: number): string {
  return new Date(moment).toISOString();
}
