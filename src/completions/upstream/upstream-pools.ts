import { lookup } from 'node:dns';
import type { LookupFunction, Socket } from 'node:net';
import type { EnvHttpProxyAgent, Pool } from 'undici';
import { classifyAddress, classifyHost, isMetadataName } from '../../platform/network-address/classify-address.ts';
import { type OutgoingProxy, proxyOptions } from '../../platform/network-address/outgoing-proxy.ts';
import { MAX_CALLS_OF_API } from '../routing/target-board.ts';
import { upstreamError } from '../routing/upstream-failure.ts';

/** The part of a pool that calls need. */
export type UpstreamPool = Pick<Pool, 'dispatch' | 'destroy'>;

/** Connections to upstreams, kept open between calls: a pool per origin and time limit for connecting. */
export interface UpstreamPools {
  /** Throws when the address must not be called. The first call loads the library, and so gives a promise. */
  open(origin: string, connectMs: number): UpstreamPool | Promise<UpstreamPool>;
  /** Breaks off what is under way. */
  close(): Promise<void>;
}

const KEEP_ALIVE_MS = 30_000;
/** What a connection reads at a time, and ahead while nobody takes it; TLS has the same limit by itself. */
const READ_BYTES = 16 * 1024;
/**
 * Node allocates 64 KB for each reading, and a view of a few bytes that waits for a slow client keeps all of them. So
 * connections read into one buffer, which they share because each copies what it has read before the next one reads.
 */
const SMALL_READS: object = {
  highWaterMark: READ_BYTES,
  onread: {
    buffer: Buffer.allocUnsafeSlow(READ_BYTES),
    callback(this: Socket, length: number, shared: Buffer): boolean {
      const chunk = Buffer.allocUnsafeSlow(length);
      shared.copy(chunk, 0, 0, length);
      return this.push(chunk);
    },
  },
};
/** Silence is measured by the exchange, which knows why it waits. */
const NO_TIMEOUT = 0;

/** Origins come from the settings and the table of APIs alone, so there are never more pools than those have rows. */
export function createUpstreamPools(lookUp: LookupFunction = lookup, proxy?: OutgoingProxy): UpstreamPools {
  const pools = new Map<string, UpstreamPool>();
  let library: { readonly Pool: typeof Pool; readonly EnvHttpProxyAgent: typeof EnvHttpProxyAgent } | undefined;
  let closed = false;
  /** The pool that was asked for last: nearly always it is the next one, too. */
  let last: { readonly origin: string; readonly connectMs: number; readonly pool: UpstreamPool } | undefined;

  function make(origin: string, connectMs: number, key: string): UpstreamPool {
    const known = pools.get(key);
    if (known !== undefined) return known;
    if (closed || library === undefined) throw upstreamError('the server is shutting down');
    if (!URL.canParse(origin)) throw upstreamError('its address is not a URL');
    refuseMetadata(new URL(origin).hostname);
    const settings = {
      connections: MAX_CALLS_OF_API,
      pipelining: 1,
      allowH2: false,
      headersTimeout: NO_TIMEOUT,
      bodyTimeout: NO_TIMEOUT,
      keepAliveTimeout: KEEP_ALIVE_MS,
      connect: { timeout: connectMs, lookup: checkedLookup(lookUp), ...SMALL_READS },
    };
    const pool = proxy === undefined ? new library.Pool(origin, settings) : proxied(library, origin, settings, proxy);
    pools.set(key, pool);
    return pool;
  }

  return {
    open(origin, connectMs) {
      if (last?.origin === origin && last.connectMs === connectMs) return last.pool;
      const key = `${connectMs} ${origin}`;
      const pool = pools.get(key);
      if (pool !== undefined) {
        last = { origin, connectMs, pool };
        return pool;
      }
      if (library !== undefined) return make(origin, connectMs, key);
      return import('undici').then((loaded) => {
        library = loaded;
        return make(origin, connectMs, key);
      });
    },
    async close() {
      closed = true;
      const open = [...pools.values()];
      pools.clear();
      last = undefined;
      await Promise.all(open.map((pool) => pool.destroy()));
    },
  };
}

/**
 * Calls to an origin through the proxy of the environment, or directly where that names the host as an exception. The
 * proxy looks names up: of a name that points to where a cloud keeps credentials only the name itself can be refused here.
 */
function proxied(
  library: { readonly EnvHttpProxyAgent: typeof EnvHttpProxyAgent },
  origin: string,
  settings: Pool.Options,
  proxy: OutgoingProxy,
): UpstreamPool {
  const agent = new library.EnvHttpProxyAgent({ ...settings, ...proxyOptions(proxy) });
  return {
    dispatch: (call, handler) => agent.dispatch({ ...call, origin }, handler),
    destroy: () => agent.destroy(),
  } as UpstreamPool;
}

/** Base URLs are the administrator's, and may well be on this machine; where a cloud keeps credentials is never one. */
function refuseMetadata(hostname: string): void {
  const host = classifyHost(hostname);
  const refused =
    host.kind === 'address' ? host.class === 'metadata' : host.kind === 'name' && isMetadataName(host.name);
  if (refused) throw upstreamError(METADATA);
}

const METADATA = 'its address is one where a cloud hands out credentials';

/** The same for what a name turns out to point to, when it is looked up for the connection itself. */
function checkedLookup(lookUp: LookupFunction): LookupFunction {
  return (hostname, options, callback) =>
    lookUp(hostname, options, (error, found, family) => {
      const addresses = typeof found === 'string' ? [found] : (found ?? []).map(({ address }) => address);
      const refused = error === null && addresses.some((address) => classifyAddress(address) === 'metadata');
      if (refused) callback(upstreamError(METADATA), '', 0);
      else callback(error, found, family);
    });
}
