import { createHash, createHmac } from 'node:crypto';
import { type Clock, deadline } from '../../platform/clock/clock.ts';
import type { Randomness } from '../../platform/clock/randomness.ts';
import { AppError, type ErrorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import {
  ownersSought,
  ownFirst,
  type PersonTokens,
  type Principal,
  type Scope,
} from '../../platform/identity/principal.ts';
import { RelayedError, type RequestId } from '../../platform/json-rpc/envelope.ts';
import type { MethodCall } from '../../platform/json-rpc/method-table.ts';
import type { SecretKeys } from '../../platform/secrets/secret-keys.ts';
import { sameSecret } from '../../platform/secrets/tokens.ts';
import type { BridgeCaller, RelayedClient } from '../access.ts';
import type { RelayedFile } from '../agents/agent-provider.ts';
import { asObject } from '../agents/agent-text.ts';
import type { FileRequest } from '../artifacts/artifact-links.ts';
import { type BridgeClient, NO_RESUME } from '../bridge-client.ts';
import { bridgeErrors } from '../errors.ts';
import type { CallPeer, PeerAnswer, PeerError, requestPeerFile } from '../forwarding/call-node.ts';
import type { InstanceRow, SessionRow } from '../storage/bridge-schema.ts';
import type { InstanceStore } from '../storage/instance-and-route-stores.ts';
import type { SessionStore } from '../storage/session-store.ts';
import { describeInstance, type InstanceFacts } from './instance-registry.ts';

/** A call for another instance. */
export interface RelayCall {
  readonly caller: BridgeCaller;
  readonly client: RelayedClient;
  readonly id: RequestId | undefined;
  readonly method: string;
  readonly params: unknown;
  accepted(): void;
  notified(method: string, params: unknown, eventId: string | undefined): Promise<void> | undefined;
}

/** Where an instance is reached. */
export type RelayTarget = Pick<InstanceRow, 'id' | 'address'>;

/** Sends signed requests to other instances of this database. */
export interface RelayClient {
  ask(target: RelayTarget, call: RelayCall, signal: AbortSignal): Promise<PeerAnswer>;
  /** A file in the data directory of another instance. */
  file(target: RelayTarget, kind: FileKind, id: string, signal: AbortSignal): Promise<RelayedFile>;
}

export type FileKind = 'artifacts' | 'attachments';

interface RelayClientOptions {
  readonly signatures: Pick<RelaySignatures, 'sign'>;
  readonly callPeer: CallPeer;
  requestFile(request: Omit<Parameters<typeof requestPeerFile>[0], never>): Promise<RelayedFile>;
  readonly personTokens: PersonTokens | undefined;
}

export const RELAY_PATH = '/acp/relay';
const CONNECT_MS = 2_000;
/** A turn that waits sends the head of its response as soon as it was accepted. */
const HEADERS_MS = 30_000;
const CONTENT_TYPE = 'application/x-trestle-relay';

export function createRelayClient(options: RelayClientOptions): RelayClient {
  const { signatures, callPeer, requestFile, personTokens } = options;
  return {
    async ask({ id: target, address }, { caller, client, ...call }, signal) {
      const envelope = JSON.stringify({ caller: await describeCaller(caller, personTokens), client });
      return callPeer(
        {
          ...call,
          endpoint: address,
          path: RELAY_PATH,
          headers: { 'content-type': CONTENT_TYPE },
          connectMs: CONNECT_MS,
          headersMs: HEADERS_MS,
          beforeSend: async () => undefined,
          frame(text) {
            const body = `${envelope}\n${text}`;
            return { body, headers: signatures.sign({ method: 'POST', path: RELAY_PATH, body, target }) };
          },
        },
        signal,
      );
    },
    file({ id: target, address }, kind, id, signal) {
      const path = `${RELAY_PATH}/${kind}/${id}`;
      const headers = signatures.sign({ method: 'GET', path, body: '', target });
      const request: Pick<FileRequest, 'url' | 'headers' | 'signal'> = { url: `${address}${path}`, headers, signal };
      return requestFile({ ...request, nodeId: target });
    },
  };
}

/** What a call between instances says that takes no updates. */
export const QUIET: RelayedClient = { wantsUpdates: false, resume: NO_RESUME, isStrict: false };
export const NO_UPDATES = { accepted: () => undefined, notified: () => undefined };
export const CANCEL_WAITING = 'instance.cancel-waiting';
/** A frozen instance takes the request and does not answer. */
const CANCEL_MS = 5_000;

interface CancelWaitingOptions {
  readonly owners: Pick<SessionOwners, 'others'>;
  readonly relay: Pick<RelayClient, 'ask'>;
  readonly clock: Pick<Clock, 'after'>;
  readonly stopped: AbortSignal;
}

/** Sends a call that ends a session to all other instances: a turn that waits for a place is not in the store yet. */
export function createCancelWaiting({ owners, relay, clock, stopped }: CancelWaitingOptions) {
  return async ({ caller: { caller }, params }: Pick<MethodCall<BridgeClient>, 'caller' | 'params'>): Promise<void> => {
    const cancel = { caller, client: QUIET, id: 'cancel', method: CANCEL_WAITING, params, ...NO_UPDATES };
    const targets = await owners.others();
    const limit = deadline(clock, CANCEL_MS, [stopped]);
    const asked = targets.map((target) => relay.ask(target, cancel, limit.signal));
    const answers = await Promise.all(asked).finally(limit.release);
    for (const answer of answers) {
      // Where nothing listens, no turn waits.
      if (answer.kind !== 'failed' || answer.isDown) continue;
      const reason = limit.hasPassed() ? 'it did not answer in time' : answer.reason;
      throw new AppError('OWNER_UNREACHABLE', { reason, outcome: 'unknown' });
    }
  };
}

/** A principal in a relayed call. Its login or token is not sent: a token that is valid for five minutes replaces it. */
interface SentPrincipal extends Omit<Principal, 'scopes' | 'credential' | 'member'> {
  readonly scopes: readonly Scope[];
  readonly member?: SentPrincipal;
}

interface SentCaller {
  readonly principal: SentPrincipal;
  /** Empty for static tokens and nodes. */
  readonly person: string;
  readonly hop: number;
}

export interface RelayEnvelope {
  readonly caller: SentCaller;
  readonly client: RelayedClient;
}

async function describeCaller(caller: BridgeCaller, tokens: PersonTokens | undefined): Promise<SentCaller> {
  const { principal, forwarded, hop = 0 } = caller;
  const { credential, member } = principal;
  // The login may have ended since the guard accepted the caller, because the call may have waited for others.
  if (credential?.isLive() === false) throw new AppError('UNAUTHORIZED');
  const person = credential === undefined ? '' : ((await tokens?.issue(member ?? principal)) ?? '');
  return { principal: sent(principal), person, hop: forwarded?.hop ?? hop };
}

function sent({ credential: _, member, scopes, ...principal }: Principal): SentPrincipal {
  return { ...principal, scopes: [...scopes], ...(member !== undefined && { member: sent(member) }) };
}

/** Returns the caller of a relayed call, as the other instance has accepted them. Throws FORWARD_PERSON_REFUSED when their login has ended. */
export async function receiveCaller(
  { caller: { principal, person, hop }, client }: RelayEnvelope,
  tokens: PersonTokens | undefined,
): Promise<BridgeCaller> {
  const known = person === '' ? undefined : await tokens?.read(person, 'instance');
  if (person !== '' && typeof known !== 'object') {
    throw new AppError('FORWARD_PERSON_REFUSED', { reason: 'the login has ended; log in again' });
  }
  const credential = typeof known === 'object' ? known.credential : undefined;
  return { principal: received(principal, credential), hop, relayed: client };
}

function received({ member, scopes, ...principal }: SentPrincipal, credential: Principal['credential']): Principal {
  return {
    ...principal,
    scopes: new Set(scopes),
    ...(credential !== undefined && { credential }),
    ...(member !== undefined && { member: received(member, credential) }),
  };
}

/** Converts the error of another instance into an error of this one. */
export function ownError({ status, code, message, data }: PeerError): AppError {
  const { code: word, requestId: _, ...details } = asObject(data);
  if (typeof word !== 'string' || !Object.hasOwn(bridgeErrors, word)) {
    return new RelayedError({ code, message, data }, status);
  }
  return new AppError(word as ErrorCode, details);
}

/** A request that another instance has signed, and whose body is still to be read. */
export interface SignedRequest {
  /** Throws RELAY_REFUSED for any body but the one that was signed. */
  checkBody(body: Uint8Array): void;
}

/** Signs requests between the instances of one database. Each is valid for one instance, once, and for a short time. */
export interface RelaySignatures {
  /** The headers of a request with that body to an instance. */
  sign(request: UnsignedRequest): Readonly<Record<string, string>>;
  /** Throws RELAY_REFUSED unless an instance of this database has just signed the request for this one, and for a repeated request. */
  check(head: Pick<RequestHead, 'method' | 'path' | 'headers'>): SignedRequest;
}

interface UnsignedRequest {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  /** Empty for none. */
  readonly body: string;
  readonly target: string;
}

interface RelaySignaturesOptions {
  /** Derived from the secret key, which all instances of a database share. The first one signs, each is accepted. */
  readonly keys: SecretKeys;
  /** The id of this instance. Each start of the program has another one, so it is an epoch, too. */
  readonly instance: string;
  /** The clocks of machines may differ, so both sides use the clock of the database. */
  databaseNow(): number;
  readonly clock: Pick<Clock, 'monotonic'>;
  readonly randomness: Pick<Randomness, 'bytes'>;
}

export const RELAY_HEADER = 'x-trestle-relay';
const VERSION = 'v1';
const NONCE_BYTES = 18;
/** Between the time of a request and that of the database, either way. */
const MAX_AGE_MS = 30_000;
/** Longer than a request is valid, so that none is accepted twice. */
const NONCE_KEPT_MS = 2 * MAX_AGE_MS;
const MAX_NONCES = 100_000;
const FORM = /^v1\.(ins_[A-Za-z0-9]{1,64})\.(\d{1,15})\.([\w-]{24})\.([\w-]{43})\.([\w-]{43})$/;

export function createRelaySignatures(options: RelaySignaturesOptions): RelaySignatures {
  const { keys, instance, databaseNow, clock, randomness } = options;
  /** By nonce, until when it is kept; the oldest first. */
  const seen = new Map<string, number>();

  function noteNonce(nonce: string): void {
    const now = clock.monotonic();
    for (const [old, until] of seen) {
      if (until > now) break;
      seen.delete(old);
    }
    if (seen.has(nonce)) throw refused('it was sent before');
    if (seen.size >= MAX_NONCES) throw new AppError('OVERLOADED');
    seen.set(nonce, now + NONCE_KEPT_MS);
  }

  return {
    sign({ method, path, body, target }) {
      const nonce = Buffer.from(randomness.bytes(NONCE_BYTES)).toString('base64url');
      const claims = [target, Math.round(databaseNow()), nonce, digestOf(body)].join('.');
      return { [RELAY_HEADER]: `${VERSION}.${claims}.${signatureOf(keys[0], method, path, claims)}` };
    },
    check({ method, path, headers }) {
      const given = headers[RELAY_HEADER];
      const [, target = '', time = '', nonce = '', digest = '', signature = ''] = FORM.exec(String(given)) ?? [];
      const claims = [target, time, nonce, digest].join('.');
      const isSigned = keys.some((key) => sameSecret(signature, signatureOf(key, method, path, claims)));
      if (signature === '' || !isSigned) throw refused('its signature is not that of an instance of this database');
      if (target !== instance) throw refused('it is for another instance');
      if (Math.abs(databaseNow() - Number(time)) > MAX_AGE_MS) throw refused('its time has passed');
      noteNonce(nonce);
      return {
        checkBody(body) {
          if (!sameSecret(digestOf(body), digest)) throw refused('its body was changed');
        },
      };
    },
  };
}

function digestOf(body: string | Uint8Array): string {
  return createHash('sha256').update(body).digest('base64url');
}

function signatureOf(key: Uint8Array, method: string, path: string, claims: string): string {
  return createHmac('sha256', key).update(`${VERSION}\n${method}\n${path}\n${claims}`).digest('base64url');
}

function refused(reason: string): AppError {
  return new AppError('RELAY_REFUSED', { reason });
}

/** Finds the instance that has a session: the one that runs its turn, else one with the data directory that it was last in. */
export interface SessionOwners {
  /** Whether another instance, even a dead one, has a turn of the session: no other may serve it until that turn is ended. */
  isTaken(row: SessionRow | undefined): boolean;
  /** Undefined: this instance serves the session, or no instance that can be reached has it. */
  ofRow(row: SessionRow | undefined): Promise<RelayTarget | undefined>;
  /** Finds the session that a principal means by a name; only the principal's own where the call starts a session. */
  find(principal: Principal, sessionId: string, startsOne: boolean): Promise<SessionRow | undefined>;
  byKey(key: string): Promise<SessionRow | undefined>;
  inThread(principal: Principal, threadId: string): Promise<readonly SessionRow[]>;
  /** Another living instance with that data directory. */
  withHome(home: string): Promise<RelayTarget | undefined>;
  /** While this instance leaves: the one that new sessions are handed to. Undefined: they are served here. */
  successor(): Promise<RelayTarget | undefined>;
  /** The other instances that can be reached and whose leases have not ended. */
  others(): Promise<readonly RelayTarget[]>;
}

interface SessionOwnersOptions {
  readonly instance: string;
  readonly home: string;
  readonly deadAfterMs: number;
  readonly instances: Pick<InstanceStore, 'findReachable' | 'list'>;
  /** Whether this instance is about to stop. */
  isLeaving(): boolean;
  readonly sessions: Pick<SessionStore, 'find' | 'findSeen' | 'findByThread' | 'byKey'>;
}

export function createSessionOwners(options: SessionOwnersOptions): SessionOwners {
  const { instance, home, deadAfterMs, instances, sessions } = options;
  const listOthers = async (isWanted: (facts: InstanceFacts) => boolean) =>
    (await instances.list()).filter(
      (row) => row.id !== instance && row.address.startsWith('http') && isWanted(describeInstance(row)),
    );
  return {
    async ofRow(row) {
      if (row === undefined || row.closed_at !== null || row.instance === instance) return undefined;
      if (row.instance === '' && (row.home === '' || row.home === home)) return undefined;
      const found = await instances.findReachable({ id: row.instance, home: row.home }, deadAfterMs);
      return found?.id === instance ? undefined : found;
    },
    isTaken: (row) => row?.closed_at === null && row.instance !== '' && row.instance !== instance,
    async find(principal, sessionId, startsOne) {
      const own = await sessions.find(sessionId, principal.id);
      const owners = ownersSought(principal);
      if (startsOne || own?.closed_at === null || owners?.length === 1) return own;
      return (await sessions.findSeen(sessionId, owners)) ?? own;
    },
    byKey: sessions.byKey,
    inThread: async (principal, threadId) =>
      ownFirst(principal, await sessions.findByThread(threadId, ownersSought(principal))),
    async withHome(wanted) {
      if (wanted === '' || wanted === home) return undefined;
      return instances.findReachable({ id: '', home: wanted }, deadAfterMs);
    },
    async successor() {
      if (!options.isLeaving()) return undefined;
      const others = await listOthers(({ state }) => state === 'serving');
      return others.sort((left, right) => left.sessions - right.sessions)[0];
    },
    others: () => listOthers(({ state }) => state !== 'silent'),
  };
}
