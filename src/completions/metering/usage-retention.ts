import type { Clock } from '../../platform/clock/clock.ts';
import { createSortableIds } from '../../platform/ids/sortable-id.ts';
import { dayOf } from '../keys/budget-period.ts';
import type { UsageRetentionStore } from '../storage/usage-retention-store.ts';

export interface UsageRetentionOptions {
  readonly store: UsageRetentionStore;
  readonly clock: Clock;
  /** How long usage is kept; 0: for ever. */
  readonly keepMs: number;
  onError(error: unknown): void;
}

export interface UsageRetention {
  stop(): Promise<void>;
}

const FIRST_AFTER_MS = 60_000;
const INTERVAL_MS = 3_600_000;
const PAUSE_MS = 50;
const ROWS_PER_STEP = 500;
/** Nobody tries to store the same sums again after so long. */
const KEEP_FLUSHES_MS = 86_400_000;

/** Removes usage that is too old, every hour, a little at a time. */
export function startUsageRetention({ store, clock, keepMs, onError }: UsageRetentionOptions): UsageRetention {
  let stopped = false;
  let cancelTimer = () => {};
  let resume = () => {};
  let sweeping = Promise.resolve();

  async function inSteps(removeSome: () => Promise<number>): Promise<void> {
    while (!stopped && (await removeSome()) >= ROWS_PER_STEP) {
      await new Promise<void>((resolve) => {
        resume = resolve;
        cancelTimer = clock.after(PAUSE_MS, resolve);
      });
    }
  }

  async function sweep(): Promise<void> {
    const now = clock.now();
    await inSteps(() => store.removeFlushes(firstIdAt('flu_', now - KEEP_FLUSHES_MS), ROWS_PER_STEP));
    if (keepMs === 0) return;
    await inSteps(() => store.removeRecords(firstIdAt('usg_', now - keepMs), ROWS_PER_STEP));
    await inSteps(() => store.removeTotals(dayOf(now - keepMs), ROWS_PER_STEP));
  }

  function sweepLater(ms: number): void {
    cancelTimer = clock.after(ms, () => {
      sweeping = sweep()
        .catch(onError)
        .then(() => {
          if (!stopped) sweepLater(INTERVAL_MS);
        });
    });
  }
  sweepLater(FIRST_AFTER_MS);

  return {
    async stop() {
      stopped = true;
      cancelTimer();
      resume();
      await sweeping;
    },
  };
}

/** Ids sort by time: this one comes before all that were made at that moment. */
function firstIdAt(prefix: string, time: number): string {
  return createSortableIds({ now: () => Math.max(0, time) }, { bytes: (length) => new Uint8Array(length) })(prefix);
}
