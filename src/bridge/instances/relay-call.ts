import { AppError, type ErrorCode } from '../../platform/errors/app-error.ts';
import type { PersonTokens, Principal, Scope } from '../../platform/identity/principal.ts';
import { RelayedError, type RequestId } from '../../platform/json-rpc/envelope.ts';
import type { BridgeCaller, RelayedClient } from '../access.ts';
import { asObject } from '../agents/agent-text.ts';
import type { FileRequest, RelayedFile } from '../artifacts/artifact-links.ts';
import { bridgeErrors } from '../errors.ts';
import type { CallPeer, PeerAnswer, PeerError, requestPeerFile } from '../forwarding/call-node.ts';
import type { InstanceRow } from '../storage/bridge-schema.ts';
import type { RelaySignatures } from './relay-signature.ts';

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
/** A turn that waits for its turn sends the head of its answer as soon as it was taken. */
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

/** A principal as it travels: a login or token stays where it is, and a token for five minutes stands for it. */
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
  // The call may have waited for others since the caller was let in.
  if (credential?.isLive() === false) throw new AppError('UNAUTHORIZED');
  const person = credential === undefined ? '' : ((await tokens?.issue(member ?? principal)) ?? '');
  return { principal: sent(principal), person, hop: forwarded?.hop ?? hop };
}

function sent({ credential: _, member, scopes, ...principal }: Principal): SentPrincipal {
  return { ...principal, scopes: [...scopes], ...(member !== undefined && { member: sent(member) }) };
}

/** The caller of a relayed call, as the other instance has let them in. Throws UNAUTHORIZED when their login has ended. */
export async function receiveCaller(
  { caller: { principal, person, hop }, client }: RelayEnvelope,
  tokens: PersonTokens | undefined,
): Promise<BridgeCaller> {
  const known = person === '' ? undefined : await tokens?.read(person);
  if (person !== '' && typeof known !== 'object') throw new AppError('UNAUTHORIZED');
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

/** The error of another instance as if it had come from here. */
export function ownError({ status, code, message, data }: PeerError): AppError {
  const { code: word, requestId: _, ...details } = asObject(data);
  if (typeof word !== 'string' || !Object.hasOwn(bridgeErrors, word)) {
    return new RelayedError({ code, message, data }, status);
  }
  return new AppError(word as ErrorCode, details);
}
