import type { JSONWebKeySet, JWTVerifyGetKey } from 'jose';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { boundedFetch } from '../../platform/http/bounded-fetch.ts';
import { type Owner, type OwnerOf, ownerIdOf, type WatchOwners } from '../../platform/identity/owner.ts';
import {
  type Credential,
  type Identify,
  isSignedToken,
  type PersonTokens,
  type Principal,
} from '../../platform/identity/principal.ts';
import { describeTeam, isKnownPlan, isPerson, limitsOf, MAX_OWNERS, type PlanSettings, planBy } from '../owners.ts';
import type { PermissionMatrix } from '../permissions.ts';
import { describePrincipal } from '../tokens/identities.ts';
import { namesIssuer, type SignedClaims, type SignedTeam, verifySignedToken } from '../tokens/signed-tokens.ts';

/** The public keys of another Trestle, by which its tokens are checked. */
interface IssuerKeys {
  /** The key that a token names. Throws ISSUER_UNAVAILABLE while the keys are not known and cannot be read. */
  readonly keyOf: JWTVerifyGetKey;
  /** Reads the keys now, and returns how many there are. Throws an error with the reason. */
  read(): Promise<number>;
}

interface IssuerKeysOptions {
  /** Without a slash at the end. */
  readonly issuer: string;
  readonly clock: Pick<Clock, 'monotonic'>;
  /** Called when the keys could not be read. */
  onFailure?(error: unknown): void;
}

const TIMEOUT_MS = 5_000;
/** Keys are published for a day longer than they sign, so that this is far from too long. */
const KEPT_MS = 10 * 60_000;
/** A key that is not known may be new; it is looked for at most this often. */
const UNKNOWN_KEY_PAUSE_MS = 30_000;
/** After a failure, calls are refused for this long without another attempt. */
const FAILURE_PAUSE_MS = 5_000;

type LocalKeys = ReturnType<typeof import('jose').createLocalJWKSet>;

export function createIssuerKeys({ issuer, clock, onFailure = () => undefined }: IssuerKeysOptions): IssuerKeys {
  let known: { readonly keys: LocalKeys; readonly readAt: number } | undefined;
  let failedAt = Number.NEGATIVE_INFINITY;
  let reading: Promise<LocalKeys> | undefined;

  const age = (moment: number) => clock.monotonic() - moment;

  async function read(): Promise<LocalKeys> {
    const { createLocalJWKSet } = await import('jose');
    const url = `${issuer}/.well-known/jwks.json`;
    const headers = { accept: 'application/json' };
    const response = await boundedFetch(url, { headers, redirect: 'manual' }, { timeoutMs: TIMEOUT_MS });
    if (response.status !== 200) throw new Error(`it answered with status ${response.status}`);
    const keys = createLocalJWKSet((await response.json()) as JSONWebKeySet);
    known = { keys, readAt: clock.monotonic() };
    return keys;
  }

  /** Calls that come together share one read. */
  function readOnce(): Promise<LocalKeys> {
    if (age(failedAt) < FAILURE_PAUSE_MS) throw unavailable(issuer);
    reading ??= read()
      .catch((error: unknown) => {
        failedAt = clock.monotonic();
        onFailure(error);
        throw unavailable(issuer, error);
      })
      .finally(() => {
        reading = undefined;
      });
    return reading;
  }

  return {
    async keyOf(header, token) {
      const { errors } = await import('jose');
      const isFresh = known !== undefined && age(known.readAt) < KEPT_MS;
      const keys = isFresh && known !== undefined ? known.keys : await readOnce();
      try {
        return await keys(header, token);
      } catch (error) {
        const mayBeNew = known === undefined || age(known.readAt) >= UNKNOWN_KEY_PAUSE_MS;
        if (!(error instanceof errors.JWKSNoMatchingKey) || !mayBeNew) throw error;
        return (await readOnce())(header, token);
      }
    },
    async read() {
      const keys = await read();
      return keys.jwks().keys.length;
    },
  };
}

function unavailable(issuer: string, cause?: unknown): AppError {
  const details = { issuer, retryAfterSeconds: FAILURE_PAUSE_MS / 1000 };
  return new AppError('ISSUER_UNAVAILABLE', details, { cause });
}

