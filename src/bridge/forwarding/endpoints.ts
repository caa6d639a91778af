import { lookup as lookUpName, lookup } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import type { buildConnector } from 'undici';
import { type Clock, withinTime } from '../../platform/clock/clock.ts';
import { ConfigurationError, type Problem } from '../../platform/config/problem.ts';
import {
  type AddressClass,
  classifyAddress,
  classifyHost,
  isMetadataName,
} from '../../platform/network-address/classify-address.ts';
import type { DistributedSettings } from '../settings.ts';

/** Where tunnels between bridges end. */
const TUNNEL_CLASSES: ReadonlySet<AddressClass> = new Set(['loopback', 'private', 'link-local', 'carrier-nat']);

/** Whether a bridge may be reached at that address, or may reach us from it without any token. */
export function isTunnelAddress(address: string): boolean {
  return TUNNEL_CLASSES.has(classifyAddress(address));
}

/** Returns what is wrong with the host of an endpoint; undefined when nothing is, or when only a lookup can tell. */
export function refusalOfEndpoint(endpoint: string): string | undefined {
  const host = URL.parse(endpoint)?.hostname ?? '';
  const found = classifyHost(host);
  if (found.kind === 'invalid') return 'it names no host';
  if (found.kind === 'name') return isMetadataName(found.name) ? 'it is where a cloud keeps credentials' : undefined;
  return isTunnelAddress(found.address) ? undefined : refusalOfAddress(found.address);
}

function refusalOfAddress(address: string): string {
  return `${address} is not a loopback, private or link-local address`;
}

const LOOKUP_MS = 2_000;

/**
 * Looks up the names of endpoints when the bridge starts, and refuses those with an address outside of the tunnels.
 * All names are checked again when a connection is made, also those that cannot be looked up now.
 */
export async function checkEndpointNames(
  nodes: DistributedSettings['nodes'],
  clock: Pick<Clock, 'after'>,
  lookUp: LookupFunction = lookup,
): Promise<void> {
  const found = await Promise.all(
    nodes.map(async ({ id, bridge_endpoint: endpoint }, index): Promise<readonly Problem[]> => {
      const host = new URL(endpoint).hostname;
      if (isIP(host) !== 0 || host.startsWith('[')) return [];
      const addresses = await withinTime(clock, LOOKUP_MS, addressesOf(host, lookUp), () => []);
      const refused = addresses.find((address) => !isTunnelAddress(address));
      if (refused === undefined) return [];
      const wrong = `the name of node "${id}" leads outside: ${refusalOfAddress(refused)}`;
      const right = 'name the end of a tunnel';
      return [{ where: 'configuration', path: `distributed.nodes[${index}].bridge_endpoint`, wrong, right }];
    }),
  );
  const problems = found.flat();
  if (problems.length > 0) throw new ConfigurationError(problems);
}

function addressesOf(host: string, lookUp: LookupFunction): Promise<readonly string[]> {
  return new Promise((resolve) => {
    lookUp(host, { all: true }, (error, found) => {
      if (error !== null) resolve([]);
      else resolve(typeof found === 'string' ? [found] : found.map(({ address }) => address));
    });
  });
}

/** Why there is no connection. Nothing was sent. */
export class NotConnected extends Error {
  /** The endpoint is one that must not be used. */
  readonly isRefused: boolean;

  constructor(reason: string, isRefused: boolean) {
    super(reason);
    this.name = 'NotConnected';
    this.isRefused = isRefused;
  }
}

interface PeerConnectorOptions {
  readonly clock: Pick<Clock, 'after'>;
  /** For looking up the name, connecting, and TLS. */
  readonly connectMs: number;
  readonly lookup?: LookupFunction | undefined;
  /** Called when the connection stands, before anything is sent on it; what it throws ends the attempt. */
  beforeSend(): Promise<void>;
}

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens at its address',
  ENOTFOUND: 'its name is not known',
  EAI_AGAIN: 'its name could not be looked up',
  EHOSTUNREACH: 'there is no way to its address',
  ENETUNREACH: 'there is no way to its address',
};

/**
 * Connects once, for one request. The address is looked at before the connection is made and again on the connection
 * itself, so that nothing is sent outside even if the name resolves differently by then.
 */
export function createPeerConnector(
  build: typeof buildConnector,
  options: PeerConnectorOptions,
): buildConnector.connector {
  const { clock, connectMs, beforeSend } = options;
  const connect = build({ allowH2: false, timeout: 0, lookup: checkedLookup(options.lookup ?? lookUpName) });
  let isUsed = false;

  return (target, callback) => {
    // After a lost connection the client would connect again and repeat the request, which may have been received already.
    if (isUsed) {
      callback(new Error('the connection was cut'), null);
      return;
    }
    isUsed = true;
    let isOver = false;
    const end = (error: unknown): void => {
      if (isOver) return;
      isOver = true;
      stopTimer();
      callback(error instanceof Error ? error : new Error(String(error)), null);
      socket.destroy();
    };
    // On a busy machine the timer may fire before the event of the connection.
    const stopTimer = clock.after(connectMs, () =>
      setImmediate(() => end(new NotConnected('it could not be reached in time', false))),
    );
    const socket = connect(target, (error, connected) => {
      if (error !== null) {
        end(notConnected(error));
        return;
      }
      const address = connected.remoteAddress ?? '';
      if (!isTunnelAddress(address)) {
        end(new NotConnected(refusalOfAddress(address || 'its address'), true));
        return;
      }
      // The time of our own work does not count as time of the node.
      stopTimer();
      beforeSend().then(() => {
        if (isOver) return;
        if (connected.destroyed) {
          end(new NotConnected('the connection was cut', false));
          return;
        }
        isOver = true;
        callback(null, connected);
      }, end);
    }) as unknown as { destroy(): void };
  };
}

/** Refuses a name when any of its addresses is one that must not be used. */
function checkedLookup(lookup: LookupFunction): LookupFunction {
  return (host, options, callback) =>
    lookup(host, options, (error, found, family) => {
      const addresses = typeof found === 'string' ? [found] : (found ?? []).map(({ address }) => address);
      const refused = error === null ? addresses.find((address) => !isTunnelAddress(address)) : undefined;
      if (refused === undefined) callback(error, found, family);
      else callback(new NotConnected(refusalOfAddress(refused), true), '', 0);
    });
}

function notConnected(error: Error): NotConnected {
  if (error instanceof NotConnected) return error;
  const first = error instanceof AggregateError ? (error.errors[0] as unknown) : error;
  const code = String((first as { readonly code?: unknown }).code ?? '');
  return new NotConnected(REASONS[code] ?? `the connection failed${code === '' ? '' : ` with ${code}`}`, false);
}
