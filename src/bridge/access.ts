import { Type } from 'typebox';
import type { Clock } from '../platform/clock/clock.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { originAllowed, refuseOrigin } from '../platform/http/cross-origin.ts';
import type { FailureThrottle, NotedFailure } from '../platform/http/failure-throttle.ts';
import type { CrossOrigin, Guard, RequestHead } from '../platform/http/surface.ts';
import {
  atWorkFor,
  type Identify,
  isFreshLogin,
  isOwnCredential,
  ownersSought,
  type PersonTokens,
  type Principal,
} from '../platform/identity/principal.ts';
import { defineMethod, type MethodRow } from '../platform/json-rpc/method-table.ts';
import { createSecretMatcher } from '../platform/secrets/tokens.ts';
import { FORWARDED_HEADER, type ForwardedRequest, readForwarded, readHop } from './forwarding/call-node.ts';
import { isTunnelAddress } from './forwarding/endpoints.ts';
import { MAIN, principalOf } from './principal.ts';
import { type BridgeGroups, type BridgeSettings, OWN_ORIGIN } from './settings.ts';

export interface BridgeCaller {
  readonly principal: Principal;
  /** Set when another bridge has sent the request with the forward token. */
  readonly forwarded?: ForwardedRequest;
  /** How many nodes the request has passed, as it says: it can only restrict, so it counts with every credential. */
  readonly hop?: number;
  /** Set when another instance of this database has relayed the call: what it knows of its client. */
  readonly relayed?: RelayedClient;
}

/** What an instance that relays a call says of its client. */
export interface RelayedClient {
  /** As `BridgeClient.resume`. */
  readonly resume: { readonly afterSeq: number | undefined; readonly idempotencyKey: string };
  readonly wantsUpdates: boolean;
  readonly isStrict: boolean;
}

export interface BridgeAccess {
  /** `/acp` and `/acp/rpc`: origin, then credential, or what other bridges forward. */
  readonly fromAppOrNode: Guard<BridgeCaller>;
  /** `/gateway/<id>`: what other bridges forward; for anyone else there is nothing. */
  readonly fromNode: Guard<BridgeCaller>;
  /** `/api/ping`: the credential alone. */
  readonly withToken: Guard<BridgeCaller>;
  /** `/api/bridge/*`: pages of our own origin and programs, then the credential. */
  readonly workbench: Guard<BridgeCaller>;
  /** As `workbench`, for those who see the work of every owner. */
  readonly forOperators: Guard<BridgeCaller>;
  /**
   * As `workbench`, for administrators, for what changes the machine itself: the operator's tokens, and people with a login from
   * the last five minutes. Access tokens do not count.
   */
  readonly freshAdmin: Guard<BridgeCaller>;
  isOpen(): boolean;
  stillAllowed(caller: BridgeCaller): boolean;
  /** Calls the listener when the login or token of a caller ends; undefined for static tokens. */
  onRevoked(caller: BridgeCaller, listener: () => void): (() => void) | undefined;
  /** Which pages may call `/acp` and `/acp/rpc`. */
  readonly crossOrigin: CrossOrigin;
  /** Gives commands of this machine's operator their token: who may open the control socket may do everything. */
  readonly commandTokenControl: MethodRow<undefined>;
  reload(settings: AccessSettings): void;
}

interface AccessSettings {
  readonly bridge: Pick<BridgeSettings, 'auth_token' | 'review_auth_token' | 'allowed_origins' | 'app_origin'>;
  readonly distributed: Pick<BridgeGroups['distributed'], 'task_forward_token' | 'local_node_id'>;
}

