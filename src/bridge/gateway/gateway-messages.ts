import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { link, open, readFile, stat, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Randomness } from '../../platform/clock/randomness.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { AgentEvent } from '../agents/agent-provider.ts';
import { asObject, textOf, withinBounds } from '../agents/agent-text.ts';

export interface GatewayEvent {
  readonly name: string;
  readonly payload: Readonly<Record<string, unknown>>;
}

/** Why a call to the gateway failed: OFFLINE, RPC_TIMEOUT, SOCKET_CLOSED, OVERLOADED or the gateway's own code. */
export interface GatewayFailure {
  readonly code: string;
  readonly message: string;
  /** The gateway refuses and will refuse again: a retry makes it worse. */
  readonly isRefusal: boolean;
}

const MAX_MESSAGE = 500;
/** Prefixes of the codes with which a gateway refuses our device or token. */
const REFUSALS = ['AUTH_', 'DEVICE_', 'PAIRING_', 'CONTROL_UI_'];

export function gatewayFailed(code: string, message: string, isRefusal = false): AppError {
  return new AppError('GATEWAY_FAILED', {
    reason: message.slice(0, MAX_MESSAGE),
    gatewayCode: code,
    ...(isRefusal && { isRefusal }),
  });
}

/** From the `error` of an answer: the code in its details is the exact one. */
export function readGatewayError(value: unknown): AppError {
  const { code, message, details } = asObject(value);
  const own = typeof code === 'string' && code !== '' ? code : 'UNKNOWN';
  const detailed = asObject(details).code;
  const exact = typeof detailed === 'string' && detailed !== '' ? detailed : own;
  const isRefusal = own === 'NOT_PAIRED' || REFUSALS.some((word) => exact.startsWith(word));
  return gatewayFailed(exact, typeof message === 'string' && message !== '' ? message : exact, isRefusal);
}

/** Describes a failure for the caller. A fault of ours is not explained. */
export function describeGatewayFailure(error: unknown): GatewayFailure {
  const details = error instanceof AppError && error.code === 'GATEWAY_FAILED' ? error.details : {};
  const { gatewayCode, reason, isRefusal } = details;
  return {
    code: typeof gatewayCode === 'string' ? gatewayCode : 'INTERNAL_ERROR',
    message: typeof reason === 'string' ? reason : 'The call could not be made.',
    isRefusal: isRefusal === true,
  };
}

export function isSocketLoss(error: unknown): boolean {
  const { code } = describeGatewayFailure(error);
  return code === 'SOCKET_CLOSED' || code === 'OFFLINE';
}

/** Turns an event of a run into an event of its session; undefined for events that sessions do not have. */
export function readGatewayEvent({ name, payload }: GatewayEvent): AgentEvent | undefined {
  if (name !== 'agent') return undefined;
  const data = asObject(payload.data);
  switch (payload.stream) {
    case 'assistant':
      return said('text', data.delta);
    case 'thinking':
    case 'reasoning':
      return said('thinking', data.delta);
    case 'tool':
      return readToolCall(data);
    case 'run_status':
      return said('status', textOf(data.phase).replaceAll('_', ' '));
    default:
      return undefined;
  }
}

function said(kind: 'text' | 'thinking' | 'status', text: unknown): AgentEvent | undefined {
  return typeof text === 'string' && text !== '' ? { kind, text } : undefined;
}

const STATUSES = { start: 'in_progress', update: 'in_progress', result: 'completed' } as const;
/** The kind of each tool by its name, because the gateway does not send the kind. */
const TOOL_KINDS: Readonly<Record<string, string>> = {
  read: 'read',
  ls: 'read',
  find: 'search',
  grep: 'search',
  write: 'edit',
  edit: 'edit',
  apply_patch: 'edit',
  exec: 'execute',
  process: 'execute',
  web_fetch: 'fetch',
  web_search: 'fetch',
};

function readToolCall(data: Readonly<Record<string, unknown>>): AgentEvent | undefined {
  const { phase, args, result, partialResult, isError } = data;
  const toolCallId = textOf(data.toolCallId);
  const tool = textOf(data.name);
  if (toolCallId === '' || (phase !== 'start' && phase !== 'update' && phase !== 'result')) return undefined;
  const output = phase === 'result' ? result : partialResult;
  return {
    kind: 'tool_call',
    toolCallId,
    title: tool || 'tool',
    status: phase === 'result' && isError === true ? 'failed' : STATUSES[phase],
    toolKind: (Object.hasOwn(TOOL_KINDS, tool) ? TOOL_KINDS[tool] : undefined) ?? 'other',
    ...(args !== undefined && { input: withinBounds(args) }),
    ...(output !== undefined && { output: withinBounds(output) }),
  };
}

/** The text of a message as gateways write it: a string, or a list of parts. */
export function messageText(message: unknown): string {
  const { content, text } = asObject(message);
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return textOf(text);
  return content.map((part) => (asObject(part).type === 'text' ? textOf(asObject(part).text) : '')).join('');
}

/** The versions of the gateway's protocol that we speak. */
const PROTOCOLS = { minProtocol: 3, maxProtocol: 4 };
const CLIENT = { id: 'gateway-client', mode: 'backend' };
const ROLE = 'operator';
/** The rights that chats and tools need. The bridge never asks for the right to administrate the gateway. */
const SCOPES = ['operator.read', 'operator.write'];

interface Challenge {
  readonly nonce: string;
  readonly ts: number;
}

/** The answer of a gateway that accepts the connection. */
export interface Greeting {
  readonly protocol: number;
  readonly serverVersion: string;
  readonly serverName: string;
  readonly mainSessionKey: string;
  readonly role: string;
  readonly scopes: readonly string[];
  readonly hasDeviceToken: boolean;
  /** How often the gateway sends a heartbeat. */
  readonly tickMs: number;
}

