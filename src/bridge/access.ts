import { AppError } from '../platform/errors/app-error.ts';
import type { FailureThrottle } from '../platform/http/failure-throttle.ts';
import type { Guard, RequestHead } from '../platform/http/surface.ts';
import { createSecretMatcher } from '../platform/secrets/token-digest.ts';
import type { BridgeSettings } from './settings.ts';

/** Who is calling: the holder of the main token (or anybody, when none is configured), or of the review token. */
export type Principal = 'main' | 'review';

export interface BridgeCaller {
  readonly principal: Principal;
}

export interface BridgeAccess {
  /** `/acp` and `/acp/rpc`: origin, then credential (contract/bridge 1, order of checks). */
  readonly fromApp: Guard<BridgeCaller>;
  /** `/api/ping`: the credential alone. */
  readonly withToken: Guard<BridgeCaller>;
  isOpen(): boolean;
  stillAllowed(caller: BridgeCaller): boolean;
  originAllowed(origin: string | undefined): boolean;
  reload(settings: BridgeSettings): void;
}

type Credentials = Pick<BridgeSettings, 'auth_token' | 'review_auth_token' | 'allowed_origins' | 'app_origin'>;

export interface BridgeAccessOptions {
  readonly settings: Credentials;
  readonly throttle: FailureThrottle;
  /** Told once when an address has sent too many wrong credentials. */
  onFlood(address: string): void;
}

const LOCAL_ORIGINS = ['http://localhost:*', 'http://127.0.0.1:*'];

/** The caller of a bridge that asks for no token. */
const ANYBODY: BridgeCaller = { principal: 'main' };

export function createBridgeAccess({ settings, throttle, onFlood }: BridgeAccessOptions): BridgeAccess {
  let rules = readRules(settings, []);

  function withToken(head: RequestHead): BridgeCaller {
    if (rules.open) return ANYBODY;
    const credential = bearerCredential(head.headers.authorization);
    for (const { caller, matches } of rules.tokens) if (matches(credential)) return caller;
    const { retryAfterSeconds, firstOverLimit } = throttle.note(head.address);
    if (firstOverLimit) onFlood(head.address);
    throw new AppError('UNAUTHORIZED', retryAfterSeconds === undefined ? {} : { retryAfterSeconds });
  }

  function originAllowed(origin: string | undefined): boolean {
    return origin === undefined || origin === '' || rules.originMatches(origin);
  }

  return {
    withToken,
    originAllowed,
    fromApp(head) {
      const { origin } = head.headers;
      if (!originAllowed(origin)) throw new AppError('ORIGIN_NOT_ALLOWED', { origin: origin?.slice(0, 200) });
      return withToken(head);
    },
    isOpen: () => rules.open,
    stillAllowed: (caller) => rules.open || rules.tokens.some((token) => token.caller === caller),
    reload(next) {
      rules = readRules(next, rules.tokens);
    },
  };
}

interface KnownToken {
  /** One object for as long as the token stays the same: a socket opened with a replaced token is recognised by it. */
  readonly caller: BridgeCaller;
  readonly matches: (given: string) => boolean;
}

function readRules(settings: Credentials, before: readonly KnownToken[]) {
  const tokens: KnownToken[] = [];
  for (const [principal, token] of [
    ['main', settings.auth_token],
    ['review', settings.review_auth_token],
  ] as const) {
    if (token === '') continue;
    const kept = before.find(({ caller, matches }) => caller.principal === principal && matches(token));
    tokens.push(kept ?? { caller: { principal }, matches: createSecretMatcher(token) });
  }
  const patterns = settings.allowed_origins.length === 0 ? LOCAL_ORIGINS : settings.allowed_origins;
  return {
    tokens,
    open: tokens.length === 0,
    originMatches: (origin: string) => matchesOrigin(origin, [...patterns, settings.app_origin]),
  };
}

/** Exact, or any port for an entry that ends in `:*`. `null` never matches: nobody can list it. */
export function matchesOrigin(origin: string, patterns: readonly string[]): boolean {
  if (origin === 'null') return false;
  return patterns.some((pattern) => {
    if (pattern === '') return false;
    if (!pattern.endsWith(':*')) return origin === pattern;
    const base = pattern.slice(0, -2);
    return origin === base || (origin.startsWith(`${base}:`) && /^\d{1,5}$/.test(origin.slice(base.length + 1)));
  });
}

/** `Bearer x` in any case, or the bare token; anything else is compared as it stands and matches nothing. */
function bearerCredential(header: string | undefined): string {
  if (header === undefined) return '';
  return header.replace(/^bearer +/i, '');
}
