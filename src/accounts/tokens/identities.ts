import { type Clock, type Repeated, repeat } from '../../platform/clock/clock.ts';
import { refuseCrossSite } from '../../platform/http/cross-origin.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { Owner, OwnerOf, WatchOwners } from '../../platform/identity/owner.ts';
import {
  type Credential,
  type Identify,
  isSignedToken,
  type PersonTokens,
  type Principal,
  type Role,
  type Scope,
} from '../../platform/identity/principal.ts';
import type { Batcher } from '../../platform/queue/batcher.ts';
import { readCookie, SESSION_COOKIE } from '../cookies.ts';
import { tokenKey } from '../flows.ts';
import type { SessionCheck } from '../login/session-check.ts';
import { holdsPermission, isRole, type PermissionMatrix } from '../permissions.ts';
import type { AccessTokenRow } from '../storage/accounts-schema.ts';
import type { AccessTokenStore, CredentialCheckStore } from '../storage/token-stores.ts';
import type { ChangedIds } from '../storage/watched-database.ts';
import { createLiveCredentials } from './live-credentials.ts';
import { namesIssuer, type SignedTokens } from './signed-tokens.ts';

/** What personal access tokens begin with. */
export const TOKEN_PREFIX = 'tpt_';
export const SCOPES = ['bridge', 'completions', 'account', 'admin'] as const satisfies readonly Scope[];

/** Who sends requests, for all services of this program. */
export interface Identities {
  readonly identify: Identify;
  readonly personTokens: PersonTokens;
  /** The token and its principal, for the guards of accounts. Undefined: nobody's, or not any more. */
  byToken(token: string): FoundToken | undefined | Promise<FoundToken | undefined>;
  /** Something that decides about logins and tokens was written: nothing that was read before it counts. */
  changed(ids: ChangedIds): void;
  stop(): Promise<void>;
}

export interface FoundToken {
  readonly row: AccessTokenRow;
  readonly principal: Principal;
}

interface IdentitiesOptions {
  readonly checkSession: SessionCheck;
  readonly tokens: Pick<AccessTokenStore, 'byHash'>;
  readonly signed: Pick<SignedTokens, 'read' | 'issue'>;
  readonly credentials: CredentialCheckStore;
  readonly owners: { readonly ownerOf: OwnerOf; readonly watch: WatchOwners };
  matrix(): Promise<PermissionMatrix>;
  publicUrl(): string;
  readonly clock: Pick<Clock, 'now' | 'monotonic' | 'after'>;
  /** How long what was read holds; for ever where nobody else writes to the store. */
  readonly freshMs: number;
  /** Takes note of tokens that were used. */
  readonly used: Pick<Batcher<{ readonly id: string; readonly now: number }>, 'add'>;
  onError(error: unknown): void;
}

interface Held extends FoundToken {
  readonly owner: Owner;
  /** Of the owner, when the principal was worked out. */
  readonly revision: number;
  readonly readAt: number;
  notedAt: number;
}

const MAX_HELD = 10_000;
/** Longer than any token of ours: not worth a digest. */
const LONGEST_TOKEN = 128;
const NOTED_EVERY_MS = 60_000;
/** Logins also end by time, which nobody writes. */
const LOOK_EVERY_MS = 15_000;
const ADMIN_ROLES: ReadonlySet<string> = new Set(['root', 'admin', 'operator']);
const OF_LOGIN: readonly Scope[] = SCOPES;
/** What another bridge needs to know of a caller. */
const FORWARDED_SCOPES: readonly Scope[] = ['bridge', 'admin'];

