import { hash } from 'node:crypto';
import { type Clock, withinTime } from '../../platform/clock/clock.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { Logger } from '../../platform/log/logger.ts';
import { callerName, type KeyHolder } from '../keys/admission.ts';
import type { CallRecord } from '../routing/call-record.ts';

/** Complete responses to equal requests of one caller, including streams. */
export interface ResponseCache {
  /** Returns the key of an entry, from caller, path and body, so that a response is never given to another caller. */
  keyOf(holderId: string, path: string, body: Buffer): string;
  /** Returns the entry of this instance. */
  get(key: string): Buffer | undefined;
  /** The store of all instances; undefined if there is none. */
  readonly shared?: SharedStore | undefined;
  /** Where room is needed, the holder that takes most of it loses its oldest answers: nobody takes it from the others. */
  put(holderId: string, key: string, body: Buffer, ttlMs: number): void;
}

export interface ResponseCacheOptions {
  readonly clock: Pick<Clock, 'monotonic'>;
  readonly shared?: SharedStore | undefined;
  readonly maxBytes?: number;
  readonly maxEntryBytes?: number;
  /** What every response here went through, such as the guardrails: one that went through something else is never found. */
  readonly scope?: string;
}

/** A store that several instances share. It may lose entries or be unavailable; it is then treated as empty, without waiting. */
export interface SharedStore {
  /** Never rejects. */
  find(keys: readonly string[]): Promise<readonly (Buffer | undefined)[]>;
  put(key: string, body: Buffer, ttlMs: number): void;
  stop(): void;
}

interface Entry {
  readonly holderId: string;
  readonly body: Buffer;
  readonly until: number;
}

const MAX_BYTES = 64 * 1024 * 1024;
const MAX_ENTRY_BYTES = 1024 * 1024;
/** The size of an entry besides its body. */
const ENTRY_OVERHEAD = 256;

export function createResponseCache(options: ResponseCacheOptions): ResponseCache {
  const { clock, shared, scope = '', maxBytes = MAX_BYTES, maxEntryBytes = MAX_ENTRY_BYTES } = options;
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
    shared,
    keyOf: (holderId, path, body) =>
      hash('sha256', Buffer.concat([Buffer.from(`${scope}${holderId}\n${path}\n`), body]), 'base64'),
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
      shared?.put(key, body, ttlMs);
    },
  };
}

/** The cached response for one call, and the function that keeps its response. */
export interface CacheUse {
  readonly hit: Buffer | undefined;
  keep(answer: Buffer): void;
}

interface CacheableCall {
  readonly holder: KeyHolder;
  readonly head: RequestHead;
  readonly body: Buffer;
  /** The names of what the request lost on its way are kept with the response; a hit gets them. */
  readonly record: Pick<CallRecord, 'dropped'>;
}

/** Looks up the response to a call. Undefined if the call does not use the cache; then no key is computed. */
export function useCache(
  cache: ResponseCache,
  ttlMs: number,
  { holder, head, body, record }: CacheableCall,
): CacheUse | undefined | Promise<CacheUse> {
  if (ttlMs <= 0) return undefined;
  const holderId = callerName(holder);
  const asked = VARYING.map((name) => head.headers[name] ?? '').join('\n');
  const key = cache.keyOf(holderId, `${FORM}\n${head.path}?${head.query}\n${asked}`, body);
  const use = (kept: Buffer | undefined): CacheUse => ({
    hit: kept && answerOf(kept, record),
    keep: (answer) => cache.put(holderId, key, keptForm(answer, record.dropped), ttlMs),
  });
  const own = cache.get(key);
  if (own !== undefined || cache.shared === undefined) return use(own);
  return cache.shared.find([key]).then(([kept]) => use(kept));
}

/** The form of entries: a line of JSON with the dropped parameters, then the answer. Part of each key, since versions can share a store. */
const FORM = '2';
const LINE_END = 0x0a;

function keptForm(answer: Buffer, dropped: readonly string[]): Buffer {
  return Buffer.concat([Buffer.from(`${JSON.stringify(dropped)}\n`), answer]);
}

function answerOf(kept: Buffer, record: CacheableCall['record']): Buffer {
  const end = kept.indexOf(LINE_END);
  record.dropped = JSON.parse(kept.toString('utf8', 0, end)) as string[];
  return kept.subarray(end + 1);
}

/** Keys of one request that other instances are asked for, the latest ones. */
const MAX_SHARED = 64;

/** The bodies of several keys: of this instance, else of others. Undefined stands for a key that is not wanted. */
export function findAll(
  cache: Pick<ResponseCache, 'get' | 'shared'>,
  keys: readonly (string | undefined)[],
): readonly (Buffer | undefined)[] | Promise<readonly (Buffer | undefined)[]> {
  const found = keys.map((key) => (key === undefined ? undefined : cache.get(key)));
  const missing = keys.flatMap((key, at) => (key !== undefined && found[at] === undefined ? [{ key, at }] : []));
  if (cache.shared === undefined || missing.length === 0) return found;
  const asked = missing.slice(-MAX_SHARED);
  return cache.shared.find(asked.map(({ key }) => key)).then((bodies) => {
    for (const [index, { at }] of asked.entries()) found[at] = bodies[index];
    return found;
  });
}