export interface BridgeAccessOptions {
  /** Finds people and service accounts by their tokens. Undefined: there are only static tokens here. */
  readonly identify?: Identify | undefined;
  /** Reads the tokens of people for whom other bridges forward calls. Undefined: such calls are those of the other bridge. */
  readonly personTokens?: PersonTokens | undefined;
  readonly settings: AccessSettings;
  /** The token that commands on this machine get from the control socket; it is the operator's. */
  readonly commandToken: string;
  readonly throttle: FailureThrottle;
  readonly clock: Pick<Clock, 'now'>;
  /** Told once when an address has sent too many wrong credentials. */
  onFlood(address: string): void;
  /** Told once for an address that sends headers of a forwarded request with a credential that is not the forward token. */
  onIgnoredForward(address: string): void;
}

const REVIEW = principalOf('review');
const LOCAL_ORIGINS = ['http://localhost:*', 'http://127.0.0.1:*'];

/** The caller of a bridge that asks for no token. */
const ANYBODY: BridgeCaller = { principal: MAIN };
/** A command on this machine. */
const COMMAND: BridgeCaller = { principal: MAIN };
/** Addresses whose ignored headers were reported; a report more does no harm. */
const MAX_REPORTED = 1000;

export function createBridgeAccess(options: BridgeAccessOptions): BridgeAccess {
  const { settings, identify, personTokens, throttle, onFlood, onIgnoredForward } = options;
  const isCommand = createSecretMatcher(options.commandToken);
  let rules = readRules(settings);
  /** By node, the token that let it in: a socket opened with a replaced one is recognised by it. */
  const admittedBy = new WeakMap<BridgeCaller, (given: string) => boolean>();
  /** By a caller with a hop, the caller without. */
  const withoutHop = new WeakMap<BridgeCaller, BridgeCaller>();
  const reported = new Set<string>();
  const crossOrigin: CrossOrigin = { below: '/acp', allows: (head) => originAllowed(head, rules.origins) };

  /** Static tokens first, then people and service accounts. A wrong token is refused; it never counts as a request without a token. */
  function enter(head: RequestHead, accepts: 'token' | 'token or cookie'): BridgeCaller | Promise<BridgeCaller> {
    const credential = bearerCredential(head.headers.authorization);
    for (const { caller, matches } of rules.tokens) if (matches(credential)) return forNoTeam(head, caller);
    if (credential !== '' && isCommand(credential)) return forNoTeam(head, COMMAND);
    const known = identify?.(head, accepts);
    if (known instanceof Promise) return known.then((principal) => enterAs(head, credential, principal));
    return enterAs(head, credential, known);
  }

  function enterAs(
    head: RequestHead,
    credential: string,
    principal: Principal | undefined,
  ): BridgeCaller | Promise<BridgeCaller> {
    if (principal !== undefined) {
      if (!principal.scopes.has('bridge')) throw new AppError('FORBIDDEN');
      return { principal: forTeam(principal, teamAsked(head)) };
    }
    if (rules.open && !isOwnCredential(credential)) return forNoTeam(head, ANYBODY);
    const refuse = ({ retryAfterSeconds, firstOverLimit }: NotedFailure): never => {
      if (firstOverLimit) onFlood(head.address);
      throw new AppError('UNAUTHORIZED', retryAfterSeconds === undefined ? {} : { retryAfterSeconds });
    };
    const noted = throttle.note(head.address);
    return noted instanceof Promise ? noted.then(refuse) : refuse(noted);
  }

  /** Only people are in teams. Where there are no accounts, the header means nothing. */
  function forNoTeam(head: RequestHead, caller: BridgeCaller): BridgeCaller {
    const team = teamAsked(head);
    if (identify !== undefined && team !== '') throw notInTeam(team);
    return caller;
  }

  /** Adds the hop that a request without the forward token claims, so that a circle of bridges ends at the limit. */
  function withHop(head: RequestHead, caller: BridgeCaller): BridgeCaller {
    if (head.headers[FORWARDED_HEADER] !== undefined && !reported.has(head.address)) {
      if (reported.size >= MAX_REPORTED) reported.clear();
      reported.add(head.address);
      onIgnoredForward(head.address);
    }
    const hop = readHop(head.headers);
    if (hop === undefined) return caller;
    const counted: BridgeCaller = { ...caller, hop };
    withoutHop.set(counted, caller);
    return counted;
  }

  /** The caller of a request that another bridge has forwarded. Headers alone do not prove that; they are ignored without the token of a node. */
  function asNode(head: RequestHead): BridgeCaller | Promise<BridgeCaller> | undefined {
    const { headers, path } = head;
    if (headers[FORWARDED_HEADER] === undefined || !rules.mayForward(head)) return undefined;
    const forwarded = readForwarded(headers, path);
    const { source, owner, person, team, target } = forwarded;
    const admit = (principal: Principal): BridgeCaller => {
      const caller = { principal, forwarded };
      admittedBy.set(caller, rules.matchesForwarder);
      return caller;
    };
    const asOwner = () => admit(principalOf(owner === '' ? `node:${source}` : `node:${source}:${owner}`));
    const runsHere = rules.localId === '' || rules.localId === target;
    if (person === '' || personTokens === undefined || !runsHere) return asOwner();
    return personTokens
      .read(person)
      .then((found) => (found === 'foreign' ? asOwner() : admit(forTeam(requirePerson(found), team))));
  }

  function workbench(head: RequestHead): BridgeCaller | Promise<BridgeCaller> {
    const { origin = '' } = head.headers;
    if (!originAllowed(head, [])) throw new AppError('OWN_ORIGIN_REQUIRED', { origin: origin.slice(0, 200) });
    const caller = enter(head, 'token or cookie');
    return caller instanceof Promise ? caller.then((found) => readOnly(head, found)) : readOnly(head, caller);
  }

  return {
    withToken: (head) => enter(head, 'token'),
    crossOrigin,
    fromAppOrNode(head) {
      if (!crossOrigin.allows(head)) refuseOrigin(head);
      const node = asNode(head);
      if (node !== undefined) return node;
      const caller = enter(head, 'token');
      return caller instanceof Promise ? caller.then((found) => withHop(head, found)) : withHop(head, caller);
    },
    workbench,
    async forOperators(head) {
      const caller = await workbench(head);
      if (ownersSought(caller.principal) !== undefined) throw new AppError('FORBIDDEN');
      return caller;
    },
    async freshAdmin(head) {
      const caller = await workbench(head);
      const { role, seesAll, credential } = caller.principal;
      if (!seesAll || (role !== 'root' && role !== 'admin')) throw new AppError('FORBIDDEN');
      if (credential === undefined) return caller;
      if (credential.loggedInAt === undefined) throw new AppError('LOGIN_REQUIRED');
      if (!isFreshLogin(credential.loggedInAt, options.clock.now())) {
        throw new AppError('REAUTHENTICATION_REQUIRED', { fields: 'a login from the last five minutes' });
      }
      return caller;
    },
    fromNode(head) {
      const node = asNode(head);
      if (node === undefined) throw new AppError('NOT_FOUND');
      return node;
    },
    commandTokenControl: defineMethod({
      name: 'token',
      summary: 'A token of the operator, good until this server ends.',
      params: Type.Object({}),
      result: Type.Object({ token: Type.String() }),
      handle: () => ({ token: options.commandToken }),
    }),
    isOpen: () => rules.open,
    onRevoked: ({ principal }, listener) => principal.credential?.onEnd(listener),
    stillAllowed(caller) {
      if (caller.forwarded !== undefined) return admittedBy.get(caller) === rules.matchesForwarder;
      const known = withoutHop.get(caller) ?? caller;
      if (known.principal.credential !== undefined) return known.principal.credential.isLive();
      return rules.open || known === COMMAND || rules.tokens.some((token) => token.caller === known);
    },
    reload(next) {
      rules = readRules(next, rules);
    },
  };
}

