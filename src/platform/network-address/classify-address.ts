import { type IpAddress, ipv4At, parseIpAddress, unmapAddress } from './ip-address.ts';

/**
 * What an address is for. `metadata` is where clouds hand out credentials; `reserved` is what no ordinary host has:
 * documentation, benchmarks, unassigned space, and IPv4 wrapped for transition mechanisms that are out of use.
 */
export type AddressClass =
  | 'loopback'
  | 'unspecified'
  | 'private'
  | 'link-local'
  | 'metadata'
  | 'carrier-nat'
  | 'multicast'
  | 'broadcast'
  | 'reserved'
  | 'public'
  | 'invalid';

/** Classifies an address in its usual spelling; names and odd spellings are `invalid` here: see `classifyHost`. */
export function classifyAddress(text: string): AddressClass {
  const address = parseIpAddress(text);
  return address === undefined ? 'invalid' : classifyIpAddress(unmapAddress(address));
}

type Range = readonly [network: readonly number[], bits: number, kind: AddressClass];

const ipv4 = (text: string): number => {
  const address = parseIpAddress(text);
  return address?.version === 4 ? address.value : 0;
};

/** The first row that contains the address decides (IANA's special-purpose registry, and the clouds' own documents). */
const IPV4_RANGES: readonly (readonly [network: number, bits: number, kind: AddressClass])[] = [
  [ipv4('169.254.169.254'), 32, 'metadata'],
  [ipv4('169.254.170.2'), 32, 'metadata'],
  [ipv4('169.254.170.23'), 32, 'metadata'],
  [ipv4('169.254.42.42'), 32, 'metadata'],
  [ipv4('169.254.0.23'), 32, 'metadata'],
  [ipv4('100.100.100.200'), 32, 'metadata'],
  [ipv4('192.0.0.192'), 32, 'metadata'],
  // Azure's host agent: a public address that every virtual machine there reaches without leaving its host.
  [ipv4('168.63.129.16'), 32, 'metadata'],
  [ipv4('0.0.0.0'), 32, 'unspecified'],
  [ipv4('0.0.0.0'), 8, 'reserved'],
  [ipv4('10.0.0.0'), 8, 'private'],
  [ipv4('100.64.0.0'), 10, 'carrier-nat'],
  [ipv4('127.0.0.0'), 8, 'loopback'],
  [ipv4('169.254.0.0'), 16, 'link-local'],
  [ipv4('172.16.0.0'), 12, 'private'],
  [ipv4('192.0.0.0'), 24, 'reserved'],
  [ipv4('192.0.2.0'), 24, 'reserved'],
  [ipv4('192.88.99.0'), 24, 'reserved'],
  [ipv4('192.168.0.0'), 16, 'private'],
  [ipv4('198.18.0.0'), 15, 'reserved'],
  [ipv4('198.51.100.0'), 24, 'reserved'],
  [ipv4('203.0.113.0'), 24, 'reserved'],
  [ipv4('224.0.0.0'), 4, 'multicast'],
  [ipv4('255.255.255.255'), 32, 'broadcast'],
  [ipv4('240.0.0.0'), 4, 'reserved'],
];

const IPV6_RANGES: readonly Range[] = [
  [[0, 0, 0, 0, 0, 0, 0, 0], 128, 'unspecified'],
  [[0, 0, 0, 0, 0, 0, 0, 1], 128, 'loopback'],
  [[0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254], 128, 'metadata'],
  [[0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x23], 128, 'metadata'],
  [[0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x254], 128, 'metadata'],
  [[0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x42], 128, 'metadata'],
  [[0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128, 'metadata'],
  [[0xfc00], 7, 'private'],
  [[0xfec0], 10, 'private'],
  [[0xfe80], 10, 'link-local'],
  [[0xff00], 8, 'multicast'],
  [[0x2001, 0], 23, 'reserved'],
  [[0x2001, 0x0db8], 32, 'reserved'],
  [[0x3fff], 20, 'reserved'],
  [[0x2000], 3, 'public'],
];

interface Embedding {
  readonly network: readonly number[];
  readonly bits: number;
  readonly at: number;
  /** Teredo stores the client's address with every bit turned. */
  readonly inverted?: boolean;
  /** What the address is when the IPv4 address inside it is a public one. */
  readonly otherwise: AddressClass;
}

const EMBEDDINGS: readonly Embedding[] = [
  // NAT64 (RFC 6052): how hosts without IPv4 reach public IPv4 hosts.
  { network: [0x64, 0xff9b, 0, 0, 0, 0], bits: 96, at: 6, otherwise: 'public' },
  { network: [0, 0, 0, 0, 0, 0], bits: 96, at: 6, otherwise: 'reserved' },
  { network: [0, 0, 0, 0, 0xffff, 0], bits: 96, at: 6, otherwise: 'reserved' },
  { network: [0x2002], bits: 16, at: 1, otherwise: 'reserved' },
  { network: [0x2001, 0], bits: 32, at: 6, inverted: true, otherwise: 'reserved' },
];

function classifyIpAddress(address: IpAddress): AddressClass {
  if (address.version === 4) return classifyIpv4(address.value);
  const { groups } = address;
  const exact = IPV6_RANGES.find(([network, bits]) => bits === 128 && isWithin(groups, network, bits));
  if (exact !== undefined) return exact[2];
  for (const { network, bits, at, inverted, otherwise } of EMBEDDINGS) {
    if (!isWithin(groups, network, bits)) continue;
    const inside = ipv4At(groups, at);
    const kind = classifyIpv4(inverted === true ? 0xffff_ffff - inside : inside);
    return kind === 'public' ? otherwise : kind;
  }
  return IPV6_RANGES.find(([network, bits]) => isWithin(groups, network, bits))?.[2] ?? 'reserved';
}

function classifyIpv4(value: number): AddressClass {
  for (const [network, bits, kind] of IPV4_RANGES) {
    const size = 2 ** (32 - bits);
    if (value >= network && value < network + size) return kind;
  }
  return 'public';
}

function isWithin(groups: readonly number[], network: readonly number[], bits: number): boolean {
  for (let index = 0, left = bits; left > 0; index += 1, left -= 16) {
    const mask = left >= 16 ? 0xffff : (0xffff << (16 - left)) & 0xffff;
    if ((((groups[index] ?? 0) ^ (network[index] ?? 0)) & mask) !== 0) return false;
  }
  return true;
}

type ClassifiedHost =
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
