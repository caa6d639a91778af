import { isIP } from 'node:net';
import type {
  AuthenticationResponseJSON,
  RegistrationResponseJSON,
  VerifiedRegistrationResponse,
} from '@simplewebauthn/server';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { isLoopbackHost } from '../../platform/network-address/classify-address.ts';
import type { UserCall } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { Credential, GivenPasskey, LinkedLogin } from '../contract/login.ts';
import { byAddress } from '../limiter/limiter.ts';
import { securityNoticeMail } from '../mail/messages.ts';
import type { Providers } from '../oauth/oauth-providers.ts';
import { normalizeName } from '../registration/new-user.ts';
import type { CredentialRow, FoundUser } from '../storage/accounts-schema.ts';
import { timeText } from '../user-object.ts';

/** The owner of a passkey that was proven, and the statements that use the proof up. */
interface ProvenPasskey {
  readonly userId: string;
  /** For the batch that follows from it: undone when the same response is used at the same moment elsewhere. */
  readonly statements: readonly Runnable[];
}

/**
 * Passkeys (WebAuthn). Each verifies its owner (a fingerprint, a PIN), so it counts as both factors of a login. A login
 * needs no name, because the passkey identifies its owner; so its options do not show who has a passkey.
 */
export interface Passkeys {
  addOptions(call: UserCall): Promise<object>;
  add(given: GivenPasskey & { readonly name?: string | undefined }, call: UserCall): Promise<Credential>;
  /** For a login. `userId` limits it to the passkeys of someone who has shown the password already. */
  loginOptions(userId: string | undefined, head: RequestHead): Promise<object>;
  /** Throws INVALID_PASSKEY for every failure. */
  prove(given: GivenPasskey, head: RequestHead): Promise<ProvenPasskey>;
  /** Whether someone can log in with it: only at the host name that it was made for. */
  isUsable(row: Pick<CredentialRow, 'value' | 'subject'>): boolean;
}

const MAX_PASSKEYS = 20;
const DEFAULT_NAME = 'Passkey';
const PROMPT_MS = 5 * 60_000;
const SITE_NAME = 'Trestle';
/** EdDSA, ES256, RS256 (COSE): every authenticator supports one of them. The library's default includes one that Node calls experimental. */
const ALGORITHMS = [-8, -7, -257];

interface StoredKey {
  readonly publicKey: string;
  readonly rpId: string;
  readonly transports: readonly string[];
}

