import { lookup as lookUpName } from 'node:dns';
import type { LookupFunction } from 'node:net';
import type { buildConnector } from 'undici';
import type { Clock } from '../../platform/clock/clock.ts';
import { isTunnelAddress, refusalOfAddress } from './endpoint-rule.ts';

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

export interface PeerConnectorOptions {
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
 * itself (contract/bridge 9): whatever a name points to meanwhile, nothing is sent outside.
 */
export function createPeerConnector(
  build: typeof buildConnector,
  options: PeerConnectorOptions,
): buildConnector.connector {
  const { clock, connectMs, beforeSend } = options;
  const connect = build({ allowH2: false, timeout: 0, lookup: checkedLookup(options.lookup ?? lookUpName) });
  let isUsed = false;

  return (target, callback) => {
    // A client that lost its connection would make another one and send again; what it has sent is not `NotConnected`.
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
    // A busy process may see the timer before it sees that the connection stands.
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
      // What comes now is our own affair, and not the node's.
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
