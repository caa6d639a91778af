import { type Clock, pause, type Repeated, repeat } from '../../platform/clock/clock.ts';
import { createSortableIds } from '../../platform/ids/sortable-id.ts';
import { dayOf } from '../keys/budgets.ts';
import type { UsageRetentionStore } from '../storage/usage-store.ts';

export interface UsageRetentionOptions {
  readonly store: UsageRetentionStore;
  readonly clock: Clock;
  /** How long usage is kept; 0: for ever. */
  readonly keepMs: number;
  onError(error: unknown): void;
}

const FIRST_AFTER_MS = 60_000;
const INTERVAL_MS = 3_600_000;
const PAUSE_MS = 50;
const ROWS_PER_STEP = 500;
/** Nobody tries to store the same sums again after so long. */
const KEEP_FLUSHES_MS = 86_400_000;

/** Removes usage that is too old, every hour, a little at a time. */
export function startUsageRetention({ store, clock, keepMs, onError }: UsageRetentionOptions): Repeated {
  async function sweep(stopped: AbortSignal): Promise<void> {
    const inSteps = async (removeSome: () => Promise<number>): Promise<void> => {
      while (!stopped.aborted && (await removeSome()) >= ROWS_PER_STEP) await pause(clock, PAUSE_MS, stopped);
    };
    const now = clock.now();
    await inSteps(() => store.removeFlushes(firstIdAt('flu_', now - KEEP_FLUSHES_MS), ROWS_PER_STEP));
    if (keepMs === 0) return;
    await inSteps(() => store.removeRecords(firstIdAt('usg_', now - keepMs), ROWS_PER_STEP));
    await inSteps(() => store.removeTotals(dayOf(now - keepMs), ROWS_PER_STEP));
  }
  return repeat({ clock, firstAfterMs: FIRST_AFTER_MS, pauseMs: INTERVAL_MS, work: sweep, onError });
}

/** Ids sort by time: this one comes before all that were made at that moment. */
function firstIdAt(prefix: string, time: number): string {
  return createSortableIds({ now: () => Math.max(0, time) }, { bytes: (length) => new Uint8Array(length) })(prefix);
}