export function createPasskeys(parts: AccountsCore): Passkeys {
  const { database, credentials, flows, flowStore, limiter, secretBox, audit, mail, clock, makeId } = parts;

  /** The name that passkeys are bound to, and the pages that may ask for them. Browsers accept no IP address. */
  function site(): { readonly rpId: string; readonly origins: string[] } | undefined {
    const addresses = [parts.frontendUrl(), parts.publicUrl()].map((url) => new URL(url));
    for (const address of addresses) if (isLoopbackHost(address.host)) address.hostname = 'localhost';
    const rpId = addresses[0]?.hostname ?? '';
    if (isIP(rpId.replaceAll(/[[\]]/g, '')) !== 0) return undefined;
    const origins = addresses.filter(({ hostname }) => hostname === rpId).map(({ origin }) => origin);
    return { rpId, origins: [...new Set(origins)] };
  }

  function requireSite() {
    const found = site();
    if (found === undefined) throw new AppError('PASSKEYS_UNAVAILABLE');
    return found;
  }

  const keyIn = ({ subject, value }: Pick<CredentialRow, 'value' | 'subject'>): StoredKey =>
    JSON.parse(Buffer.from(secretBox.open(value, contextOf(subject))).toString('utf8'));

  const described = (row: CredentialRow) => ({ id: row.subject, transports: [...keyIn(row).transports] });

  async function refuse(head: RequestHead, subject = ''): Promise<never> {
    const failed = audit.statement({ event: 'passkey.failed', subject, head });
    await database.write([limiter.count(byAddress('address_failures', head)), failed]);
    throw new AppError('INVALID_PASSKEY');
  }

  return {
    async addOptions({ caller: { user } }) {
      const { rpId } = requireSite();
      const owned = await credentials.ofUser(user.id, 'passkey');
      if (owned.length >= MAX_PASSKEYS) throw new AppError('TOO_MANY_PASSKEYS', { most: MAX_PASSKEYS });
      const { token, statement } = flows.issue('passkey_add', { userId: user.id, data: { session: user.session_id } });
      const { generateRegistrationOptions } = await import('@simplewebauthn/server');
      const options = await generateRegistrationOptions({
        rpName: SITE_NAME,
        rpID: rpId,
        userName: user.email,
        userDisplayName: user.name,
        userID: bytesOf(user.id, 'utf8'),
        challenge: bytesOf(token, 'base64url'),
        timeout: PROMPT_MS,
        attestationType: 'none',
        supportedAlgorithmIDs: ALGORITHMS,
        excludeCredentials: owned.map(described),
        authenticatorSelection: { residentKey: 'required', userVerification: 'required' },
      });
      await database.write([flowStore.removeOfUser(user.id, ['passkey_add']), statement]);
      return options;
    },
    async add(given, { caller: { user }, head }) {
      const { rpId, origins } = requireSite();
      const challenge = challengeOf(given);
      const flow = await flows.open('passkey_add', challenge);
      if (flow?.userId !== user.id || flow.data.session !== user.session_id) return refuse(head, user.id);
      const made = await verifyNew(given, { challenge, rpId, origins }).catch(() => undefined);
      if (made === undefined) return refuse(head, user.id);
      const now = clock.now();
      const { id: subject, publicKey, counter, transports = [] } = made.credential;
      const key: StoredKey = { publicKey: Buffer.from(publicKey).toString('base64url'), rpId, transports };
      const name = normalizeName(given.name ?? '') ?? DEFAULT_NAME;
      const id = makeId('pk_');
      const value = secretBox.seal(JSON.stringify(key), contextOf(subject));
      const row = { id, userId: user.id, subject, value, label: name, counter, now };
      const entry = { event: 'credential.added', actor: user.id, subject: user.id, head };
      await database.write(
        [
          flows.take('passkey_add', challenge),
          ...credentials.addPasskey(row, MAX_PASSKEYS),
          audit.statement({ ...entry, details: { credential: 'passkey', id } }),
          mail.enqueue(securityNoticeMail(user.email, 'passkeyAdded')),
        ],
        { conflict: 'INVALID_PASSKEY', duplicate: 'INVALID_PASSKEY' },
      );
      mail.wake();
      return { id, kind: 'passkey', state: 'active', name, createdAt: timeText(now), lastUsedAt: null };
    },
    async loginOptions(userId, head) {
      const { rpId } = requireSite();
      const start = byAddress('passkey_start', head);
      const { token, statement } = flows.issue('passkey_login', {});
      const owned = userId === undefined ? [] : await credentials.ofUser(userId, 'passkey');
      const { generateAuthenticationOptions } = await import('@simplewebauthn/server');
      const options = await generateAuthenticationOptions({
        rpID: rpId,
        challenge: bytesOf(token, 'base64url'),
        timeout: PROMPT_MS,
        userVerification: 'required',
        allowCredentials: owned.map(described),
      });
      try {
        await database.write([limiter.take(start), statement]);
      } catch (error) {
        if (errorCode(error) === 'STORAGE_CONFLICT') await limiter.refuseWhileLocked(start);
        throw error;
      }
      return options;
    },
    async prove(given, head) {
      const { rpId, origins } = requireSite();
      await limiter.refuseWhileLocked(byAddress('address_failures', head));
      const challenge = challengeOf(given);
      const flow = await flows.open('passkey_login', challenge);
      const row = flow === undefined ? undefined : await credentials.find('passkey', given.id);
      if (row === undefined) return refuse(head);
      const counter = await verifyUse(given, row, keyIn(row), { challenge, rpId, origins }).catch(() => undefined);
      if (counter === undefined) return refuse(head, row.user_id);
      const use = { subject: row.subject, userId: row.user_id, before: row.counter, after: counter, now: clock.now() };
      return { userId: row.user_id, statements: [flows.take('passkey_login', challenge), credentials.usePasskey(use)] };
    },
    isUsable: (row) => keyIn(row).rpId === site()?.rpId,
  };
}

interface Expected {
  readonly challenge: string;
  readonly rpId: string;
  readonly origins: string[];
}

