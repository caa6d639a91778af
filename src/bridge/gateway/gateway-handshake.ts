import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { link, open, readFile, stat, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Randomness } from '../../platform/clock/randomness.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { asObject, textOf } from '../agents/agent-text.ts';

/** The versions of the gateway's protocol that we speak (contract/bridge 8). */
const PROTOCOLS = { minProtocol: 3, maxProtocol: 4 };
const CLIENT = { id: 'gateway-client', mode: 'backend' };
const ROLE = 'operator';
/** What chats and tools need. Administration of the gateway is left to its owner. */
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
const LEAST_TICK_MS = 1000;
const MOST_TICK_MS = 300_000;

/** Undefined for what is no greeting, or one of a protocol that we do not speak. */
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
    tickMs: Math.min(MOST_TICK_MS, Math.max(LEAST_TICK_MS, typeof tick === 'number' ? tick : DEFAULT_TICK_MS)),
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

/** Reads the key, or makes it the first time. It is for its owner only, as the secret key is. */
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

/** Written beside its place and linked there, which fails where a file already is. */
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
