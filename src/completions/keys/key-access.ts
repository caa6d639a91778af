import type { Clock } from '../../platform/clock/clock.ts';
import type { Randomness } from '../../platform/clock/randomness.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { FailureThrottle, NotedFailure } from '../../platform/http/failure-throttle.ts';
import { bearerToken, type Guard, type RequestHead } from '../../platform/http/surface.ts';
import { type Bucket, type Owner, type OwnerOf, type Payer, payerName } from '../../platform/identity/owner.ts';
import { type Identify, isOwnCredential, type Principal, teamOf } from '../../platform/identity/principal.ts';
import { createSecretMatcher, createToken } from '../../platform/secrets/tokens.ts';
import type { TraceContext } from '../../platform/telemetry/spans.ts';
import type { CompletionsSettings } from '../settings.ts';
import { type CallTally, createCallTally, INTERNAL_ID, type KeyHolder, seesAll } from './admission.ts';
import type { Budgets } from './budgets.ts';
import { type FoundKey, type KeyLookup, TAGS_HEADER, withOwner, withTags, withTrace } from './issued-key.ts';
import { KEY_PREFIX, keyDigest } from './key-register.ts';

export interface KeyAccess {
  /** Returns the holder of the key in a request. */
  readonly withKey: Guard<KeyHolder>;
  /** As `withKey`, but only for the master key, or for anybody while none is configured. */
  readonly withMasterKey: Guard<KeyHolder>;
  /** As `withMasterKey`, and for people who see the work of everyone. */
  readonly withOperator: Guard<KeyHolder>;
  /**
   * What another part of this program works with on behalf of an owner: their plan and their budget, and for work of a team
   * also those of the member. An owner who is nobody here, such as the operator, has no limits. Throws INVALID_API_KEY when
   * the owner is not active, and NOT_IN_TEAM when the member has left.
   */
  forOwner(payer: Payer): Promise<KeyHolder>;
  /** Returns a key for programs of an owner. It is valid until this program ends, and is not stored. */
  temporaryKey(payer: Payer): string;
  /** Returns a key for one program of an owner. It is valid until `end`. */
  keyForProgram(payer: Payer): ProgramKey;
  /** As `withMasterKey`, and for people, who manage keys of their own. */
  readonly withOwnKeys: Guard<KeyHolder>;
  isOpen(): boolean;
  reload(settings: Pick<CompletionsSettings, 'master_key'>): void;
}

export interface ProgramKey extends Pick<CallTally, 'meter'> {
  readonly key: string;
  /** Makes later calls with the key part of this trace, unless they name another one. */
  follow(trace: TraceContext | undefined): void;
  end(): void;
}

export interface KeyAccessOptions {
  readonly settings: Pick<CompletionsSettings, 'master_key'> & Partial<Pick<CompletionsSettings, 'tag_budgets'>>;
  readonly lookup: KeyLookup;
  readonly budgets: Budgets;
  readonly throttle: FailureThrottle;
  readonly clock: Pick<Clock, 'now'>;
  readonly randomness: Pick<Randomness, 'bytes'>;
  /** Finds the owner of a key. Undefined: there are no owners here, and a key has only its own limits. */
  readonly ownerOf?: OwnerOf | undefined;
  /** Finds the person or service account that sends a request. Undefined: there are none here, only keys. */
  readonly identify?: Identify | undefined;
  /** Called once when an address has sent too many wrong keys. */
  onFlood(address: string): void;
}

const MASTER: KeyHolder = { id: 'master', owner: '', isMaster: true, mayUse: () => true, buckets: [] };
const ANYBODY: KeyHolder = { ...MASTER, id: 'open' };
/** The keys in use are few. One that was never found is not kept. */
const MAX_DIGESTS = 1000;
/** Says which team a call is for. */
const TEAM_HEADER = 'x-team';
/** What calls with a login are recorded under; calls with an access token have the id of the token. */
const LOGIN_ID = 'login';
/** Another part of this program. */
export const INTERNAL: KeyHolder = { ...MASTER, id: INTERNAL_ID };