type NewPasskey = NonNullable<VerifiedRegistrationResponse['registrationInfo']>;

/** Undefined, or throws, for anything but a new passkey for this site and challenge. */
async function verifyNew(given: GivenPasskey, expected: Expected): Promise<NewPasskey | undefined> {
  const { clientDataJSON, attestationObject = '', transports } = given.response;
  const { verifyRegistrationResponse } = await import('@simplewebauthn/server');
  const { decodeAttestationObject } = await import('@simplewebauthn/server/helpers');
  const attestation = decodeAttestationObject(bytesOf(attestationObject, 'base64url'));
  // Refused: we request no certificates, and to check some of them the library would fetch an address that the caller chooses.
  if (attestation.get('attStmt').get('x5c') !== undefined) return undefined;
  if (attestation.get('fmt') !== 'none' && attestation.get('fmt') !== 'packed') return undefined;
  const response: RegistrationResponseJSON = {
    ...plain(given),
    response: { clientDataJSON, attestationObject, ...(transports && { transports }) },
  };
  const { verified, registrationInfo } = await verifyRegistrationResponse({
    response,
    expectedChallenge: expected.challenge,
    expectedOrigin: expected.origins,
    expectedRPID: expected.rpId,
    requireUserVerification: true,
    supportedAlgorithmIDs: ALGORITHMS,
  });
  return verified ? registrationInfo : undefined;
}

/** Returns the new counter; undefined, or throws, unless the passkey was used for this site and challenge. */
async function verifyUse(
  given: GivenPasskey,
  { subject, user_id: userId, counter }: CredentialRow,
  { publicKey }: StoredKey,
  expected: Expected,
): Promise<number | undefined> {
  const { clientDataJSON, authenticatorData = '', signature = '', userHandle } = given.response;
  if (userHandle !== undefined && Buffer.from(userHandle, 'base64url').toString('utf8') !== userId) return undefined;
  const { verifyAuthenticationResponse } = await import('@simplewebauthn/server');
  const response: AuthenticationResponseJSON = {
    ...plain(given),
    response: { clientDataJSON, authenticatorData, signature },
  };
  const { verified, authenticationInfo } = await verifyAuthenticationResponse({
    response,
    expectedChallenge: expected.challenge,
    expectedOrigin: expected.origins,
    expectedRPID: expected.rpId,
    credential: { id: subject, publicKey: bytesOf(publicKey, 'base64url'), counter },
    requireUserVerification: true,
  });
  return verified ? authenticationInfo.newCounter : undefined;
}

const plain = ({ id, rawId, type }: GivenPasskey) => ({ id, rawId, type, clientExtensionResults: {} });

/** Returns the signed challenge, which is the token of the flow that issued it; empty if it cannot be read. */
function challengeOf({ response }: GivenPasskey): string {
  try {
    const data: unknown = JSON.parse(Buffer.from(response.clientDataJSON, 'base64url').toString('utf8'));
    const challenge = typeof data === 'object' && data !== null && 'challenge' in data ? data.challenge : '';
    return typeof challenge === 'string' ? challenge : '';
  } catch {
    return '';
  }
}

/** Returns a copy in its own buffer, because the library requires one. */
function bytesOf(text: string, encoding: 'utf8' | 'base64url'): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(Buffer.from(text, encoding));
}

function contextOf(subject: string): string {
  return `passkey:${subject}`;
}

/** Lists and removes the caller's own credentials. Every change is mailed and recorded. */
export interface Credentials {
  list(userId: string): Promise<readonly Credential[]>;
  /** Removes a password, a linked account or a passkey, and ends every other session. Never the last means of login. */
  remove(id: string, call: UserCall): Promise<void>;
  /** Linked accounts and passkeys. */
  links(userId: string): Promise<readonly LinkedLogin[]>;
  /** Removes all linked accounts and passkeys, for the batch that sets a password. */
  droppingLinks(user: FoundUser, links: readonly LinkedLogin[], head: RequestHead): readonly Runnable[];
}

/** The kinds that a fresh login may remove without a code. */
const REMOVABLE: ReadonlySet<string> = new Set(['password', 'oauth', 'passkey']);

type Parts = AccountsCore & {
  readonly providers: Providers;
  readonly passkeys: Passkeys;
};