export function createIdentities(options: IdentitiesOptions): Identities {
  const { checkSession, tokens, signed, credentials, owners, matrix, publicUrl, clock, freshMs, used } = options;
  /** By the token itself, because a digest costs more than all other checks together. The oldest comes first. */
  const held = new Map<string, Held>();
  /** By the ids of tokens and owners, the tokens to forget when those change. */
  const byName = new Map<string, Set<string>>();
  let changes = 0;
  const live = createLiveCredentials(options.onError);
  const stopWatching = owners.watch(live.ownerChanged);
  const looking: Repeated = repeat({
    clock,
    pauseMs: Math.min(freshMs, LOOK_EVERY_MS),
    work: () => live.lookAtAll(),
    onError: options.onError,
  });

  /** Whether what is held still counts. The owner is asked for each time: a trial may have ended. */
  function isCurrent({ row, owner, revision, readAt }: Held): boolean {
    return (
      clock.monotonic() - readAt < freshMs &&
      clock.now() < row.expires_at &&
      owners.ownerOf(owner.id) === owner &&
      owner.revision === revision &&
      owner.state === 'active'
    );
  }

  function note(found: Held): void {
    const now = clock.now();
    if (now - found.notedAt < NOTED_EVERY_MS) return;
    found.notedAt = now;
    used.add({ id: found.row.id, now });
  }

  async function readToken(token: string): Promise<Held | undefined> {
    const before = changes;
    const row = await tokens.byHash(tokenKey(token));
    const owner = row === undefined ? undefined : await owners.ownerOf(row.owner);
    const rules = await matrix();
    // What was read while something changed may be older than the change.
    if (before !== changes) return readToken(token);
    if (row === undefined || row.expires_at <= clock.now() || owner?.state !== 'active') return undefined;
    // A token of a team is of no use to someone who has left it.
    if (row.team !== '' && !owner.teams.some(({ id }) => id === row.team)) return undefined;
    const credential = live.create({
      id: row.id,
      owner,
      names: [row.id, rawIdOf(owner.id)],
      stillCounts: async () => (await byToken(token)) !== undefined,
    });
    const scopes = JSON.parse(row.scopes) as Scope[];
    const principal = describePrincipal({ owner, credential, granted: scopes, team: row.team }, rules);
    const found = {
      row,
      owner,
      principal,
      revision: owner.revision,
      readAt: clock.monotonic(),
      notedAt: row.last_used_at ?? 0,
    };
    keep(token, found);
    return found;
  }

  function keep(token: string, found: Held): void {
    forget(token);
    held.set(token, found);
    for (const name of namesOf(found)) byName.set(name, (byName.get(name) ?? new Set<string>()).add(token));
    const [oldest] = held.keys();
    if (held.size > MAX_HELD && oldest !== undefined) forget(oldest);
  }

  function forget(token: string): void {
    const known = held.get(token);
    if (known === undefined) return;
    held.delete(token);
    for (const name of namesOf(known)) {
      const named = byName.get(name);
      if (named?.delete(token) && named.size === 0) byName.delete(name);
    }
  }

  function byToken(token: string): FoundToken | undefined | Promise<FoundToken | undefined> {
    if (token.length > LONGEST_TOKEN) return undefined;
    const known = held.get(token);
    if (known === undefined || !isCurrent(known)) {
      forget(token);
      return readToken(token).then((found) => {
        if (found !== undefined) note(found);
        return found;
      });
    }
    note(known);
    return known;
  }

  async function bySession(token: string, as: 'bearer' | 'cookie', head: RequestHead): Promise<Principal | undefined> {
    const user = await checkSession(token, as);
    const owner = user === undefined ? undefined : await owners.ownerOf(user.id);
    if (user === undefined || owner?.state !== 'active') return undefined;
    if (as === 'cookie') refuseCrossSite(head, publicUrl());
    const credential = live.create({
      id: user.session_id,
      owner,
      names: [user.session_id, user.id],
      stillCounts: async () => (await checkSession(token, as)) !== undefined,
    });
    return describePrincipal({ owner, credential, granted: OF_LOGIN }, await matrix());
  }

  /** A token for five minutes: it counts as long as the login or access token that it was issued for. */
  async function bySignature(token: string): Promise<Principal | undefined> {
    const claims = await signed.read(token);
    const owner = claims === undefined ? undefined : await owners.ownerOf(claims.owner);
    if (claims === undefined || owner?.state !== 'active') return undefined;
    const { credential: id, team } = claims;
    const stillCounts = () => credentials.isLive({ id, owner: claims.owner, now: clock.now() });
    const isInTeam = team === '' || owner.teams.some((one) => one.id === team);
    if (!isInTeam || !(await stillCounts())) return undefined;
    const credential = live.create({ id, owner, names: [id, rawIdOf(owner.id)], stillCounts });
    return describePrincipal({ owner, credential, granted: claims.scopes, team }, await matrix());
  }

  return {
    identify(head, accepts) {
      const { authorization } = head.headers;
      if (authorization !== undefined) {
        const token = authorization.replace(/^bearer +/i, '');
        if (isSignedToken(token)) return bySignature(token);
        if (!token.startsWith(TOKEN_PREFIX)) return bySession(token, 'bearer', head);
        const found = byToken(token);
        return found instanceof Promise ? found.then((one) => one?.principal) : found?.principal;
      }
      if (accepts === 'token') return undefined;
      const cookie = readCookie(head, SESSION_COOKIE);
      return cookie === '' ? undefined : bySession(cookie, 'cookie', head);
    },
    personTokens: {
      async issue(principal) {
        if (principal.credential === undefined) return undefined;
        const scopes = FORWARDED_SCOPES.filter((scope) => principal.scopes.has(scope));
        return (await signed.issue(principal, scopes)).token;
      },
      async read(token) {
        if (!(await namesIssuer(token, publicUrl()))) return 'foreign';
        return (await bySignature(token)) ?? 'refused';
      },
    },
    byToken,
    changed(ids) {
      changes += 1;
      if (ids === 'all') {
        held.clear();
        byName.clear();
      } else {
        for (const id of ids) for (const token of [...(byName.get(String(id)) ?? [])]) forget(token);
      }
      live.changed(ids);
    },
    async stop() {
      stopWatching();
      await looking.stop();
    },
  };
}

function namesOf({ row, owner }: Held): readonly string[] {
  return [row.id, rawIdOf(owner.id)];
}

/** `usr_...` of `user:usr_...`: what rows of other tables name. */
function rawIdOf(owner: string): string {
  return owner.slice(owner.indexOf(':') + 1);
}

interface Described {
  readonly owner: Owner;
  /** That of the owner, unless the credential itself says it. */
  readonly ownerRole?: string;
  readonly credential: Credential;
  readonly granted: readonly Scope[];
  readonly team?: string;
}

/** A token is good for what it was made for, as far as its owner may do that at all. */
export function describePrincipal(
  { owner, ownerRole: said = owner.role, credential, granted, team = '' }: Described,
  matrix: PermissionMatrix,
): Principal {
  const ownerRole: Role = isRole(said) ? said : 'readonly';
  const scopes = new Set(granted);
  if (!owner.bridge) scopes.delete('bridge');
  if (!ADMIN_ROLES.has(ownerRole)) scopes.delete('admin');
  // Without the scope, the token of an administrator acts as that of anyone.
  const role = scopes.has('admin') || ownerRole === 'readonly' ? ownerRole : 'user';
  return {
    id: owner.id,
    role,
    teams: owner.teams.map(({ id }) => id),
    ...(team !== '' && { team }),
    scopes,
    buckets: owner.buckets,
    seesAll: scopes.has('admin') && holdsPermission(role, 'admin.bridge.read', matrix),
    credential,
  };
}
