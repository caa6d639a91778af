import { AppError } from '../../platform/errors/app-error.ts';
import {
  type AddressClass,
  classifyAddress,
  classifyHost,
  isLoopbackHost,
  isMetadataName,
} from '../../platform/network-address/classify-address.ts';
import { createAddressMatcher } from '../../platform/network-address/ip-address.ts';

/** Where callbacks may go (contract/bridge 7, address rule). */
export interface CallbackRules {
  /** Reads a URL as far as that can be done without a lookup. Throws CALLBACK_URL_REFUSED. */
  read(url: string): CallbackPlace;
  /** Whether a connection to this address may be made. */
  allows(address: string): boolean;
}

export interface CallbackPlace {
  readonly url: URL;
  /** A name that has to be looked up; undefined when the URL has an address in it. */
  readonly name: string | undefined;
}

export interface CallbackRulesOptions {
  /** Ranges that the operator lists. */
  readonly allow: readonly string[];
  /** Whether no token is configured: a local bridge with one user. */
  isOpen(): boolean;
  /** The addresses of this machine. Whoever may not call it directly must not do so through a callback. */
  ownAddresses(): readonly string[];
}

/** Services that understand no HTTP, but might act upon it. */
const REFUSED_PORTS: ReadonlySet<string> = new Set(['22', '25']);
const LISTABLE: ReadonlySet<AddressClass> = new Set(['loopback', 'private', 'carrier-nat', 'public']);

export function createCallbackRules({ allow, isOpen, ownAddresses }: CallbackRulesOptions): CallbackRules {
  const isListed = createAddressMatcher(allow);

  function allows(address: string): boolean {
    const kind = classifyAddress(address);
    if (!LISTABLE.has(kind)) return false;
    if (isListed(address)) return true;
    if (kind === 'loopback') return isOpen();
    return kind === 'public' && (isOpen() || !createAddressMatcher(ownAddresses())(address));
  }

  return {
    allows,
    read(text) {
      const url = URL.parse(text);
      if (url === null) throw refused('it is not a URL');
      if (url.protocol !== 'http:' && url.protocol !== 'https:') throw refused('only http and https can be called');
      if (url.username !== '' || url.password !== '') throw refused('it must not hold credentials');
      if (REFUSED_PORTS.has(url.port)) throw refused(`port ${url.port} is not for callbacks`);
      const host = classifyHost(url.hostname);
      if (host.kind === 'invalid') throw refused('its host is not valid');
      if (host.kind === 'address') {
        if (!allows(host.address)) throw notOpen();
        return { url, name: undefined };
      }
      if (isMetadataName(host.name)) throw notOpen();
      if (isLoopbackHost(host.name) && !allows('127.0.0.1') && !allows('::1')) throw notOpen();
      return { url, name: host.name };
    },
  };
}

/** What the address is stays unsaid: a refusal must not map our network for the caller. */
export function notOpen(): AppError {
  return refused('its address is not open to callbacks; the operator may list it in jobs.callback_allow');
}

function refused(reason: string): AppError {
  return new AppError('CALLBACK_URL_REFUSED', { reason });
}
