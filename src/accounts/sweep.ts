import { type Clock, type Repeated, repeat } from '../platform/clock/clock.ts';
import { DEVICE_LIFETIME_MS } from './login/known-devices.ts';
import type { SweepStore, SweptTable } from './storage/sweep-store.ts';

export interface SweepOptions {
  readonly store: SweepStore;
  readonly clock: Pick<Clock, 'now' | 'after'>;
  /** How long audit records are kept; 0: for ever. */
  readonly auditRetentionMs: number;
  /** Deletes accounts whose owners asked for it and can no longer undo it. */
  deleteClosed(): Promise<void>;
  onError(error: unknown): void;
}

const EVERY_MS = 60_000;
/** Small enough that others hardly wait for it. */
const STEP_ROWS = 200;
const STEPS = 50;
const BILLING_KEPT_MS = 30 * 24 * 3_600_000;

const EXPIRING: readonly SweptTable[] = [
  { table: 'sessions', key: ['id'], time: 'expires_at', keptMs: 0 },
  { table: 'session_tokens', key: ['token_hash'], time: 'expires_at', keptMs: 0 },
  { table: 'refresh_tokens', key: ['token_hash'], time: 'expires_at', keptMs: 0 },
  { table: 'flows', key: ['kind', 'key'], time: 'expires_at', keptMs: 0 },
  { table: 'invitations', key: ['id'], time: 'expires_at', keptMs: 0 },
  { table: 'limits', key: ['policy', 'key'], time: 'expires_at', keptMs: 0 },
  { table: 'devices', key: ['user_id', 'device_hash'], time: 'last_seen_at', keptMs: DEVICE_LIFETIME_MS },
  { table: 'billing_deliveries', key: ['digest'], time: 'received_at', keptMs: BILLING_KEPT_MS },
];

/** Removes what has ended, every minute and in small steps. Nothing depends on it: what has ended is never found. */
export function startSweep({ store, clock, auditRetentionMs, deleteClosed, onError }: SweepOptions): Repeated {
  const audit: SweptTable = { table: 'audit', key: ['id'], time: 'at', keptMs: auditRetentionMs };
  const tables = auditRetentionMs === 0 ? EXPIRING : [...EXPIRING, audit];
  async function sweepOnce(stopped: AbortSignal): Promise<void> {
    for (const table of tables) {
      for (let step = 0; step < STEPS && !stopped.aborted; step += 1) {
        if ((await store.remove(table, clock.now(), STEP_ROWS)) < STEP_ROWS) break;
      }
    }
    if (!stopped.aborted) await deleteClosed();
  }

  return repeat({ clock, pauseMs: EVERY_MS, work: sweepOnce, onError });
}