/** Says which team a request is for, and all calls of a socket that is opened with it. */
const TEAM_HEADER = 'x-team';
const MAX_ECHOED = 64;

/** The team that the header names; empty: none. */
function teamAsked({ headers }: Pick<RequestHead, 'headers'>): string {
  const team = headers[TEAM_HEADER];
  return typeof team === 'string' ? team : '';
}

/**
 * The principal for a call that names a team; empty: it names none, and a token that is bound to a team counts. Throws
 * NOT_IN_TEAM, also for another team than that of the token, and TEAM_WITHOUT_BRIDGE.
 */
export function forTeam(given: Principal, asked: string): Principal {
  const person = given.member ?? given;
  const wanted = asked === '' ? given.team : asked;
  if (wanted === undefined || (given.member !== undefined && wanted === given.team)) return given;
  const isBoundElsewhere = person.team !== undefined && person.team !== wanted;
  const team = isBoundElsewhere ? undefined : person.credential?.owner.teams.find(({ id }) => id === wanted);
  if (team === undefined) throw notInTeam(wanted);
  if (!team.bridge) throw new AppError('TEAM_WITHOUT_BRIDGE', { team: wanted });
  return atWorkFor(team, person);
}

function notInTeam(team: string): AppError {
  return new AppError('NOT_IN_TEAM', { team: team.slice(0, MAX_ECHOED) });
}

