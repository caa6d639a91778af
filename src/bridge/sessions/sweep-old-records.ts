import type { Clock } from '../../platform/clock/clock.ts';
import type { RetentionStore } from '../storage/retention-store.ts';

/** How long things are kept, in milliseconds; 0 is for ever. */
export interface Retention {
  readonly events: number;
  readonly audit: number;
}

export interface SweepOptions {
  readonly store: RetentionStore;
  readonly retention: Retention;
  readonly clock: Pick<Clock, 'now' | 'after'>;
  readonly signal: AbortSignal;
}

const STEP = 500;
/** Others write between two steps. */
const PAUSE_MS = 20;

/** Deletes what is older than it is kept, in small steps. Turns go with the updates that they had. */
export async function sweepOldRecords({ store, retention, clock, signal }: SweepOptions): Promise<void> {
  const kinds = [
    [retention.events, store.deleteUpdates],
    [retention.events, store.deleteTurns],
    [retention.audit, store.deleteAuditRecords],
  ] as const;
  for (const [keptMs, deleteSome] of kinds) {
    if (keptMs === 0) continue;
    const before = clock.now() - keptMs;
    while (!signal.aborted && (await deleteSome(before, STEP)) === STEP) {
      await new Promise<void>((resolve) => clock.after(PAUSE_MS, resolve));
    }
  }
}
