import type { IncomingMessage } from 'node:http';
import { AppError } from '../errors/app-error.ts';
import { classifyAddress } from '../network-address/classify-address.ts';
import { isLoopbackHost } from '../network-address/classify-host.ts';
import { isLoopbackBind } from './listen-address.ts';

export interface HostCheckOptions {
  readonly boundHost: string;
  readonly insecure: boolean;
  readonly allowedHosts: readonly string[];
  /** Whether anything on the listener answers without a credential right now. */
  isOpen(): boolean;
}

type CheckedRequest = Pick<IncomingMessage, 'headers' | 'rawHeaders' | 'httpVersion'>;

/** Why a request may not come in under its Host; undefined when it may. */
export type HostCheck = (request: CheckedRequest) => AppError | undefined;

/**
 * A page in a browser can point a name of its own at 127.0.0.1 and so reach what listens there (DNS rebinding): where no
 * credential is asked for, the Host header must be a name that no stranger can own.
 */
export function createHostCheck(options: HostCheckOptions): HostCheck {
  const isAllowed = hostRule(options);
  let lastAllowed: string | undefined;

  return (request) => {
    const count = countHosts(request.rawHeaders);
    if (!options.isOpen()) {
      if (count === 1 || (count === 0 && request.httpVersion === '1.0')) return undefined;
      return new AppError('INVALID_REQUEST', { reason: 'exactly one Host header is needed' });
    }
    const host = count === 1 ? (request.headers.host ?? '') : '';
    if (host === lastAllowed) return undefined;
    if (!isAllowed(host)) return new AppError('HOST_NOT_ALLOWED', { host: host.slice(0, 200) });
    lastAllowed = host;
    return undefined;
  };
}

function hostRule({ boundHost, insecure, allowedHosts }: HostCheckOptions): (host: string) => boolean {
  const loopback = isLoopbackBind(boundHost);
  // A credential that a reload took away must not open a public address.
  if (!loopback && !insecure) return () => false;
  const allowed = new Set(allowedHosts.map((host) => host.toLowerCase()));
  return (host) => {
    if (isLoopbackHost(host)) return true;
    const [, name = ''] = /^(\[[^\]]*\]|[^:]*)(?::\d{1,5})?$/.exec(host.toLowerCase()) ?? [];
    if (name === '') return false;
    if (allowed.has(name) || allowed.has(host.toLowerCase())) return true;
    return !loopback && classifyAddress(name) !== 'invalid';
  };
}

function countHosts(rawHeaders: readonly string[]): number {
  let count = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index];
    if (name !== undefined && name.length === 4 && name.toLowerCase() === 'host') count += 1;
  }
  return count;
}
