import type { Clock } from '../../platform/clock/clock.ts';
import type { KeyRow } from '../storage/completions-schema.ts';
import type { KeyStore } from '../storage/key-store.ts';
import { type FoundKey, readKey } from './issued-key.ts';

/** Finds issued keys by their digest, mostly in memory. */
export interface KeyLookup {
  /** At once when it is known, otherwise after one read. */
  find(digest: string): FoundKey | undefined | Promise<FoundKey | undefined>;
  /** A key is gone: it is not found from now on. */
  forget(id: string): void;
}

export interface KeyLookupOptions {
  readonly store: Pick<KeyStore, 'byDigest'>;
  readonly clock: Pick<Clock, 'monotonic'>;
  /**
   * How long a key is taken to be there still. For ever where all changes pass through `forget`; where other instances
   * may remove keys, as long as a removed one may go on working there.
   */
  readonly freshMs: number;
}

interface Entry {
  readonly key: FoundKey;
  readAt: number;
}

const MAX_ENTRIES = 10_000;

export function createKeyLookup({ store, clock, freshMs }: KeyLookupOptions): KeyLookup {
  // In the order of their last reading: the first one is the one to drop.
  const entries = new Map<string, Entry>();
  const digests = new Map<string, string>();
  /** Calls that come together share one read. */
  const reading = new Map<string, Promise<FoundKey | undefined>>();
  let removals = 0;

  function drop(digest: string): void {
    const entry = entries.get(digest);
    if (entry === undefined) return;
    entries.delete(digest);
    digests.delete(entry.key.holder.id);
  }

  function keep(digest: string, row: KeyRow): FoundKey {
    const known = entries.get(digest);
    const key = known?.key ?? readKey(row);
    entries.delete(digest);
    entries.set(digest, { key, readAt: clock.monotonic() });
    digests.set(row.id, digest);
    const [oldest] = entries.keys();
    if (entries.size > MAX_ENTRIES && oldest !== undefined) drop(oldest);
    return key;
  }

  async function read(digest: string): Promise<FoundKey | undefined> {
    const before = removals;
    const row = await store.byDigest(digest);
    // What was read while a key was removed may be that key: only the store knows.
    if (before !== removals) return read(digest);
    if (row !== undefined) return keep(digest, row);
    drop(digest);
    return undefined;
  }

  return {
    find(digest) {
      const entry = entries.get(digest);
      if (entry !== undefined && clock.monotonic() - entry.readAt < freshMs) return entry.key;
      const known = reading.get(digest);
      if (known !== undefined) return known;
      const fresh = read(digest).finally(() => reading.delete(digest));
      reading.set(digest, fresh);
      return fresh;
    },
    forget(id) {
      removals += 1;
      const digest = digests.get(id);
      if (digest !== undefined) drop(digest);
    },
  };
}
