import { formatIpAddress, parseIpAddress, unmapAddress } from '../../platform/network-address/ip-address.ts';

/** What counts as one address: one household has a whole IPv6 /64, and counting those one by one would count nothing. */
export function addressKey(address: string): string {
  const parsed = parseIpAddress(address);
  if (parsed === undefined) return address;
  const plain = unmapAddress(parsed);
  if (plain.version === 4) return formatIpAddress(plain);
  return `${plain.groups
    .slice(0, 4)
    .map((group) => group.toString(16))
    .join(':')}::/64`;
}
