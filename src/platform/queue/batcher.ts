import type { Clock } from '../clock/clock.ts';

/** Collects items and writes them in batches, in order and off the path of the code that adds them. */
export interface Batcher<Item> {
  /** False when there was no room: the item is dropped, and counted. */
  add(item: Item): boolean;
  /** Resolves when all that was added before is written; rejects when the writing fails (it is tried again later). */
  flush(): Promise<void>;
  /** Writes what is left and refuses what comes later. What cannot be written after some tries is dropped, and counted. */
  close(): Promise<void>;
  /** How many are not written yet. */
  size(): number;
}

export interface BatcherOptions<Item> {
  /** The most that may wait, the batch that is being written included. */
  readonly capacity: number;
  readonly maxBatch: number;
  /** How long an item may wait for others to fill its batch. */
  readonly maxDelayMs: number;
  /**
   * What comes during a write waits for others too, unless it fills a batch or somebody waits for it. Absent: it is written right
   * after, so that nothing waits longer than it must. Under a steady load that is one small batch after the other.
   */
  readonly waitsAgain?: boolean;
  /** Never called again before it has settled. A rejected batch stays and is written again. */
  write(batch: readonly Item[]): Promise<void>;
  readonly clock: Pick<Clock, 'after'>;
  onDropped(count: number): void;
}

interface Waiter {
  readonly target: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

const MAX_DELAY_FACTOR = 64;
const TRIES_AT_CLOSE = 3;

export function createBatcher<Item>(options: BatcherOptions<Item>): Batcher<Item> {
  const { capacity, maxBatch, maxDelayMs, waitsAgain = false, write, clock, onDropped } = options;
  const items: Item[] = [];
  let waiters: Waiter[] = [];
  let written = 0;
  let failures = 0;
  let writing = false;
  let closed = false;
  let stopTimer: (() => void) | undefined;

  function writeSoon(): void {
    if (writing || stopTimer !== undefined || items.length === 0) return;
    stopTimer = clock.after(maxDelayMs * Math.min(2 ** failures, MAX_DELAY_FACTOR), () => void writeNow());
  }

  /** Whether what is left when a write has ended is written immediately. */
  function goesOn(): boolean {
    if (items.length === 0) return false;
    return !waitsAgain || waiters.length > 0 || items.length >= maxBatch;
  }

  async function writeNow(): Promise<void> {
    if (writing) return;
    writing = true;
    stopTimer?.();
    stopTimer = undefined;
    try {
      do {
        const batch = items.slice(0, maxBatch);
        await write(batch);
        items.splice(0, batch.length);
        written += batch.length;
        failures = 0;
        settle();
      } while (goesOn());
    } catch (error) {
      failures += 1;
      for (const waiter of waiters.splice(0)) waiter.reject(error);
    }
    writing = false;
    writeSoon();
  }

  function settle(): void {
    for (const waiter of waiters) if (waiter.target <= written) waiter.resolve();
    waiters = waiters.filter((waiter) => waiter.target > written);
  }

  function flush(): Promise<void> {
    if (items.length === 0) return Promise.resolve();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    waiters.push({ target: written + items.length, resolve, reject });
    void writeNow();
    return promise;
  }

  return {
    flush,
    size: () => items.length,
    add(item) {
      if (closed || items.length >= capacity) {
        onDropped(1);
        return false;
      }
      items.push(item);
      // After a failure only the timer tries again: a store that is down is not asked for every item.
      if (items.length >= maxBatch && failures === 0) void writeNow();
      else writeSoon();
      return true;
    },
    async close() {
      closed = true;
      for (let tries = 0; tries < TRIES_AT_CLOSE && items.length > 0; tries += 1) await flush().catch(() => undefined);
      stopTimer?.();
      stopTimer = undefined;
      const lost = items.splice(0).length;
      if (lost > 0) onDropped(lost);
    },
  };
}

/** Runs one round at a time: a call during a round leads to one more round after it. */
export function createRounds(round: () => Promise<void>) {
  let current: Promise<void> | undefined;
  let again = false;

  function look(): Promise<void> {
    again = current !== undefined;
    current ??= round().finally(() => {
      current = undefined;
      if (again) void look();
    });
    return current;
  }

  return { look, underWay: () => current };
}
