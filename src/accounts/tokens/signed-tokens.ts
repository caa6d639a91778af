import type { CryptoKey, JWK, JWTVerifyGetKey } from 'jose';
import type { Clock } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Budget, OwnerTeam } from '../../platform/identity/owner.ts';
import type { Principal, Role, Scope } from '../../platform/identity/principal.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { SecretBox } from '../../platform/secrets/secret-keys.ts';
import { isRole } from '../permissions.ts';
import type { AccountsSchema, SigningKeyRow } from '../storage/accounts-schema.ts';
import { createSigningKeyStore } from '../storage/token-stores.ts';

/** The only accepted algorithm; the header of a token cannot choose another. */
const ALGORITHM = 'ES256';
/** What the tokens are for: the services of Trestle. */
export const AUDIENCE = 'trestle';
const TYPE = 'at+jwt';
const LIFETIME_S = 5 * 60;
const DAY_MS = 24 * 3_600_000;
/** A key signs for this long. */
const SIGNS_MS = 30 * DAY_MS;
/** A key is published for a day longer than it signs, so that tokens can be verified until they expire. */
export const KEY_KEPT_MS = SIGNS_MS + DAY_MS;
const KEYS_FRESH_MS = 60_000;
/** Keys are read again for an unknown one at most this often, because another instance may have created it. */
const NEW_KEY_PAUSE_MS = 1000;
/** Our tokens are shorter, because a user is in at most 50 teams. All headers of a request have 16 KiB. */
const MAX_LENGTH = 10_240;
const OWNER = /^(?:user|service):\w{1,100}$/;

/** A team of the holder, with the name of its plan and its own budget. */
export type SignedTeam = Pick<OwnerTeam, 'id' | 'plan' | 'budget'>;

/** The claims of a token whose signature was verified. */
export interface SignedClaims {
  readonly owner: string;
  /** Id of the login session or access token that it was issued for. */
  readonly credential: string;
  readonly scopes: readonly Scope[];
  /** The team that everything done with it is for; empty: none. */
  readonly team: string;
  /** What the issuer knew of the owner at `issuedAt`: the role that the credential gives, the teams, and the plan (empty: none). */
  readonly role: Role;
  readonly teams: readonly SignedTeam[];
  readonly plan: string;
  /** In milliseconds. */
  readonly issuedAt: number;
  readonly expiresAt: number;
}

interface Expected {
  /** Undefined: any that has signed with one of the keys. */
  readonly issuer: string | undefined;
  readonly now: number;
  /** How far the clock of the issuer may differ. */
  readonly toleranceMs?: number;
}

/** Checks a token by the keys of its issuer. Undefined for one that the issuer did not sign, is not for us, or has expired. */
export async function verifySignedToken(
  token: string,
  keyOf: JWTVerifyGetKey,
  { issuer, now, toleranceMs = 0 }: Expected,
): Promise<SignedClaims | undefined> {
  if (token.length > MAX_LENGTH) return undefined;
  const { jwtVerify, errors } = await import('jose');
  try {
    const { payload } = await jwtVerify(token, keyOf, {
      algorithms: [ALGORITHM],
      ...(issuer !== undefined && { issuer }),
      audience: AUDIENCE,
      typ: TYPE,
      requiredClaims: ['sub', 'iat', 'exp', 'sid', 'scope'],
      currentDate: new Date(now),
      clockTolerance: toleranceMs / 1000,
    });
    const { sub = '', iat = 0, exp = 0, sid, scope, team, role, plan } = payload;
    const teams = readTeams(payload.teams, payload.team_limits);
    if (!OWNER.test(sub) || exp - iat > LIFETIME_S || typeof sid !== 'string' || typeof scope !== 'string')
      return undefined;
    if (typeof team !== 'string' || typeof plan !== 'string' || typeof role !== 'string' || !isRole(role))
      return undefined;
    if (teams === undefined) return undefined;
    const scopes = scope.split(' ') as Scope[];
    const times = { issuedAt: iat * 1000, expiresAt: exp * 1000 };
    return { owner: sub, credential: sid, scopes, team, role, teams, plan, ...times };
  } catch (error) {
    if (error instanceof errors.JOSEError) return undefined;
    throw error;
  }
}

