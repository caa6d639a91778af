import type { RequestHead } from '../http/surface.ts';
import type { Bucket, Owner, OwnerTeam, Payer } from './owner.ts';

export type Role = 'root' | 'admin' | 'operator' | 'user' | 'readonly';

/** What a credential is good for: the services that it opens, and whether it may administer. */
export type Scope = 'bridge' | 'completions' | 'account' | 'admin';

/** Who is calling, the same in every service. */
export interface Principal {
  /** `main`, `review`, `node:<id>`, `user:<id>`, `service:<id>`, or `team:<id>` for a member at work for it. What it creates has this owner. */
  readonly id: string;
  readonly role: Role;
  /** Ids of the teams whose work (owner `team:<id>`) it shares. */
  readonly teams: readonly string[];
  /** The team that everything done with this credential is for. Absent: each call says whether it is for a team. */
  readonly team?: string;
  readonly scopes: ReadonlySet<Scope>;
  /** Whose limits and budgets apply to it, all of them. */
  readonly buckets: readonly Bucket[];
  /** The person who acts, where `id` is that of a team. */
  readonly member?: Principal;
  /** Whether it sees the work of every owner. Only the functions below read it. */
  readonly seesAll: boolean;
  /** The login or token that a person or a service account came with. Absent for static tokens and nodes. */
  readonly credential?: Credential;
}

/** A login or token of someone that can end at any moment. */
export interface Credential {
  readonly id: string;
  /** The one that it belongs to, as they are now. */
  readonly owner: Owner;
  /** When its person logged in, on the wall clock. Absent for access tokens, which nobody logs in with. */
  readonly loggedInAt?: number;
  /** False from the moment at which it was revoked or ended, or its owner was paused, left a team, or got another role, plan or limit. */
  isLive(): boolean;
  /** Calls the listener once, when the credential stops to be live. Returns a function that forgets the listener. */
  onEnd(listener: () => void): () => void;
}

/**
 * Finds out who sends a request. Undefined: it has no credential that is known here. A credential in `Authorization` counts
 * even when it is wrong: then the cookie is not looked at. With `token` cookies never count.
 */
export type Identify = (
  head: RequestHead,
  accepts: 'token' | 'token or cookie',
) => Principal | undefined | Promise<Principal | undefined>;

/** Tells another Trestle the caller of a forwarded call by a token for five minutes, never by the credential itself. */
export interface PersonTokens {
  /** A token of the principal. Undefined for static tokens and nodes. */
  issue(principal: Principal): string | undefined | Promise<string | undefined>;
  /** A token with which the completions of another Trestle charge a payer. Undefined: there is none for this payer now. */
  forPayer(payer: Payer): string | undefined | Promise<string | undefined>;
  /**
   * The principal of a token: `foreign` when its issuer is not known here, `refused` when it is, and the token does not count.
   * `instance`: another instance of the same database has sent it, which may issue tokens under an address of its own.
   */
  read(token: string, from?: 'instance'): Promise<Principal | 'foreign' | 'refused'>;
}

const FRESH_LOGIN_MS = 5 * 60_000;

/**
 * Whether a login proves who is there: an older one may have been left open somewhere (ASVS 7.5.1). A login that seems to
 * be in the future does not, because the clock was set back since, by an unknown time.
 */
export function isFreshLogin(loggedInAt: number, now: number): boolean {
  return Math.abs(now - loggedInAt) <= FRESH_LOGIN_MS;
}

const PREFIXES = ['tpt_', 'tsk_'];
const SIGNED = /^ey[\w-]+\.[\w-]+\.[\w-]*$/;

/** Whether a text has the form of a signed token (JWT). */
export function isSignedToken(text: string): boolean {
  return SIGNED.test(text);
}

/**
 * Whether a text looks like a credential that was made here. Where no credential is needed any word is accepted, except these:
 * one that was revoked or has ended must not open more than it did before.
 */
export function isOwnCredential(text: string): boolean {
  return PREFIXES.some((prefix) => text.startsWith(prefix)) || isSignedToken(text);
}

/** What changes something. */
export type Action = 'start' | 'message' | 'answer' | 'cancel' | 'undo' | 'close';

type Seer = Pick<Principal, 'id' | 'teams' | 'seesAll'>;

const ADMINISTRATORS: ReadonlySet<Role> = new Set(['root', 'admin']);
const TEAM = 'team:';

/** Whether a principal sees what an owner has. Used for sessions, turns, updates, jobs, artifacts, keys and usage alike. */
export function sees(principal: Seer, owner: string): boolean {
  return shares(principal, owner) || principal.seesAll;
}

/** Returns whether a principal may do something to an owner's objects. A principal cannot change objects that it cannot see. */
export function may(principal: Seer & Pick<Principal, 'role'>, action: Action, owner: string): boolean {
  const { role } = principal;
  if (role === 'readonly' || !sees(principal, owner)) return false;
  if (shares(principal, owner) || ADMINISTRATORS.has(role)) return true;
  return role === 'operator' && action === 'cancel';
}

/** The owners whose work a store is asked for on behalf of a principal, itself first. Undefined: all owners. */
export function ownersSought({ id, teams, seesAll }: Seer): readonly string[] | undefined {
  return seesAll ? undefined : [id, ...teams.map((team) => `${TEAM}${team}`)];
}

/** The id of the team that an owner is. Undefined: the owner is not a team. */
export function teamOf(owner: string): string | undefined {
  return owner.startsWith(TEAM) ? owner.slice(TEAM.length) : undefined;
}

/** A person at work for a team: what they start is the team's, the limits of both count, and only work of the team is seen. */
export function atWorkFor({ id, bucket }: OwnerTeam, person: Principal): Principal {
  const buckets = [...person.buckets, bucket];
  return { ...person, id: `${TEAM}${id}`, team: id, teams: [], buckets, seesAll: false, member: person };
}

/** Those whose limits count for what a principal does, each with their own: a person, and the team that they work for. */
export function countedFor({ id, buckets, member }: Pick<Principal, 'id' | 'buckets' | 'member'>) {
  if (member === undefined) return [{ id, buckets }];
  return [
    { id: member.id, buckets: member.buckets },
    { id, buckets: buckets.filter((bucket) => bucket.id === id) },
  ];
}

/** What a principal means by a name that several owners have given: its own, and only where it has none, what it sees. */
export function ownFirst<Thing extends { readonly owner: string }>(
  principal: Seer,
  things: readonly Thing[],
): readonly Thing[] {
  const own = things.filter(({ owner }) => owner === principal.id);
  return own.length > 0 ? own : things.filter(({ owner }) => sees(principal, owner));
}

function shares({ id, teams }: Pick<Seer, 'id' | 'teams'>, owner: string): boolean {
  return owner === id || (owner.startsWith(TEAM) && teams.includes(owner.slice(TEAM.length)));
}
