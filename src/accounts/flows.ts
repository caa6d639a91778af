import type { Clock } from '../platform/clock/clock.ts';
import type { Randomness } from '../platform/clock/randomness.ts';
import type { Runnable } from '../platform/database/statement.ts';
import type { SecretBox } from '../platform/secrets/secret-keys.ts';
import { createToken, digestToken } from '../platform/secrets/tokens.ts';
import type { FlowStore } from './storage/expiring-stores.ts';

/** How long the token of each flow is valid. */
export const FLOW_LIFETIMES = {
  verification: 15 * 60_000,
  mfa_ticket: 5 * 60_000,
  mfa_provision: 10 * 60_000,
  reset: 15 * 60_000,
  forgot: 15 * 60_000,
  set_password: 72 * 3_600_000,
  exchange: 60_000,
  oauth_state: 10 * 60_000,
  setup: 15 * 60_000,
  passkey_add: 10 * 60_000,
  passkey_login: 10 * 60_000,
} as const;

type FlowKind = keyof typeof FLOW_LIFETIMES;

export interface OpenFlow {
  readonly userId: string;
  readonly email: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly expiresAt: number;
}

interface NewFlow {
  readonly userId?: string;
  readonly email?: string;
  readonly data?: Readonly<Record<string, unknown>>;
}

interface IssuedFlow {
  readonly token: string;
  readonly expiresAt: number;
  /** Stores the flow; the token is not valid before. */
  readonly statement: Runnable;
}

/**
 * Flows in several steps. They are stored, so that they continue after a restart and on other instances. Only the holder
 * knows the token: the store has its digest, and the data of the flow encrypted.
 */
export interface Flows {
  issue(kind: FlowKind, flow: NewFlow): IssuedFlow;
  /** Returns undefined for a token that is unknown, used or expired. */
  open(kind: FlowKind, token: string): Promise<OpenFlow | undefined>;
  /** As `open`, but counts a try, and also returns undefined after `limit` tries. */
  tryOpen(kind: FlowKind, token: string, limit: number): Promise<OpenFlow | undefined>;
  /** For the batch that finishes the flow: the first such batch is stored, every other fails with STORAGE_CONFLICT. */
  take(kind: FlowKind, token: string): Runnable;
}

interface FlowsOptions {
  readonly store: FlowStore;
  readonly secretBox: SecretBox;
  readonly clock: Pick<Clock, 'now'>;
  readonly randomness: Pick<Randomness, 'bytes'>;
}

export function createFlows({ store, secretBox, clock, randomness }: FlowsOptions): Flows {
  const opened = (kind: FlowKind, row: Awaited<ReturnType<FlowStore['find']>>): OpenFlow | undefined => {
    if (row === undefined) return undefined;
    const text = Buffer.from(secretBox.open(row.data, contextOf(kind, row.key))).toString('utf8');
    return { userId: row.user_id, email: row.email, data: JSON.parse(text), expiresAt: row.expires_at };
  };
  return {
    issue(kind, { userId = '', email = '', data = {} }) {
      const token = createToken(randomness);
      const key = tokenKey(token);
      const now = clock.now();
      const expiresAt = now + FLOW_LIFETIMES[kind];
      const sealed = secretBox.seal(JSON.stringify(data), contextOf(kind, key));
      const row = { kind, key, user_id: userId, email, data: sealed, attempts: 0, created_at: now };
      return { token, expiresAt, statement: store.add({ ...row, expires_at: expiresAt }) };
    },
    open: async (kind, token) => opened(kind, await store.find({ kind, key: tokenKey(token) }, clock.now())),
    tryOpen: async (kind, token, limit) =>
      opened(kind, await store.reserveTry({ kind, key: tokenKey(token) }, limit, clock.now())),
    take: (kind, token) => store.take({ kind, key: tokenKey(token) }, clock.now()),
  };
}

/** Returns the digest under which a token is stored and found. */
export function tokenKey(token: string): string {
  return digestToken(token).toString('base64url');
}

function contextOf(kind: string, key: string): string {
  return `flow:${kind}:${key}`;
}
