import { lookup } from 'node:dns';
import type { LookupFunction, Socket } from 'node:net';
import type { EnvHttpProxyAgent, Pool } from 'undici';
import { classifyAddress, classifyHost, isMetadataName } from '../../platform/network-address/classify-address.ts';
import { type OutgoingProxy, proxyOptions } from '../../platform/network-address/outgoing-proxy.ts';
import { MAX_CALLS_OF_API } from '../routing/target-board.ts';
import { upstreamError } from '../routing/upstream-failure.ts';

/** The part of a pool that calls need. */
export type UpstreamPool = Pick<Pool, 'dispatch' | 'destroy'>;

/** Connections to upstreams that stay open between calls: one pool for each origin and connect timeout. */
export interface UpstreamPools {
  /** Returns a promise for the first call, which loads the library. Throws if the address must not be called. */
  open(origin: string, connectMs: number): UpstreamPool | Promise<UpstreamPool>;
  /** Aborts running calls. */
  close(): Promise<void>;
}

const KEEP_ALIVE_MS = 30_000;
/** How much a connection reads at a time, and reads ahead while it is paused. TLS has the same limit. */
const READ_BYTES = 16 * 1024;
/**
 * Node allocates 64 KB for each read, and a view of a few bytes that waits for a slow client keeps all 64 KB alive. So connections
 * read into one shared buffer; each copies its bytes before the next one reads.
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
/** The exchange measures silence, because it knows why it waits. */
const NO_TIMEOUT = 0;

/** Creates the pools. Their number is bounded, because origins come only from the settings and the table of APIs. */
export function createUpstreamPools(lookUp: LookupFunction = lookup, proxy?: OutgoingProxy): UpstreamPools {
  const pools = new Map<string, UpstreamPool>();
  let library: { readonly Pool: typeof Pool; readonly EnvHttpProxyAgent: typeof EnvHttpProxyAgent } | undefined;
  let closed = false;
  /** The pool of the last call, because the next call nearly always uses the same one. */
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
 * Calls an origin through the proxy of the environment, or directly if the environment excludes the host. The proxy resolves
 * names, so a name that resolves to a metadata address cannot be detected here; only known names are refused.
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

/** Refuses metadata addresses of clouds, because they hand out credentials. Administrators set base URLs, so other private addresses are allowed. */
function refuseMetadata(hostname: string): void {
  const host = classifyHost(hostname);
  const refused =
    host.kind === 'address' ? host.class === 'metadata' : host.kind === 'name' && isMetadataName(host.name);
  if (refused) throw upstreamError(METADATA);
}

const METADATA = 'its address is one where a cloud hands out credentials';

/** Refuses names that resolve to a metadata address, when the connection looks them up. */
function checkedLookup(lookUp: LookupFunction): LookupFunction {
  return (hostname, options, callback) =>
    lookUp(hostname, options, (error, found, family) => {
      const addresses = typeof found === 'string' ? [found] : (found ?? []).map(({ address }) => address);
      const refused = error === null && addresses.some((address) => classifyAddress(address) === 'metadata');
      if (refused) callback(upstreamError(METADATA), '', 0);
      else callback(error, found, family);
    });
}