export function createCredentials(parts: Parts): Credentials {
  const { users, sessions, credentials, flowStore, audit, mail, clock, providers, passkeys } = parts;

  function linkOf({ id, kind, subject, label, created_at: since }: CredentialRow): LinkedLogin {
    if (kind === 'passkey') return { id, provider: 'passkey', email: '', name: label, createdAt: timeText(since) };
    const [namespace = ''] = subject.split(' ');
    return { id, provider: providers.nameOf(namespace) ?? namespace, email: label, createdAt: timeText(since) };
  }

  /**
   * Whether someone can log in with it by itself. A linked account counts only while its provider is configured, a passkey
   * only at the host name that it was made for.
   */
  function isMeansOfLogin(row: CredentialRow): boolean {
    if (row.kind === 'password') return true;
    if (row.kind === 'passkey') return passkeys.isUsable(row);
    return row.kind === 'oauth' && providers.nameOf(row.subject.split(' ')[0] ?? '') !== undefined;
  }

  const removal = (user: Pick<FoundUser, 'id'>, credential: string, details: object, head: RequestHead): Runnable => {
    const entry = { event: 'credential.removed', actor: user.id, subject: user.id, head };
    return audit.statement({ ...entry, details: { credential, ...details } });
  };

  return {
    async list(userId) {
      const rows = await credentials.ofUser(userId);
      const codes = rows.filter(({ kind }) => kind === 'recovery_code');
      const described = rows.filter(({ kind }) => kind !== 'recovery_code').map((row) => describe(row, linkOf));
      const [first] = codes;
      if (first === undefined) return described;
      const since = timeText(first.created_at);
      const group = { id: 'recovery_codes', kind: 'recovery_codes', state: 'active', left: codes.length };
      return [...described, { ...group, createdAt: since, lastUsedAt: null }];
    },
    async remove(id, { caller: { user }, head }) {
      const removed = await credentials.remove({ id, userId: user.id }, (row, rest) => {
        // Disabling the second factor requires a code, so a session alone cannot remove it here.
        if (!REMOVABLE.has(row.kind)) {
          throw new AppError('REAUTHENTICATION_REQUIRED', { fields: 'the password and a code at mfa/disable' });
        }
        if (!rest.some(isMeansOfLogin)) throw new AppError('LAST_CREDENTIAL');
        const link = linkOf(row);
        return [
          users.raiseEpoch({ id: user.id, epoch: user.access_epoch, now: clock.now() }),
          // Ends the sessions that were opened with it.
          sessions.endOthersOf({ id: user.session_id, userId: user.id }),
          sessions.carryOver({ id: user.session_id, epoch: user.access_epoch }),
          flowStore.removeOfUser(user.id),
          removal(user, row.kind, row.kind === 'oauth' ? { provider: link.provider } : {}, head),
          mail.enqueue(removalMail(user.email, row.kind, link)),
        ];
      });
      if (removed === undefined) throw new AppError('CREDENTIAL_NOT_FOUND');
      mail.wake();
    },
    links: async (userId) =>
      (await credentials.ofUser(userId)).filter(({ kind }) => kind === 'oauth' || kind === 'passkey').map(linkOf),
    droppingLinks: (user, links, head) => [
      expectChanges(credentials.removeLinks(user.id), links.length),
      ...links.map(({ provider }) =>
        provider === 'passkey' ? removal(user, provider, {}, head) : removal(user, 'oauth', { provider }, head),
      ),
    ],
  };
}

function removalMail(to: string, kind: string, { name = '', provider }: LinkedLogin) {
  if (kind === 'password') return securityNoticeMail(to, 'passwordRemoved');
  return kind === 'passkey'
    ? securityNoticeMail(to, 'passkeyRemoved', { name })
    : securityNoticeMail(to, 'linkRemoved', { provider });
}

function describe(row: CredentialRow, linkOf: (row: CredentialRow) => LinkedLogin): Credential {
  const { id, kind, state, created_at: since, last_used_at: used } = row;
  const times = { createdAt: timeText(since), lastUsedAt: used === null ? null : timeText(used) };
  if (kind === 'passkey') return { id, kind, state, name: row.label, ...times };
  if (kind !== 'oauth') return { id, kind, state, ...times };
  const { provider, email } = linkOf(row);
  return { id, kind, state, provider, email, ...times };
}
