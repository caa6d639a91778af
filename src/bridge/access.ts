import { AppError } from '../platform/errors/app-error.ts';
import { originAllowed, refuseOrigin } from '../platform/http/cross-origin.ts';
import type { FailureThrottle } from '../platform/http/failure-throttle.ts';
import type { CrossOrigin, Guard, RequestHead } from '../platform/http/surface.ts';
import { createSecretMatcher } from '../platform/secrets/tokens.ts';
import { isTunnelAddress } from './forwarding/endpoints.ts';
import { FORWARDED_HEADER, type ForwardedRequest, readForwarded, readHop } from './forwarding/forward-headers.ts';
import { OPERATOR, type Principal } from './principal.ts';
import { type BridgeGroups, type BridgeSettings, OWN_ORIGIN } from './settings.ts';

export interface BridgeCaller {
  readonly principal: Principal;
  /** Set when another bridge has sent the request with the forward token. */
  readonly forwarded?: ForwardedRequest;
  /** How many nodes the request has passed, as it says: it can only restrict, so it counts with every credential. */
  readonly hop?: number;
}

export interface BridgeAccess {
  /** `/acp` and `/acp/rpc`: origin, then credential (contract/bridge 1, order of checks), or what other bridges forward. */
  readonly fromAppOrNode: Guard<BridgeCaller>;
  /** `/gateway/<id>`: what other bridges forward; for anyone else there is nothing. */
  readonly fromNode: Guard<BridgeCaller>;
  /** `/api/ping`: the credential alone. */
  readonly withToken: Guard<BridgeCaller>;
  isOpen(): boolean;
  stillAllowed(caller: BridgeCaller): boolean;
  /** Which pages may call `/acp` and `/acp/rpc`. */
  readonly crossOrigin: CrossOrigin;
  reload(settings: AccessSettings): void;
}

interface AccessSettings {
  readonly bridge: Pick<BridgeSettings, 'auth_token' | 'review_auth_token' | 'allowed_origins' | 'app_origin'>;
  readonly distributed: Pick<BridgeGroups['distributed'], 'task_forward_token'>;
}

export interface BridgeAccessOptions {
  readonly settings: AccessSettings;
  readonly throttle: FailureThrottle;
  /** Told once when an address has sent too many wrong credentials. */
  onFlood(address: string): void;
  /** Told once for an address that sends headers of a forwarded request with a credential that is not the forward token. */
  onIgnoredForward(address: string): void;
}

const LOCAL_ORIGINS = ['http://localhost:*', 'http://127.0.0.1:*'];

/** The caller of a bridge that asks for no token. */
const ANYBODY: BridgeCaller = { principal: OPERATOR };
/** Addresses whose ignored headers were reported; a report more does no harm. */
const MAX_REPORTED = 1000;

export function createBridgeAccess(options: BridgeAccessOptions): BridgeAccess {
  const { settings, throttle, onFlood, onIgnoredForward } = options;
  let rules = readRules(settings);
  /** By node, the token that let it in: a socket opened with a replaced one is recognised by it. */
  const admittedBy = new WeakMap<BridgeCaller, (given: string) => boolean>();
  /** By a caller with a hop, the caller without. */
  const withoutHop = new WeakMap<BridgeCaller, BridgeCaller>();
  const reported = new Set<string>();
  const crossOrigin: CrossOrigin = { below: '/acp', allows: (head) => originAllowed(head, rules.origins) };

  function withToken(head: RequestHead): BridgeCaller {
    if (rules.open) return ANYBODY;
    const credential = bearerCredential(head.headers.authorization);
    for (const { caller, matches } of rules.tokens) if (matches(credential)) return caller;
    const { retryAfterSeconds, firstOverLimit } = throttle.note(head.address);
    if (firstOverLimit) onFlood(head.address);
    throw new AppError('UNAUTHORIZED', retryAfterSeconds === undefined ? {} : { retryAfterSeconds });
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

  /** The caller of a request that another bridge has forwarded. Headers that just say so count for nothing. */
  function asNode(head: RequestHead): BridgeCaller | undefined {
    const { headers, path } = head;
    if (headers[FORWARDED_HEADER] === undefined || !rules.mayForward(head)) return undefined;
    const forwarded = readForwarded(headers, path);
    const { source, owner } = forwarded;
    const caller: BridgeCaller = {
      principal: owner === '' ? `node:${source}` : `node:${source}:${owner}`,
      forwarded,
    };
    admittedBy.set(caller, rules.matchesForwarder);
    return caller;
  }

  return {
    withToken,
    crossOrigin,
    fromAppOrNode(head) {
      if (!crossOrigin.allows(head)) refuseOrigin(head);
      return asNode(head) ?? withHop(head, withToken(head));
    },
    fromNode(head) {
      const node = asNode(head);
      if (node === undefined) throw new AppError('NOT_FOUND');
      return node;
    },
    isOpen: () => rules.open,
    stillAllowed(caller) {
      if (caller.forwarded !== undefined) return admittedBy.get(caller) === rules.matchesForwarder;
      const known = withoutHop.get(caller) ?? caller;
      return rules.open || rules.tokens.some((token) => token.caller === known);
    },
    reload(next) {
      rules = readRules(next, rules);
    },
  };
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
    [OPERATOR, settings.auth_token],
    ['review', settings.review_auth_token],
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
    /** With no token at all there is only the place to go by (contract/bridge 9). */
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
