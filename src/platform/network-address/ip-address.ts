import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';
import { AppError } from '../errors/app-error.ts';

/** An IPv4 address as one number, or an IPv6 address as its eight 16-bit groups. */
export type IpAddress =
  | { readonly version: 4; readonly value: number }
  | { readonly version: 6; readonly groups: readonly number[] };

/** Reads an address in its usual spelling; brackets and a zone (`fe80::1%eth0`) are allowed around IPv6. */
export function parseIpAddress(text: string): IpAddress | undefined {
  if (isIPv4(text)) return { version: 4, value: parseIpv4(text) };
  const bare = text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text;
  if (!isIPv6(bare)) return undefined;
  return { version: 6, groups: parseIpv6(withoutZone(bare)) };
}

/** The IPv4 address inside `::ffff:a.b.c.d`, which is the same host as that address; any other address stays as it is. */
export function unmapAddress(address: IpAddress): IpAddress {
  if (address.version === 4) return address;
  const [first = 0, second = 0, third = 0, fourth = 0, fifth = 0, marker = 0] = address.groups;
  const mapped = (first | second | third | fourth | fifth) === 0 && marker === 0xffff;
  return mapped ? { version: 4, value: ipv4At(address.groups, 6) } : address;
}

/** The two groups from `index` on, read as an IPv4 address. */
export function ipv4At(groups: readonly number[], index: number): number {
  return (groups[index] ?? 0) * 0x1_0000 + (groups[index + 1] ?? 0);
}

export function formatIpAddress(address: IpAddress): string {
  if (address.version === 6) return address.groups.map((group) => group.toString(16)).join(':');
  const { value } = address;
  return [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255].join('.');
}

function parseIpv4(text: string): number {
  return text.split('.').reduce((value, part) => value * 256 + Number(part), 0);
}

function withoutZone(text: string): string {
  const zone = text.indexOf('%');
  return zone === -1 ? text : text.slice(0, zone);
}

function parseIpv6(text: string): number[] {
  const [head = '', tail] = text.split('::');
  const first = parseGroups(head);
  if (tail === undefined) return first;
  const last = parseGroups(tail);
  const zeros = new Array<number>(8 - first.length - last.length).fill(0);
  return [...first, ...zeros, ...last];
}

function parseGroups(text: string): number[] {
  if (text === '') return [];
  return text.split(':').flatMap((group) => {
    if (!group.includes('.')) return [Number.parseInt(group, 16)];
    const value = parseIpv4(group);
    return [value >>> 16, value & 0xffff];
  });
}

/** Tests addresses against ranges such as `10.0.0.0/8`, or single addresses. `::ffff:10.0.0.1` counts as `10.0.0.1`. */
export function createAddressMatcher(cidrs: readonly string[]): (address: string) => boolean {
  if (cidrs.length === 0) return () => false;
  const ranges = new BlockList();
  for (const cidr of cidrs) {
    const { network, bits } = parseRange(cidr);
    ranges.addSubnet(formatIpAddress(network), bits, family(network));
  }
  return (text) => {
    const address = parseIpAddress(text);
    if (address === undefined) return false;
    const plain = unmapAddress(address);
    return ranges.check(formatIpAddress(plain), family(plain));
  };
}

function parseRange(cidr: string): { readonly network: IpAddress; readonly bits: number } {
  const [, base = '', length] = /^([^/%[\]]+)(?:\/(\d{1,3}))?$/.exec(cidr.trim()) ?? [];
  const network = parseIpAddress(base);
  if (network === undefined) throw invalidRange(cidr);
  const width = network.version === 4 ? 32 : 128;
  const bits = length === undefined ? width : Number(length);
  if (bits > width) throw invalidRange(cidr);
  const plain = unmapAddress(network);
  if (plain.version === network.version) return { network, bits };
  if (bits < 96) throw invalidRange(cidr);
  return { network: plain, bits: bits - 96 };
}

function family(address: IpAddress): 'ipv4' | 'ipv6' {
  return address.version === 4 ? 'ipv4' : 'ipv6';
}

function invalidRange(range: string): AppError {
  return new AppError('ADDRESS_RANGE_INVALID', { range });
}

export interface ListenAddress {
  /** A name or an address; IPv6 without brackets. */
  readonly host: string;
  /** 0 lets the system choose. */
  readonly port: number;
}

type ParsedListenAddress = ListenAddress | { readonly wrong: string; readonly fix?: string };

const LABEL = /^[A-Za-z\d_-]{1,63}$/;

/** `127.0.0.1:8787`, `[::1]:8787`, `localhost:0`. */
export function parseListenAddress(text: string): ParsedListenAddress {
  const [, bracketed, plain, portText] = /^(?:\[([^[\]]*)\]|([^:[\]]*)):(\d{1,6})$/.exec(text) ?? [];
  if (portText === undefined) return mistaken(text);
  const port = Number(portText);
  if (port > 65_535) return { wrong: 'has a port above 65535' };
  if (plain === '') return { wrong: 'names no address', fix: `say 0.0.0.0:${port} for every address of this machine` };
  if (plain === '*') return { wrong: 'has * for an address', fix: `say 0.0.0.0:${port} for every address` };
  const host = bracketed ?? plain ?? '';
  if (bracketed === undefined ? isHostNameOrIpv4(host) : isIPv6(host)) return { host, port };
  return { wrong: 'names something that is neither an address nor a host name' };
}

export function isHostName(text: string): boolean {
  const labels = text.split('.');
  // A name whose last label is a number is an address that someone mistyped: no such top-level domain can exist.
  if (text.length > 253 || /^\d+$/.test(labels.at(-1) ?? '')) return false;
  return labels.every((label) => LABEL.test(label) && !label.startsWith('-') && !label.endsWith('-'));
}

function isHostNameOrIpv4(text: string): boolean {
  return isIPv4(text) || isHostName(text);
}

function mistaken(text: string): ParsedListenAddress {
  if (/^\d{1,5}$/.test(text)) return { wrong: 'is a port without an address', fix: `say 127.0.0.1:${text}` };
  const [, address, port] = /^(.+):(\d{1,5})$/.exec(text) ?? [];
  if (address !== undefined && isIPv6(address)) return { wrong: 'has no brackets', fix: `say [${address}]:${port}` };
  if (isIP(text) === 6) return { wrong: 'has no port', fix: `say [${text}]:8787` };
  if (isHostNameOrIpv4(text)) return { wrong: 'has no port', fix: `say ${text}:8787` };
  return { wrong: 'is not an address with a port' };
}

/** A URL to which paths are appended. */
export function withoutSlash(url: string): string {
  return url.endsWith('/') ? url.slice(0, -1) : url;
}
