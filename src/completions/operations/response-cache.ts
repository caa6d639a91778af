import { hash } from 'node:crypto';
import type { Clock } from '../../platform/clock/clock.ts';
import type { RequestHead } from '../../platform/http/surface.ts';

/** Whole answers to equal requests of one key, streams included (contract/completions 6). */
export interface ResponseCache {
  /** Holder, path and body together: an answer is never given to another key. */
  keyOf(holderId: string, path: string, body: Buffer): string;
  get(key: string): Buffer | undefined;
  /** Where room is needed, the holder that takes most of it loses its oldest answers: nobody takes it from the others. */
  put(holderId: string, key: string, body: Buffer, ttlMs: number): void;
}

export interface ResponseCacheOptions {
  readonly clock: Pick<Clock, 'monotonic'>;
  readonly maxBytes?: number;
  readonly maxEntryBytes?: number;
}

interface Entry {
  readonly holderId: string;
  readonly body: Buffer;
  readonly until: number;
}

const MAX_BYTES = 64 * 1024 * 1024;
const MAX_ENTRY_BYTES = 1024 * 1024;
/** What an entry costs besides its body. */
const ENTRY_OVERHEAD = 256;

export function createResponseCache(options: ResponseCacheOptions): ResponseCache {
  const { clock, maxBytes = MAX_BYTES, maxEntryBytes = MAX_ENTRY_BYTES } = options;
  const entries = new Map<string, Entry>();
  /** The keys of each holder in the order of their last use, and what its answers take. */
  const holders = new Map<string, { readonly keys: Set<string>; bytes: number }>();
  let size = 0;

  function add(key: string, entry: Entry): void {
    const bytes = entry.body.length + ENTRY_OVERHEAD;
    const holder = holders.get(entry.holderId) ?? { keys: new Set(), bytes: 0 };
    holders.set(entry.holderId, holder);
    holder.keys.add(key);
    holder.bytes += bytes;
    size += bytes;
    entries.set(key, entry);
  }

  function drop(key: string, { holderId, body }: Entry): void {
    const bytes = body.length + ENTRY_OVERHEAD;
    const holder = holders.get(holderId);
    entries.delete(key);
    size -= bytes;
    if (holder === undefined) return;
    holder.keys.delete(key);
    holder.bytes -= bytes;
    if (holder.keys.size === 0) holders.delete(holderId);
  }

  function dropOne(): void {
    let largest: { readonly keys: Set<string>; readonly bytes: number } | undefined;
    for (const holder of holders.values()) if (holder.bytes > (largest?.bytes ?? 0)) largest = holder;
    for (const key of largest?.keys ?? []) {
      const entry = entries.get(key);
      if (entry === undefined) continue;
      drop(key, entry);
      return;
    }
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
      const keys = holders.get(entry.holderId)?.keys;
      keys?.delete(key);
      keys?.add(key);
      return entry.body;
    },
    put(holderId, key, body, ttlMs) {
      if (body.length > maxEntryBytes) return;
      const before = entries.get(key);
      if (before !== undefined) drop(key, before);
      add(key, { holderId, body, until: clock.monotonic() + ttlMs });
      while (size > maxBytes && entries.size > 0) dropOne();
    },
  };
}

/** What the cache has for one call, and where its answer goes. */
export interface CacheUse {
  readonly hit: Buffer | undefined;
  keep(answer: Buffer): void;
}

/** Looks for the answer to a call. Undefined where it may not come from the cache: then nothing is computed. */
export function useCache(
  cache: ResponseCache,
  ttlMs: number,
  { holderId, head, body }: { readonly holderId: string; readonly head: RequestHead; readonly body: Buffer },
): CacheUse | undefined {
  if (ttlMs <= 0) return undefined;
  const asked = VARYING.map((name) => head.headers[name] ?? '').join('\n');
  const key = cache.keyOf(holderId, `${head.path}?${head.query}\n${asked}`, body);
  return { hit: cache.get(key), keep: (answer) => cache.put(holderId, key, answer, ttlMs) };
}

/** Headers that reach upstreams and change what they answer. */
const VARYING = ['anthropic-beta', 'anthropic-version', 'openai-beta'];