export function createKeyAccess(options: KeyAccessOptions): KeyAccess {
  const { lookup, budgets, throttle, clock, ownerOf, identify, onFlood } = options;
  const tagBuckets = new Map(
    Object.entries(options.settings.tag_budgets ?? {}).map(([tag, budget]): [string, Bucket] => [
      tag,
      { id: `tag:${tag}`, name: `the tag ${tag}`, limits: { budget } },
    ]),
  );
  let masterKey = options.settings.master_key;
  let isMasterKey = createSecretMatcher(masterKey);
  /**
   * Digests of keys that were found, by the key, because a digest costs more than all other checks together. A lookup
   * reveals nothing to a stranger: a map compares hashes with a secret seed before it compares texts.
   */
  const digests = new Map<string, string>();

  /** Credentials of people, which are not the master key: to compare them with it again would cost another digest. */
  const ofPeople = new Set<string>();

  function digestOf(given: string): string {
    return digests.get(given) ?? keyDigest(given);
  }

  function keepDigest(given: string, digest: string): void {
    if (digests.size >= MAX_DIGESTS) digests.clear();
    digests.set(given, digest);
  }

  function keepPerson(given: string): void {
    if (ofPeople.size >= MAX_DIGESTS) ofPeople.clear();
    ofPeople.add(given);
  }

  function refuse(head: RequestHead): Promise<never> {
    const refuseNoted = ({ retryAfterSeconds, firstOverLimit }: NotedFailure): never => {
      if (firstOverLimit) onFlood(head.address);
      throw new AppError('INVALID_API_KEY', retryAfterSeconds === undefined ? {} : { retryAfterSeconds });
    };
    const noted = throttle.note(head.address);
    return noted instanceof Promise ? noted.then(refuseNoted) : refuseNoted(noted);
  }

  function enter(head: RequestHead, found: FoundKey | undefined): KeyHolder | Promise<KeyHolder> {
    if (found === undefined || (found.expiresAt !== undefined && found.expiresAt <= clock.now())) return refuse(head);
    const { owner: ownerId } = found.holder;
    const owner = ownerId === '' ? undefined : ownerOf?.(ownerId);
    const team = teamFor(head, found);
    const isWrite = writes(head);
    return owner instanceof Promise
      ? owner.then((person) => prepare(found, person, team, isWrite))
      : prepare(found, owner, team, isWrite);
  }

  /** Keys that are not stored, and by owner, the one that was made. */
  const temporaryKeys = new Map<string, FoundKey>();
  const temporaryKeyOf = new Map<string, string>();
  /** By key of a program, the trace that its calls are part of. */
  const followed = new Map<string, TraceContext>();

  /** A member's calls for a team are those of a key that is bound to the team. */
  function keyFor({ owner, member }: Payer): FoundKey {
    const holder = { ...INTERNAL, owner: member ?? owner, isMaster: false };
    const team = member === undefined ? {} : { team: teamOf(owner) ?? '' };
    return { holder, expiresAt: undefined, ofTeams: new Map(), ...team };
  }

  function makeTemporaryKey(payer: Payer, tally?: CallTally): string {
    const key = createToken(options.randomness, KEY_PREFIX);
    const found = keyFor(payer);
    temporaryKeys.set(key, tally === undefined ? found : { ...found, holder: { ...found.holder, tally } });
    return key;
  }

  /** By principal, what it holds, as a key that nobody had to create. */
  const held = new WeakMap<Principal, FoundKey>();

  /** Admits a caller with a login or an access token instead of a key. */
  function admit(head: RequestHead, principal: Principal): KeyHolder | Promise<KeyHolder> {
    const { credential, scopes, role } = principal;
    const isWrite = writes(head);
    if (credential === undefined || !scopes.has('completions') || (role === 'readonly' && isWrite)) {
      throw new AppError('FORBIDDEN');
    }
    let found = held.get(principal);
    if (found === undefined) {
      const id = credential.id.startsWith('tok_') ? credential.id : LOGIN_ID;
      const holder = { id, owner: principal.id, isMaster: false, mayUse: () => true, buckets: [], principal };
      const team = principal.team === undefined ? {} : { team: principal.team };
      found = { holder, expiresAt: undefined, ofTeams: new Map(), ...team };
      held.set(principal, found);
    }
    return prepare(found, credential.owner, teamFor(head, found), isWrite);
  }

  /** Finds the holder of a credential that is not an issued key: the master key, a person's credential, or any text while no key is configured. */
  function withOther(head: RequestHead, given: string): KeyHolder | Promise<KeyHolder> {
    if (!ofPeople.has(given) && isMasterKey(given)) return forNoTeam(head, MASTER);
    const known = identify?.(withBearer(head, given), 'token or cookie');
    if (known instanceof Promise) return known.then((principal) => enterAs(head, given, principal));
    return enterAs(head, given, known);
  }

  function enterAs(head: RequestHead, given: string, principal: Principal | undefined) {
    if (principal !== undefined) {
      if (given !== '' && !ofPeople.has(given)) keepPerson(given);
      return admit(head, principal);
    }
    // Many clients must send a key: while none is configured any word is accepted, except one that is a credential of ours.
    return masterKey === '' && !isOwnCredential(given) ? forNoTeam(head, ANYBODY) : refuse(head);
  }

  /** Refuses the header `x-team` for callers without an account. Without accounts, the header is ignored. */
  function forNoTeam(head: RequestHead, holder: KeyHolder): KeyHolder {
    const team = head.headers[TEAM_HEADER];
    if (ownerOf !== undefined && typeof team === 'string')
      throw new AppError('NOT_IN_TEAM', { team: team.slice(0, 64) });
    return holder;
  }

  /** The state, the role and the plan of the owner count from the next request on. */
  function prepare(
    found: FoundKey,
    owner: Owner | undefined,
    team: string,
    isWrite: boolean,
  ): KeyHolder | Promise<KeyHolder> {
    if (owner !== undefined && owner.state !== 'active') throw new AppError('INVALID_API_KEY');
    if (isWrite && owner?.role === 'readonly') throw new AppError('FORBIDDEN');
    if (owner === undefined && team !== '' && ownerOf !== undefined) throw new AppError('NOT_IN_TEAM', { team });
    const holder = owner === undefined ? found.holder : withOwner(found, owner, team);
    return withSpending(holder, holder.buckets);
  }

  /** Reads what was spent of the budgets of these buckets, unless that is known. */
  function withSpending(holder: KeyHolder, buckets: readonly Bucket[]): KeyHolder | Promise<KeyHolder> {
    let reading: Promise<unknown> | undefined;
    for (const { id, limits } of buckets) {
      const { budget } = limits;
      // A budget of 0 pays for nothing, whatever was spent before.
      const read = budget === undefined || budget.usd === 0 ? undefined : budgets.prepare(id, budget);
      if (read !== undefined) reading = reading === undefined ? read : Promise.all([reading, read]);
    }
    return reading === undefined ? holder : reading.then(() => holder);
  }

  function withKey(head: RequestHead): KeyHolder | Promise<KeyHolder> {
    const holder = marked(head);
    if (tagBuckets.size === 0) return holder;
    return holder instanceof Promise ? holder.then(withTagBudgets) : withTagBudgets(holder);
  }

  /** The budgets of the tags of a call apply besides those of its key. */
  function withTagBudgets(holder: KeyHolder): KeyHolder | Promise<KeyHolder> {
    const own = holder.tags?.flatMap((tag) => tagBuckets.get(tag) ?? []) ?? [];
    return own.length === 0 ? holder : withSpending({ ...holder, buckets: [...holder.buckets, ...own] }, own);
  }

  /** The holder with its tags and its trace. */
  function marked(head: RequestHead): KeyHolder | Promise<KeyHolder> {
    const holder = holderFor(head);
    const trace = followed.size === 0 ? undefined : followed.get(keyOf(head));
    const { [TAGS_HEADER]: tags, traceparent } = head.headers;
    if (tags === undefined && traceparent === undefined && trace === undefined) return holder;
    const mark = (known: KeyHolder) =>
      withTrace(withTags(trace === undefined ? known : { ...known, trace }, head), head);
    return holder instanceof Promise ? holder.then(mark) : mark(holder);
  }

  function holderFor(head: RequestHead): KeyHolder | Promise<KeyHolder> {
    const given = keyOf(head);
    if (given.startsWith(KEY_PREFIX)) {
      const temporary = temporaryKeys.get(given);
      if (temporary !== undefined) return enter(head, temporary);
      const digest = digestOf(given);
      const found = lookup.find(digest);
      if (!(found instanceof Promise)) return enter(head, found);
      return found.then((key) => {
        if (key !== undefined) keepDigest(given, digest);
        return enter(head, key);
      });
    }
    return withOther(head, given);
  }

  return {
    withKey,
    async withMasterKey(head) {
      const holder = await withKey(head);
      if (!holder.isMaster) throw new AppError('FORBIDDEN');
      return holder;
    },
    async withOperator(head) {
      const holder = await withKey(head);
      if (!seesAll(holder)) throw new AppError('FORBIDDEN');
      return holder;
    },
    async withOwnKeys(head) {
      const holder = await withKey(head);
      const { isMaster, principal } = holder;
      // A token that was lost must not remove the keys of its owner.
      const isEnough = principal !== undefined && (!writes(head) || !principal.credential?.id.startsWith('tok_'));
      if (!isMaster && !isEnough) throw new AppError('FORBIDDEN');
      return holder;
    },
    async forOwner(payer) {
      const found = keyFor(payer);
      return prepare(found, await ownerOf?.(found.holder.owner), found.team ?? '', true);
    },
    temporaryKey(payer) {
      const name = payerName(payer);
      const known = temporaryKeyOf.get(name);
      if (known !== undefined) return known;
      const key = makeTemporaryKey(payer);
      temporaryKeyOf.set(name, key);
      return key;
    },
    keyForProgram(payer) {
      const tally = createCallTally();
      const key = makeTemporaryKey(payer, tally);
      return {
        key,
        meter: tally.meter,
        follow(trace) {
          if (trace === undefined) followed.delete(key);
          else followed.set(key, trace);
        },
        end() {
          temporaryKeys.delete(key);
          followed.delete(key);
        },
      };
    },
    isOpen: () => masterKey === '',
    reload(next) {
      masterKey = next.master_key;
      isMasterKey = createSecretMatcher(masterKey);
      ofPeople.clear();
    },
  };
}

