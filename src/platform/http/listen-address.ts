import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ListenAddress } from '../config/listen-address.ts';
import { AppError, errorCode } from '../errors/app-error.ts';
import { classifyAddress } from '../network-address/classify-address.ts';
import { findPortOwner } from './port-owner.ts';
import type { HttpSurface } from './surface.ts';

export interface BoundAddress extends ListenAddress {
  /** Where a browser on this machine reaches it. */
  readonly url: string;
}

/** Whether only this machine can reach an address. A name other than `localhost` may mean anything: it is not. */
export function isLoopbackBind(host: string): boolean {
  return host.toLowerCase() === 'localhost' || classifyAddress(host) === 'loopback';
}

export interface ListenQuestion {
  readonly host: string;
  readonly insecure: boolean;
  readonly surfaces: readonly Pick<HttpSurface, 'title' | 'credentialSetting' | 'isOpen'>[];
}

/** Why this address must not be opened, as one line that says what to set; undefined when it may. */
export function refusalToListen({ host, insecure, surfaces }: ListenQuestion): string | undefined {
  if (insecure || isLoopbackBind(host)) return undefined;
  const open = surfaces.filter((surface) => surface.isOpen());
  if (open.length === 0) return undefined;
  const titles = open.map(({ title }) => title).join(', ');
  const settings = open.flatMap(({ credentialSetting }) => credentialSetting ?? []);
  const remedy = settings.length === 0 ? 'configure a credential' : `set ${settings.join(' and ')}`;
  return `${host} can be reached from other machines and no credential protects ${titles}: ${remedy}, listen on 127.0.0.1, or give --insecure`;
}

/** Opens the address; what goes wrong becomes an `AppError` that names the address and, where known, who holds it. */
export async function openAddress(server: Server, { host, port }: ListenAddress): Promise<BoundAddress> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', reject);
  server.listen({ host, port }, resolve);
  try {
    await promise;
  } catch (error) {
    throw await listenError(error, host, port);
  } finally {
    server.off('error', reject);
  }
  const bound = server.address() as AddressInfo;
  return { host: bound.address, port: bound.port, url: urlOf(bound) };
}

async function listenError(error: unknown, host: string, port: number): Promise<AppError> {
  switch (errorCode(error)) {
    case 'EADDRINUSE': {
      const owner = await findPortOwner(port);
      const details = {
        host,
        port,
        ...owner,
        owner: owner === undefined ? '' : ` by ${owner.command} (pid ${owner.pid})`,
      };
      return new AppError('PORT_IN_USE', details, { cause: error });
    }
    case 'EACCES':
      return new AppError('LISTEN_DENIED', { host, port }, { cause: error });
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return new AppError('ADDRESS_NOT_AVAILABLE', { host, port }, { cause: error });
    default:
      return new AppError('LISTEN_FAILED', { host, port, reason: errorCode(error) || 'unknown' }, { cause: error });
  }
}

function urlOf({ address, port }: AddressInfo): string {
  const reachable = address === '0.0.0.0' ? '127.0.0.1' : address === '::' ? '::1' : address;
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`;
}