/** Tokens that live for five minutes and that anyone can check who has our public keys. */
export interface SignedTokens {
  issue(
    principal: Principal,
    scopes: readonly Scope[],
  ): Promise<{ readonly token: string; readonly expiresIn: number }>;
  /**
   * Undefined for what was not signed here, is not for us, or has expired. `instance`: any instance of this database may have
   * signed it. Without `public_url`, each has another address, and so another name as the issuer.
   */
  read(token: string, from?: 'instance'): Promise<SignedClaims | undefined>;
  /** The public keys (RFC 7517). */
  keySet(): Promise<{ readonly keys: readonly JWK[] }>;
}

interface SignedTokensOptions {
  readonly database: Database<AccountsSchema>;
  readonly secretBox: SecretBox;
  /** The issuer. */
  publicUrl(): string;
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  readonly makeId: MakeId;
}

interface HeldKey {
  readonly row: SigningKeyRow;
  readonly publicKey: CryptoKey;
  readonly jwk: JWK;
}

export function createSignedTokens(options: SignedTokensOptions): SignedTokens {
  const { database, secretBox, publicUrl, clock, makeId } = options;
  const store = createSigningKeyStore(database);
  // Imported with the first token, because most servers never issue one.
  const load = () => import('jose');
  let held: { readonly keys: ReadonlyMap<string, HeldKey>; readonly readAt: number } | undefined;
  let signing: { readonly id: string; readonly key: CryptoKey } | undefined;
  let creating: Promise<void> | undefined;

  async function readKeys(): Promise<ReadonlyMap<string, HeldKey>> {
    const { importJWK } = await load();
    const keys = new Map<string, HeldKey>();
    for (const row of await store.since(clock.now() - KEY_KEPT_MS)) {
      const jwk = JSON.parse(row.public_key) as JWK;
      keys.set(row.id, { row, jwk, publicKey: (await importJWK(jwk, ALGORITHM)) as CryptoKey });
    }
    held = { keys, readAt: clock.monotonic() };
    return keys;
  }

  /** The keys that are published now, the newest last. */
  async function currentKeys(freshMs = KEYS_FRESH_MS): Promise<ReadonlyMap<string, HeldKey>> {
    const isFresh = held !== undefined && clock.monotonic() - held.readAt < freshMs;
    return isFresh && held !== undefined ? held.keys : readKeys();
  }

  async function createKey(): Promise<void> {
    const { exportJWK, generateKeyPair } = await load();
    const { publicKey, privateKey } = await generateKeyPair(ALGORITHM, { extractable: true });
    const id = makeId('sig_');
    const jwk = { ...(await exportJWK(publicKey)), kid: id, alg: ALGORITHM, use: 'sig' };
    const sealed = secretBox.seal(JSON.stringify(await exportJWK(privateKey)), contextOf(id));
    const row = { id, public_key: JSON.stringify(jwk), private_key: sealed, created_at: clock.now() };
    await database.write([store.add(row)]);
    await readKeys();
  }

  /** The newest key, as long as it may sign. Two instances may each create one: both are published. */
  async function signingKey() {
    const newest = async () => [...(await currentKeys()).values()].at(-1);
    let key = await newest();
    if (key === undefined || clock.now() - key.row.created_at >= SIGNS_MS) {
      creating ??= createKey().finally(() => {
        creating = undefined;
      });
      await creating;
      key = await newest();
    }
    if (key === undefined) throw new Error('the new signing key is not in the store');
    const { id, private_key: sealed } = key.row;
    if (signing?.id !== id) {
      const { importJWK } = await load();
      const jwk = JSON.parse(Buffer.from(secretBox.open(sealed, contextOf(id))).toString('utf8')) as JWK;
      signing = { id, key: (await importJWK(jwk, ALGORITHM)) as CryptoKey };
    }
    return signing;
  }

  return {
    async issue({ id, role, teams, team = '', credential }, scopes) {
      const { SignJWT } = await load();
      const { id: kid, key } = await signingKey();
      const now = Math.floor(clock.now() / 1000);
      const plan = credential?.owner.plan ?? '';
      const held = (credential?.owner.teams ?? []).filter((one) => teams.includes(one.id));
      const ofTeams = { teams: held.map((one) => one.id), team_limits: held.map(limitsClaim), team };
      const claims = { sid: credential?.id ?? '', role, scope: scopes.join(' '), ...ofTeams, plan };
      const token = await new SignJWT(claims)
        .setProtectedHeader({ alg: ALGORITHM, kid, typ: TYPE })
        .setIssuer(publicUrl())
        .setAudience(AUDIENCE)
        .setSubject(id)
        .setJti(makeId('jwt_'))
        .setIssuedAt(now)
        .setExpirationTime(now + LIFETIME_S)
        .sign(key);
      return { token, expiresIn: LIFETIME_S };
    },
    async read(token, from) {
      const { errors } = await load();
      const keyOf: JWTVerifyGetKey = async ({ kid = '' }) => {
        // An instance sends only valid tokens, so an unknown key was created a moment ago.
        const newest = () => (from === 'instance' ? readKeys() : currentKeys(NEW_KEY_PAUSE_MS));
        const key = (await currentKeys()).get(kid) ?? (await newest()).get(kid);
        if (key === undefined) throw new errors.JWKSNoMatchingKey();
        return key.publicKey;
      };
      return verifySignedToken(token, keyOf, {
        issuer: from === 'instance' ? undefined : publicUrl(),
        now: clock.now(),
      });
    },
    async keySet() {
      return { keys: [...(await currentKeys(NEW_KEY_PAUSE_MS)).values()].map(({ jwk }) => jwk) };
    },
  };
}