/** Headers that change what upstreams answer, which models may answer, or whether an answer to a part of the request will do. */
const VARYING = ['anthropic-beta', 'anthropic-version', 'openai-beta', 'x-strict-params', 'x-fallback-models'];

/** What is used of the package `@redis/client`. The package is optional, so its own types may not be there. */
interface RedisPackage {
  createClient(options: object): RedisClient;
  readonly RESP_TYPES: { readonly BLOB_STRING: number };
  /** The server answered with an error: the connection is fine. */
  readonly ErrorReply: new () => Error;
}

interface RedisClient {
  readonly isReady: boolean;
  on(event: 'error', listener: (error: Error) => void): unknown;
  connect(): Promise<unknown>;
  mGet(keys: readonly string[]): Promise<readonly (Buffer | null)[]>;
  set(key: string, value: Buffer, options: object): Promise<unknown>;
  destroy(): void;
}

export interface RedisStoreOptions {
  readonly url: string;
  readonly prefix: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

const PACKAGE = '@redis/client';
const CONNECT_MS = 2000;
/** A call waits this long for Redis, once: then Redis counts as away. */
const ANSWER_MS = 250;
const RETRY_MS = 5000;
const MAX_COMMANDS = 1000;
/** The most bytes that wait for a confirmation of Redis. More is not sent. */
const MAX_UNSENT_BYTES = 16 * 1024 * 1024;

/** Connects when it is used, at most every five seconds, and asks nothing of a Redis that is away. */
export function createRedisStore({ url, prefix, clock, logger }: RedisStoreOptions): SharedStore {
  let client: RedisClient | undefined;
  let loaded: RedisPackage | undefined;
  let isConnecting = false;
  let isStopped = false;
  let isAway = false;
  let retryAt = Number.NEGATIVE_INFINITY;
  let unsent = 0;
  void connect();

  async function connect(): Promise<void> {
    if (isStopped || isConnecting || clock.monotonic() < retryAt) return;
    isConnecting = true;
    let fresh: RedisClient | undefined;
    try {
      loaded ??= (await import(PACKAGE)) as RedisPackage;
      fresh = loaded.createClient({
        url,
        socket: { connectTimeout: CONNECT_MS, reconnectStrategy: false },
        disableOfflineQueue: true,
        commandsQueueMaxLength: MAX_COMMANDS,
        commandOptions: { typeMapping: { [loaded.RESP_TYPES.BLOB_STRING]: Buffer } },
      });
      const opened = fresh;
      opened.on('error', (error) => lose(opened, error));
      await withinTime(clock, CONNECT_MS, opened.connect(), late);
      client = opened;
      if (isStopped) stop();
      else if (isAway) logger.info({ prefix }, 'Redis is back');
      isAway = false;
    } catch (error) {
      lose(fresh, error);
    }
    isConnecting = false;
  }

  function lose(lost: RedisClient | undefined, error: unknown): void {
    close(lost);
    if (lost !== client && client !== undefined) return;
    client = undefined;
    retryAt = clock.monotonic() + RETRY_MS;
    if (!isAway && !isStopped)
      logger.warn({ err: error, package: PACKAGE }, 'Redis is away: this instance caches alone');
    isAway = true;
  }

  function failed(used: RedisClient, error: unknown): void {
    if (loaded !== undefined && error instanceof loaded.ErrorReply)
      logger.warn({ err: error }, 'Redis refused a command');
    else lose(used, error);
  }

  function stop(): void {
    isStopped = true;
    close(client);
    client = undefined;
  }

  return {
    stop,
    async find(keys) {
      const used = client;
      const nothing = keys.map(() => undefined);
      if (used === undefined) {
        void connect();
        return nothing;
      }
      try {
        const found = await withinTime(clock, ANSWER_MS, used.mGet(keys.map((key) => `${prefix}:${key}`)), late);
        return found.map((body) => (body === null || body.length > MAX_ENTRY_BYTES ? undefined : body));
      } catch (error) {
        failed(used, error);
        return nothing;
      }
    },
    put(key, body, ttlMs) {
      const used = client;
      if (used === undefined) void connect();
      if (used?.isReady !== true || unsent + body.length > MAX_UNSENT_BYTES) return;
      unsent += body.length;
      const expiration = { type: 'PX', value: Math.max(1, Math.floor(ttlMs)) };
      used
        .set(`${prefix}:${key}`, body, { expiration })
        .catch((error: unknown) => failed(used, error))
        .finally(() => {
          unsent -= body.length;
        });
    },
  };
}

function late(): never {
  throw new Error('Redis did not answer in time');
}

/** Closes a client, which throws if its connection is lost. */
function close(client: RedisClient | undefined): void {
  try {
    client?.destroy();
  } catch {
    // It is closed.
  }
}
