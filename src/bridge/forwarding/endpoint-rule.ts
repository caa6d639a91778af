import {
  type AddressClass,
  classifyAddress,
  classifyHost,
  isMetadataName,
} from '../../platform/network-address/classify-address.ts';

/** Where tunnels between bridges end (spec/bridge 4.6, rule 5; contract/bridge 9). */
const TUNNEL_CLASSES: ReadonlySet<AddressClass> = new Set(['loopback', 'private', 'link-local', 'carrier-nat']);

/** Whether a bridge may be reached at that address, or may reach us from it without any token. */
export function isTunnelAddress(address: string): boolean {
  return TUNNEL_CLASSES.has(classifyAddress(address));
}

/** What is wrong with the host of an endpoint as it is written; undefined when nothing is, or when only a lookup can tell. */
export function refusalOfEndpoint(endpoint: string): string | undefined {
  const host = URL.parse(endpoint)?.hostname ?? '';
  const found = classifyHost(host);
  if (found.kind === 'invalid') return 'it names no host';
  if (found.kind === 'name') return isMetadataName(found.name) ? 'it is where a cloud keeps credentials' : undefined;
  return isTunnelAddress(found.address) ? undefined : refusalOfAddress(found.address);
}

export function refusalOfAddress(address: string): string {
  return `${address} is not a loopback, private or link-local address`;
}
