import { type AddressClass, classifyAddress } from './classify-address.ts';

export type ClassifiedHost =
  | { readonly kind: 'address'; readonly address: string; readonly class: AddressClass }
  /** Lower case, in ASCII (punycode), without the final dot. What it points to only a lookup can tell. */
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'invalid' };

/** What ends a host in a URL, or what the URL parser would silently drop: none of it belongs into a host. */
const NOT_IN_A_HOST = /[\s\p{Cc}/\\?#@]/u;
const HOST_HEADER = /^(\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,254})(?::(\d{1,5}))?$/i;

const METADATA_NAMES: ReadonlySet<string> = new Set([
  'instance-data',
  'instance-data.ec2.internal',
  'metadata',
  'metadata.azure.internal',
  'metadata.goog',
  'metadata.google.internal',
  'metadata.packet.net',
  'metadata.platformequinix.com',
  'metadata.tencentyun.com',
]);

/**
 * Classifies the host of a URL or of a setting as a URL parser reads it: `2130706433`, `0x7f.1`, `0177.0.0.1`
 * and full-width digits are addresses there, so they are here.
 */
export function classifyHost(host: string): ClassifiedHost {
  const direct = classifyAddress(host);
  if (direct !== 'invalid') return { kind: 'address', address: withoutBrackets(host), class: direct };
  if (host === '' || NOT_IN_A_HOST.test(host)) return { kind: 'invalid' };
  const hostname = parseHost(host);
  if (hostname === undefined) return { kind: 'invalid' };
  const found = classifyAddress(hostname);
  if (found !== 'invalid') return { kind: 'address', address: withoutBrackets(hostname), class: found };
  const name = hostname.endsWith('.') ? hostname.slice(0, -1) : hostname;
  return name === '' ? { kind: 'invalid' } : { kind: 'name', name };
}

/** Whether a `Host` header names this machine itself: `localhost` and the names under it, 127.0.0.0/8, `[::1]`; any port. */
export function isLoopbackHost(hostHeader: string): boolean {
  const parts = HOST_HEADER.exec(hostHeader);
  if (parts === null || Number(parts[2] ?? 0) > 65_535) return false;
  const host = (parts[1] ?? '').toLowerCase();
  const name = host.endsWith('.') ? host.slice(0, -1) : host;
  // RFC 6761, 6.3: browsers and resolvers never ask the network for these names, so no attacker can point them elsewhere.
  if (name === 'localhost' || name.endsWith('.localhost')) return !name.startsWith('.') && !name.includes('..');
  return classifyAddress(host) === 'loopback';
}

/** Whether a name is one under which a cloud hands out credentials to its machines. */
export function isMetadataName(name: string): boolean {
  const plain = name.toLowerCase();
  return METADATA_NAMES.has(plain.endsWith('.') ? plain.slice(0, -1) : plain);
}

function parseHost(host: string): string | undefined {
  // A colon outside brackets would be read as a port.
  if (host.startsWith('[') ? !host.endsWith(']') : host.includes(':')) return undefined;
  return URL.parse(`http://${host}/`)?.hostname;
}

function withoutBrackets(host: string): string {
  return host.startsWith('[') ? host.slice(1, -1) : host;
}