/** Whether a request is not only a read, which is all that someone with the role `readonly` may do. */
function writes({ method }: Pick<RequestHead, 'method'>): boolean {
  return method !== 'GET' && method !== 'HEAD';
}

/** The id of the team that a call is for; empty for none. What the key or token says cannot be changed by the call. */
function teamFor({ headers }: RequestHead, { team }: FoundKey): string {
  const asked = headers[TEAM_HEADER];
  if (team !== undefined && asked !== undefined && asked !== team) {
    throw new AppError('NOT_IN_TEAM', { team: String(asked).slice(0, 64) });
  }
  return team ?? (typeof asked === 'string' ? asked : '');
}

/** The head as it would be with the key as a bearer token, for a key that came in another header. */
function withBearer(head: RequestHead, given: string): RequestHead {
  if (given === '' || head.headers.authorization !== undefined) return head;
  const headers = { ...head.headers, authorization: `Bearer ${given}` };
  return Object.create(head, { headers: { value: headers } }) as RequestHead;
}

/** Clients of Anthropic's and of Google's API send the key in a header of their own. */
function keyOf(head: RequestHead): string {
  // The query is parsed when it is read, which most calls need not.
  const { path, headers } = head;
  const isGemini = path.startsWith('/v1beta/');
  // Addresses are written into logs on the way.
  if (isGemini && head.query.has('key')) {
    throw new AppError('INVALID_REQUEST', {
      reason: 'the key is in its address; send it in the header x-goog-api-key',
    });
  }
  const bearer = bearerToken(head);
  if (bearer !== '') return bearer;
  // Both vendors have `/v1/models`.
  const google = headers['x-goog-api-key'];
  const own =
    isGemini || (google !== undefined && /^\/v1\/models(?:\/|$)/.test(path))
      ? google
      : /^\/v1\/(?:messages|files|models)(?:\/|$)/.test(path)
        ? headers['x-api-key']
        : '';
  return typeof own === 'string' ? own : '';
}
