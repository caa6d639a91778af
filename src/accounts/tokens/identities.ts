import { type Clock, type Repeated, repeat } from '../../platform/clock/clock.ts';
import { refuseCrossSite } from '../../platform/http/cross-origin.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { Owner, OwnerOf, WatchOwners } from '../../platform/identity/owner.ts';
import {
  type Credential,
  type Identify,
  isSignedToken,
  ownersSought,
  type PersonTokens,
  type Principal,
  type Role,
  type Scope,
} from '../../platform/identity/principal.ts';
import type { Batcher } from '../../platform/queue/batcher.ts';
import { readCookie, SESSION_COOKIE } from '../cookies.ts';
import { tokenKey } from '../flows.ts';
import { createHeldCredentials, READ_AGAIN_MS, type SessionCheck, tokenEnd } from '../login/session-check.ts';
import { holdsPermission, isRole, type PermissionMatrix } from '../permissions.ts';
import type { AccountsSettings } from '../settings.ts';
import type { AccessTokenRow } from '../storage/accounts-schema.ts';
import type { ChangedIds } from '../storage/guarded-writes.ts';
import type { AccessTokenStore, CredentialCheckStore } from '../storage/token-stores.ts';
import { createLiveCredentials, type NewCredential } from './live-credentials.ts';
import { namesIssuer, type SignedTokens } from './signed-tokens.ts';

/** What personal access tokens begin with. */
export const TOKEN_PREFIX = 'tpt_';
const SCOPES = ['bridge', 'completions', 'account', 'admin'] as const satisfies readonly Scope[];

/** Who sends requests, for all services of this program. */
export interface Identities {
  readonly identify: Identify;
  readonly personTokens: PersonTokens;
  /** Returns the token and its principal, for the guards of accounts; undefined for an unknown or expired token. */
  byToken(token: string): FoundToken | undefined | Promise<FoundToken | undefined>;
  /** Forgets the credentials that a change concerns, because they were read before it. */
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
  settings(): Pick<AccountsSettings, 'sessions'>;
  matrix(): Promise<PermissionMatrix>;
  publicUrl(): string;
  readonly clock: Pick<Clock, 'now' | 'monotonic' | 'after'>;
  /** How long a cached token is valid; without limit if no other instance writes to the store. */
  readonly freshMs: number;
  /** Records the use of tokens. */
  readonly used: Pick<Batcher<{ readonly id: string; readonly now: number }>, 'add'>;
  onError(error: unknown): void;
}

/** A cached credential, which is removed when something changes that it depends on. */
interface Held {
  readonly principal: Principal;
  readonly owner: Owner;
  /** Of the owner, when the principal was worked out. */
  readonly revision: number;
  /** The ids whose change removes it from the cache. */
  readonly names: readonly string[];
  readonly readAt: number;
  /** On the wall clock. */
  readonly endsAt: number;
}

interface HeldToken extends Held, FoundToken {
  notedAt: number;
}

interface NewPrincipal extends NewCredential {
  readonly granted: readonly Scope[];
  /** The team that everything done with it is for. */
  readonly team?: string;
}

/** Longer text cannot be a token, so no digest is computed for it. */
const MAX_TOKEN = 128;
const NOTED_EVERY_MS = 60_000;
const ADMIN_ROLES: ReadonlySet<string> = new Set(['root', 'admin', 'operator']);
const OF_LOGIN: readonly Scope[] = SCOPES;
/** The scopes of tokens for another bridge: `completions` lets it charge the caller. */
const PAYING_SCOPES: readonly Scope[] = ['completions'];
const FORWARDED_SCOPES: readonly Scope[] = ['bridge', 'completions', 'admin'];