/** The people of another Trestle (`accounts.issuer`), as their tokens describe them. */
export interface IssuedPeople {
  readonly identify: Identify;
  readonly owners: { readonly ownerOf: OwnerOf; readonly watch: WatchOwners };
  readonly personTokens: PersonTokens;
  reload(settings: PlanSettings): void;
}

interface IssuedPeopleOptions {
  readonly issuer: string;
  /** The plans of this machine: the token has the name of the plan, and what it includes is decided here. */
  readonly settings: PlanSettings;
  readonly clock: Pick<Clock, 'now' | 'monotonic' | 'after'>;
  /** Called when the keys of the issuer could not be read. */
  onFailure(error: unknown): void;
}

/** What tokens have said about someone. */
interface Facts {
  readonly plan: string;
  readonly teams: readonly SignedTeam[];
  readonly issuedAt: number;
}

interface Entry {
  readonly owner: Writable<Owner>;
  /** Undefined until a token of theirs was seen. */
  facts: Facts | undefined;
  /** By the team of the token (empty: none), the newest one that pays for models. */
  readonly paying: Map<string, { readonly token: string; readonly expiresAt: number }>;
}

interface Held {
  readonly claims: SignedClaims;
  readonly credential: Credential;
  readonly owner: Owner;
  readonly principal: Principal;
  /** Of the owner, when the principal was worked out. */
  readonly revision: number;
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

/** How far the clock of the issuer may differ from ours. */
const TOLERANCE_MS = 10_000;
const MAX_TOKENS = 10_000;
/** The token does not say what operators may read, so that they see their own work only. */
const MATRIX: PermissionMatrix = { 'admin.bridge.read': { operator: false } };

export function createIssuedPeople(options: IssuedPeopleOptions): IssuedPeople {
  const { clock } = options;
  const issuer = options.issuer.replace(/\/$/, '');
  let { settings } = options;
  const keys = createIssuerKeys({ issuer, clock, onFailure: options.onFailure });
  /** By the token, because a signature costs more than all other checks together. The oldest comes first. */
  const held = new Map<string, Held>();
  /** The token that each principal came with. */
  const tokens = new WeakMap<Principal, string>();
  const entries = new Map<string, Entry>();
  const listeners = new Set<(owner: Owner) => void>();

  function entryOf(id: string): Entry {
    const known = entries.get(id);
    if (known !== undefined) return known;
    const entry = {
      owner: { ...describeOwner(id, undefined, settings), revision: 0 },
      facts: undefined,
      paying: new Map(),
    };
    entries.set(id, entry);
    dropOldest(entries, MAX_OWNERS);
    return entry;
  }

  function update(entry: Entry): void {
    const { owner } = entry;
    const { revision, ...before } = owner;
    const next = describeOwner(owner.id, entry.facts, settings);
    if (JSON.stringify(before) === JSON.stringify(next)) return;
    Object.assign(owner, next, { revision: revision + 1 });
    for (const listener of listeners) listener(owner);
  }

  /** Takes over what a token says, unless a newer one was seen. */
  function learn({ owner: id, plan, teams, issuedAt }: SignedClaims): Owner {
    const entry = entryOf(id);
    if (entry.facts === undefined || entry.facts.issuedAt <= issuedAt) {
      entry.facts = { plan, teams, issuedAt };
      update(entry);
    }
    return entry.owner;
  }

  function keepPaying(token: string, { owner, scopes, team, expiresAt }: SignedClaims): void {
    const { paying } = entryOf(owner);
    if (!scopes.includes('completions') || expiresAt < (paying.get(team)?.expiresAt ?? 0)) return;
    for (const [name, old] of paying) if (old.expiresAt <= clock.now()) paying.delete(name);
    paying.set(team, { token, expiresAt });
  }

  function describe(token: string, claims: SignedClaims, owner: Owner, credential: Credential): Principal {
    const { scopes: granted, team, role: ownerRole } = claims;
    const principal = describePrincipal({ owner, ownerRole, credential, granted, team }, MATRIX);
    tokens.set(principal, token);
    held.delete(token);
    held.set(token, { claims, credential, owner, principal, revision: owner.revision });
    dropOldest(held, MAX_TOKENS);
    return principal;
  }

  async function verify(token: string): Promise<Principal | undefined> {
    // Tokens of others cause no call to the issuer.
    if (!(await namesIssuer(token, issuer))) return undefined;
    const expected = { issuer, now: clock.now(), toleranceMs: TOLERANCE_MS };
    const claims = await verifySignedToken(token, keys.keyOf, expected);
    if (claims === undefined || (claims.team !== '' && !claims.teams.some(({ id }) => id === claims.team)))
      return undefined;
    const owner = learn(claims);
    keepPaying(token, claims);
    return describe(token, claims, owner, createCredential(claims, owner, clock));
  }

  function read(token: string): Principal | undefined | Promise<Principal | undefined> {
    const known = held.get(token);
    if (known === undefined) return verify(token);
    if (!known.credential.isLive()) {
      held.delete(token);
      return undefined;
    }
    const { claims, owner, credential, principal, revision } = known;
    return owner.revision === revision ? principal : describe(token, claims, owner, credential);
  }

  return {
    identify(head) {
      const token = head.headers.authorization?.replace(/^bearer +/i, '') ?? '';
      return isSignedToken(token) ? read(token) : undefined;
    },
    owners: {
      ownerOf(given) {
        const id = ownerIdOf(given);
        return isPerson(id) ? entryOf(id).owner : undefined;
      },
      watch(listener) {
        listeners.add(listener);
        return () => void listeners.delete(listener);
      },
    },
    personTokens: {
      issue: (principal) => tokens.get(principal),
      forPayer({ owner, member }) {
        const paying = entries.get(member ?? owner)?.paying;
        // A token of a team pays for the work of that team alone, one without a team for everything.
        const team = member === undefined ? '' : owner.slice(owner.indexOf(':') + 1);
        const found = [paying?.get(team), paying?.get('')].filter((one) => one !== undefined);
        const [newest] = found.sort((one, other) => other.expiresAt - one.expiresAt);
        return newest !== undefined && clock.now() < newest.expiresAt ? newest.token : undefined;
      },
      async read(token) {
        if (!(await namesIssuer(token, issuer))) return 'foreign';
        const principal = await read(token);
        return principal === undefined ? 'refused' : vouchedFor(principal);
      },
    },
    reload(next) {
      settings = next;
      for (const entry of entries.values()) update(entry);
    },
  };
}

/** A token of someone, which ends by time alone. */
function createCredential(
  { credential: id, expiresAt }: SignedClaims,
  owner: Owner,
  clock: Pick<Clock, 'now' | 'after'>,
): Credential {
  const endsAt = expiresAt + TOLERANCE_MS;
  return {
    id,
    owner,
    isLive: () => clock.now() < endsAt,
    onEnd: (listener) => clock.after(Math.max(0, endsAt - clock.now()), listener),
  };
}

/** A principal for whom another node acts as long as its own caller is let in there: the end of the token ends nothing. */
function vouchedFor(principal: Principal): Principal {
  const { credential } = principal;
  if (credential === undefined) return principal;
  const { id, owner } = credential;
  return { ...principal, credential: { id, owner, isLive: () => true, onEnd: () => () => undefined } };
}

/**
 * An owner by what their tokens say. Before the first token, as after a restart, they have the default plan; agents go on
 * with what they were given by these people before.
 */
function describeOwner(id: string, facts: Facts | undefined, settings: PlanSettings): Omit<Owner, 'revision'> {
  /** A plan that is not known here is the default plan, for people and for teams: no plan would be no limit. */
  const known = (said: string) => (said === '' || isKnownPlan(said, settings) ? said : settings.default_plan);
  const name = known(facts?.plan ?? settings.default_plan);
  const plan = name === '' ? undefined : planBy(name, settings);
  return {
    id,
    state: 'active',
    role: '',
    plan: name,
    allowed: plan?.models,
    bridge: facts === undefined || name === '' || plan?.bridge === true,
    buckets: plan === undefined ? [] : [{ id, name: `the plan ${name}`, limits: limitsOf(plan) }],
    teams: (facts?.teams ?? []).map(({ id: team, plan: ofTeam, budget }) =>
      describeTeam({ id: team, name: team, plan: known(ofTeam), budget }, settings),
    ),
  };
}

function dropOldest(map: Map<string, unknown>, limit: number): void {
  const [oldest] = map.keys();
  if (map.size > limit && oldest !== undefined) map.delete(oldest);
}