/** Throws for a person who may not work here. Nobody becomes someone else by that: it would hide their own work from them. */
function requirePerson(found: Principal | 'refused'): Principal {
  if (found === 'refused')
    throw new AppError('FORWARD_PERSON_REFUSED', { reason: 'the login has ended; log in again' });
  if (found.scopes.has('bridge')) return found;
  throw new AppError('FORWARD_PERSON_REFUSED', { reason: 'the plan there, or the token, does not include the bridge' });
}

/** Someone who may only read sends no changes; over JSON-RPC the method decides. */
function readOnly({ method }: RequestHead, caller: BridgeCaller): BridgeCaller {
  if (caller.principal.role === 'readonly' && method !== 'GET' && method !== 'HEAD') throw new AppError('FORBIDDEN');
  return caller;
}

interface KnownToken {
  /** One object for as long as the token stays the same: a socket opened with a replaced token is recognised by it. */
  readonly caller: BridgeCaller;
  readonly matches: (given: string) => boolean;
}

interface EarlierRules {
  readonly tokens: readonly KnownToken[];
  readonly matchesForwarder: (given: string) => boolean;
}

function readRules({ bridge: settings, distributed }: AccessSettings, before?: EarlierRules) {
  const tokens: KnownToken[] = [];
  for (const [principal, token] of [
    [MAIN, settings.auth_token],
    [REVIEW, settings.review_auth_token],
  ] as const) {
    if (token === '') continue;
    const kept = before?.tokens.find(({ caller, matches }) => caller.principal === principal && matches(token));
    tokens.push(kept ?? { caller: { principal }, matches: createSecretMatcher(token) });
  }
  // Our own origin is always allowed; naming it alone closes the default.
  const listed = settings.allowed_origins.filter((origin) => origin !== OWN_ORIGIN);
  const patterns = settings.allowed_origins.length === 0 ? LOCAL_ORIGINS : listed;
  const forwardToken = distributed.task_forward_token || settings.auth_token;
  const matchesForwarder =
    before?.matchesForwarder(forwardToken) === true ? before.matchesForwarder : createSecretMatcher(forwardToken);
  const isOpenToNodes = forwardToken === '' && tokens.length === 0;
  return {
    tokens,
    open: tokens.length === 0,
    matchesForwarder,
    localId: distributed.local_node_id,
    /** With no token at all there is only the place to go by. */
    mayForward: ({ headers, address }: RequestHead) =>
      isOpenToNodes ? isTunnelAddress(address) : matchesForwarder(bearerCredential(headers.authorization)),
    origins: [...patterns, settings.app_origin],
  };
}

/** `Bearer x` in any case, or the bare token; anything else is compared as it stands and matches nothing. */
function bearerCredential(header: string | undefined): string {
  if (header === undefined) return '';
  return header.replace(/^bearer +/i, '');
}
