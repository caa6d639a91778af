import { hash } from 'node:crypto';
import type { Clock } from '../../platform/clock/clock.ts';

/** Whole answers to equal requests of one key (contract/completions 6). */
export interface ResponseCache {
  /** Holder, path and body together: an answer is never given to another key. */
  keyOf(holderId: string, path: string, body: Buffer): string;
  get(key: string): Buffer | undefined;
  put(key: string, body: Buffer, ttlMs: number): void;
}

export interface ResponseCacheOptions {
  readonly clock: Pick<Clock, 'monotonic'>;
  readonly maxBytes?: number;
  readonly maxEntryBytes?: number;
}

interface Entry {
  readonly body: Buffer;
  readonly until: number;
}

const MAX_BYTES = 64 * 1024 * 1024;
const MAX_ENTRY_BYTES = 1024 * 1024;
/** What an entry costs besides its body. */
const ENTRY_OVERHEAD = 256;

export function createResponseCache(options: ResponseCacheOptions): ResponseCache {
  const { clock, maxBytes = MAX_BYTES, maxEntryBytes = MAX_ENTRY_BYTES } = options;
  // In the order of their last use: the first one is the one to drop.
  const entries = new Map<string, Entry>();
  let size = 0;

  function drop(key: string, { body }: Entry): void {
    entries.delete(key);
    size -= body.length + ENTRY_OVERHEAD;
  }

  return {
    keyOf: (holderId, path, body) =>
      hash('sha256', Buffer.concat([Buffer.from(`${holderId}\n${path}\n`), body]), 'base64'),
    get(key) {
      const entry = entries.get(key);
      if (entry === undefined) return undefined;
      if (entry.until <= clock.monotonic()) {
        drop(key, entry);
        return undefined;
      }
      entries.delete(key);
      entries.set(key, entry);
      return entry.body;
    },
    put(key, body, ttlMs) {
      if (body.length > maxEntryBytes) return;
      const before = entries.get(key);
      if (before !== undefined) drop(key, before);
      entries.set(key, { body, until: clock.monotonic() + ttlMs });
      size += body.length + ENTRY_OVERHEAD;
      for (const [oldest, entry] of entries) {
        if (size <= maxBytes) break;
        drop(oldest, entry);
      }
    },
  };
}