/** Returns whether a token names the issuer, without verifying the token. */
export async function namesIssuer(token: string, issuer: string): Promise<boolean> {
  const { decodeJwt, errors } = await import('jose');
  try {
    return decodeJwt(token).iss === issuer;
  } catch (error) {
    if (error instanceof errors.JOSEError) return false;
    throw error;
  }
}

/** Returns the limits of a team in a short form; null if it has none. */
function limitsClaim({ plan, budget }: SignedTeam) {
  return plan === '' && budget === undefined ? null : { ...(plan !== '' && { plan }), ...(budget && { budget }) };
}

/** Returns undefined for claims that we would not have issued, because a team without its limits would be unlimited. */
function readTeams(ids: unknown, limits: unknown): readonly SignedTeam[] | undefined {
  if (!Array.isArray(ids) || !Array.isArray(limits) || ids.length !== limits.length) return undefined;
  const teams = ids.map((id: unknown, index): SignedTeam | undefined => {
    const { plan = '', budget } = (limits[index] ?? {}) as { readonly plan?: unknown; readonly budget?: unknown };
    if (typeof id !== 'string' || typeof plan !== 'string') return undefined;
    return budget === undefined || isBudget(budget) ? { id, plan, budget } : undefined;
  });
  return teams.every((team) => team !== undefined) ? teams : undefined;
}

const PERIODS: readonly unknown[] = ['day', 'month', 'total'] satisfies readonly Budget['period'][];

function isBudget(value: unknown): value is Budget {
  const { usd, period } = (value ?? {}) as Partial<Record<keyof Budget, unknown>>;
  return typeof usd === 'number' && usd >= 0 && PERIODS.includes(period);
}

function contextOf(id: string): string {
  return `signing-key:${id}`;
}
