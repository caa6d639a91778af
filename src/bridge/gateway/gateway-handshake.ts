import { asObject, textOf } from '../agents/loose-json.ts';
import type { DeviceKey } from './device-key.ts';

/** The versions of the gateway's protocol that we speak (contract/bridge 8). */
const PROTOCOLS = { minProtocol: 3, maxProtocol: 4 };
const CLIENT = { id: 'gateway-client', mode: 'backend' };
const ROLE = 'operator';
/** What chats and tools need. Administration of the gateway is left to its owner. */
const SCOPES = ['operator.read', 'operator.write'];

export interface Challenge {
  readonly nonce: string;
  readonly ts: number;
}

/** What a gateway says when it lets us in. */
export interface Greeting {
  readonly protocol: number;
  readonly serverVersion: string;
  readonly serverName: string;
  readonly mainSessionKey: string;
  readonly role: string;
  readonly scopes: readonly string[];
  readonly hasDeviceToken: boolean;
  /** How often it gives a sign of life. */
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