export function createIdentities(options: IdentitiesOptions): Identities {
  const { checkSession, tokens, signed, credentials, owners, matrix, publicUrl, clock, freshMs, used } = options;
  const tokensHeld = createHeldCredentials<HeldToken>();
  const sessionsHeld = { bearer: createHeldCredentials<Held>(), cookie: createHeldCredentials<Held>() };
  let changes = 0;
  const live = createLiveCredentials(options.onError);
  const stopWatching = owners.watch(live.ownerChanged);
  const looking: Repeated = repeat({
    clock,
    // Logins also expire without a write, and their use has to be recorded.
    pauseMs: Math.min(freshMs, READ_AGAIN_MS),
    work: () => live.lookAtAll(),
    onError: options.onError,
  });

  /** Returns whether a cached credential is still valid. Checks the owner each time, because a trial may have ended. */
  function isCurrent({ owner, revision, readAt, endsAt }: Held, longestMs: number): boolean {
    return (
      clock.monotonic() - readAt < longestMs &&
      clock.now() < endsAt &&
      owners.ownerOf(owner.id) === owner &&
      owner.revision === revision &&
      owner.state === 'active'
    );
  }

  function note(found: HeldToken): void {
    const now = clock.now();
    if (now - found.notedAt < NOTED_EVERY_MS) return;
    found.notedAt = now;
    used.add({ id: found.row.id, now });
  }

  /**
   * Describes a caller. The credential also ends when its user may no longer see the work of everyone, because an open
   * socket would go on showing it.
   */
  function principalOf({ granted, team = '', ...given }: NewPrincipal, rules: PermissionMatrix): Principal {
    const { owner } = given;
    const stillCounts = async () => {
      if (!(await given.stillCounts())) return false;
      if (ownersSought(principal) !== undefined) return true;
      return ownersSought(describePrincipal({ owner, credential, granted, team }, await matrix())) === undefined;
    };
    const credential = live.create({ ...given, stillCounts });
    const principal = describePrincipal({ owner, credential, granted, team }, rules);
    return principal;
  }

  async function readToken(token: string): Promise<HeldToken | undefined> {
    const before = changes;
    const row = await tokens.byHash(tokenKey(token));
    const owner = row === undefined ? undefined : await owners.ownerOf(row.owner);
    const rules = await matrix();
    // A row that was read during a change may be older than the change.
    if (before !== changes) return readToken(token);
    if (row === undefined || row.expires_at <= clock.now() || owner?.state !== 'active') return undefined;
    // A token of a team ends when its owner leaves the team.
    if (row.team !== '' && !owner.teams.some(({ id }) => id === row.team)) return undefined;
    const names = [row.id, rawIdOf(owner.id)];
    const stillCounts = async () => (await byToken(token)) !== undefined;
    const granted = JSON.parse(row.scopes) as Scope[];
    const principal = principalOf({ id: row.id, owner, names, stillCounts, granted, team: row.team }, rules);
    const found = {
      row,
      owner,
      principal,
      names,
      revision: owner.revision,
      readAt: clock.monotonic(),
      endsAt: row.expires_at,
      notedAt: row.last_used_at ?? 0,
    };
    tokensHeld.keep(token, found);
    return found;
  }

  function byToken(token: string): FoundToken | undefined | Promise<FoundToken | undefined> {
    if (token.length > MAX_TOKEN) return undefined;
    const known = tokensHeld.get(token);
    if (known === undefined || !isCurrent(known, freshMs)) {
      tokensHeld.forget(token);
      return readToken(token).then((found) => {
        if (found !== undefined) note(found);
        return found;
      });
    }
    note(known);
    return known;
  }

  type As = Parameters<SessionCheck>[1];

  function bySession(token: string, as: As, head: RequestHead): Principal | Promise<Principal | undefined> {
    const held = sessionsHeld[as];
    const known = held.get(token);
    if (known !== undefined && isCurrent(known, READ_AGAIN_MS)) {
      if (as === 'cookie') refuseCrossSite(head, publicUrl());
      return known.principal;
    }
    held.forget(token);
    return readSession(token, as).then((principal) => {
      if (principal !== undefined && as === 'cookie') refuseCrossSite(head, publicUrl());
      return principal;
    });
  }

  async function readSession(token: string, as: As): Promise<Principal | undefined> {
    const before = changes;
    const user = await checkSession(token, as);
    const owner = user === undefined ? undefined : await owners.ownerOf(user.id);
    if (user === undefined || owner?.state !== 'active') return undefined;
    const { session_id: id, session_created_at: loggedInAt } = user;
    const names = [id, user.id];
    // Checks the owner too, because a trial may have ended, or a plan may have changed with the settings.
    const stillCounts = async () =>
      (await checkSession(token, as)) !== undefined && (await owners.ownerOf(owner.id))?.state === 'active';
    const { revision } = owner;
    const principal = principalOf({ id, owner, loggedInAt, names, stillCounts, granted: OF_LOGIN }, await matrix());
    // Where several instances share the store, a login that another one has ended must not count for one more request.
    // A row that was read during a change may be older than the change.
    if (freshMs === Number.POSITIVE_INFINITY && before === changes && revision === owner.revision) {
      const endsAt = tokenEnd(user, as, options.settings().sessions);
      const found = { principal, owner, revision, names, readAt: clock.monotonic(), endsAt };
      sessionsHeld[as].keep(token, found);
    }
    return principal;
  }

  /** A token for five minutes: it counts as long as the login or access token that it was issued for. */
  async function bySignature(token: string, from?: 'instance'): Promise<Principal | undefined> {
    const claims = await signed.read(token, from);
    const owner = claims === undefined ? undefined : await owners.ownerOf(claims.owner);
    if (claims === undefined || owner?.state !== 'active') return undefined;
    const { credential: id, team } = claims;
    const stillCounts = () => credentials.isLive({ id, owner: claims.owner, now: clock.now() });
    const isInTeam = team === '' || owner.teams.some((one) => one.id === team);
    if (!isInTeam || !(await stillCounts())) return undefined;
    const names = [id, rawIdOf(owner.id)];
    return principalOf({ id, owner, names, stillCounts, granted: claims.scopes, team }, await matrix());
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
      async forPayer({ owner: id, member }) {
        const owner = await owners.ownerOf(member ?? id);
        const team = member === undefined ? '' : rawIdOf(id);
        const isInTeam = team === '' || owner?.teams.some((one) => one.id === team) === true;
        if (owner?.state !== 'active' || !isInTeam) return undefined;
        // Issued for no login: it counts on other machines only.
        const credential: Credential = { id: '', owner, isLive: () => true, onEnd: () => () => undefined };
        const principal = describePrincipal({ owner, credential, granted: PAYING_SCOPES, team }, {});
        return (await signed.issue(principal, PAYING_SCOPES)).token;
      },
      async read(token, from) {
        if (from === undefined && !(await namesIssuer(token, publicUrl()))) return 'foreign';
        return (await bySignature(token, from)) ?? 'refused';
      },
    },
    byToken,
    changed(ids) {
      changes += 1;
      tokensHeld.changed(ids);
      sessionsHeld.bearer.changed(ids);
      sessionsHeld.cookie.changed(ids);
      live.changed(ids);
    },
    async stop() {
      stopWatching();
      await looking.stop();
    },
  };
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

/** Describes the caller: with the scopes of the token, as far as its owner may have them. */
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