export interface ConnectOptions {
  readonly challenge: Challenge;
  readonly device: DeviceKey;
  /** Empty: none is sent. */
  readonly token: string;
  readonly version: string;
  readonly platform: string;
}

export function readChallenge(payload: unknown): Challenge | undefined {
  const { nonce, ts } = asObject(payload);
  return typeof nonce === 'string' && nonce !== '' && typeof ts === 'number' ? { nonce, ts } : undefined;
}

/** The parameters of `connect`. The signature binds device, rights, token and challenge together (form v3). */
export function connectParams({ challenge, device, token, version, platform }: ConnectOptions): object {
  const { nonce, ts } = challenge;
  const parts = ['v3', device.id, CLIENT.id, CLIENT.mode, ROLE, SCOPES.join(','), ts, token, nonce, platform, ''];
  return {
    ...PROTOCOLS,
    client: { ...CLIENT, version, platform },
    role: ROLE,
    scopes: SCOPES,
    caps: ['tool-events'],
    ...(token !== '' && { auth: { token } }),
    device: {
      id: device.id,
      publicKey: device.publicKey,
      signature: device.sign(parts.join('|')),
      signedAt: ts,
      nonce,
    },
  };
}

const DEFAULT_TICK_MS = 30_000;
const MIN_TICK_MS = 1000;
const MAX_TICK_MS = 300_000;

/** Reads the greeting; undefined if it is not one, or if the protocol version is not supported. */
export function readGreeting(payload: unknown): Greeting | undefined {
  const { type, protocol, server, auth, snapshot, policy } = asObject(payload);
  if (type !== 'hello-ok' || typeof protocol !== 'number') return undefined;
  if (protocol < PROTOCOLS.minProtocol || protocol > PROTOCOLS.maxProtocol) return undefined;
  const granted = asObject(auth);
  const { scopes } = granted;
  const tick = asObject(policy).tickIntervalMs;
  return {
    protocol,
    serverVersion: textOf(asObject(server).version),
    serverName: textOf(asObject(server).name) || textOf(asObject(server).host),
    mainSessionKey: textOf(asObject(asObject(snapshot).sessionDefaults).mainSessionKey),
    role: textOf(granted.role) || ROLE,
    scopes: Array.isArray(scopes) ? scopes.filter((scope): scope is string => typeof scope === 'string') : SCOPES,
    hasDeviceToken: textOf(granted.deviceToken) !== '',
    tickMs: Math.min(MAX_TICK_MS, Math.max(MIN_TICK_MS, typeof tick === 'number' ? tick : DEFAULT_TICK_MS)),
  };
}

/** The identity under which a gateway knows this bridge: an Ed25519 key that never leaves it. */
export interface DeviceKey {
  /** SHA-256 of the raw public key, in hex. */
  readonly id: string;
  /** The raw public key in base64url. */
  readonly publicKey: string;
  /** In base64url. */
  sign(text: string): string;
}

const RAW_KEY_BYTES = 32;

/** Reads the key, or creates it the first time. Like the secret key, the file may be read by its owner only. */
export async function loadDeviceKey(file: string, randomness: Pick<Randomness, 'bytes'>): Promise<DeviceKey> {
  const stored = await readKey(file);
  if (stored !== undefined) return describeKey(stored);
  await createKey(file, randomness);
  // When two bridges start at the same time, both use the key that was stored first.
  const made = await readKey(file);
  if (made === undefined) throw unusable(`${file} was removed while it was being made`);
  return describeKey(made);
}

function describeKey(privateKey: KeyObject): DeviceKey {
  const raw = createPublicKey(privateKey).export({ format: 'der', type: 'spki' }).subarray(-RAW_KEY_BYTES);
  return {
    id: createHash('sha256').update(raw).digest('hex'),
    publicKey: raw.toString('base64url'),
    sign: (text) => sign(null, Buffer.from(text, 'utf8'), privateKey).toString('base64url'),
  };
}

async function readKey(file: string): Promise<KeyObject | undefined> {
  try {
    const { mode } = await stat(file);
    if ((mode & 0o077) !== 0) throw unusable(`other users may read or change ${file}; run: chmod 600 ${file}`);
    const key = createPrivateKey(await readFile(file, 'utf8'));
    if (key.asymmetricKeyType !== 'ed25519') throw unusable(`${file} holds no Ed25519 key`);
    return key;
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    if (error instanceof AppError) throw error;
    throw unusable(`${file} cannot be read (${errorCode(error)})`, error);
  }
}

/** Writes the key to a draft and links it to its path, because linking fails if the file exists already. */
async function createKey(file: string, randomness: Pick<Randomness, 'bytes'>): Promise<void> {
  const draft = join(dirname(file), `.device-key-${Buffer.from(randomness.bytes(9)).toString('hex')}`);
  const { privateKey } = generateKeyPairSync('ed25519');
  try {
    {
      await using handle = await open(draft, 'wx', 0o600);
      await handle.writeFile(privateKey.export({ format: 'pem', type: 'pkcs8' }));
      await handle.sync();
    }
    await link(draft, file)
      .catch((error: unknown) => {
        if (errorCode(error) !== 'EEXIST') throw error;
      })
      .finally(() => unlink(draft));
  } catch (error) {
    throw unusable(`${file} cannot be made (${errorCode(error)})`, error);
  }
}

function unusable(reason: string, cause?: unknown): AppError {
  return new AppError('DEVICE_KEY_INVALID', { reason }, { cause });
}
