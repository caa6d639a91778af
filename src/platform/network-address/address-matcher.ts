import { BlockList } from 'node:net';
import { AppError } from '../errors/app-error.ts';
import { formatIpAddress, type IpAddress, parseIpAddress, unmapAddress } from './ip-address.ts';

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
