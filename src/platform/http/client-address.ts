import { classifyAddress } from '../network-address/classify-address.ts';

const MAPPED = '::ffff:';

/** An address without the dress of a dual-stack socket: `::ffff:10.0.0.1` is `10.0.0.1`. */
export function plainAddress(address: string | undefined): string {
  if (address === undefined) return '';
  return address.startsWith(MAPPED) && address.includes('.') ? address.slice(MAPPED.length) : address;
}

/**
 * The client behind trusted proxies: reading `X-Forwarded-For` from the right, the first hop that is no trusted proxy.
 * What stands left of it is that client's own claim. An entry that is no address ends the reading.
 */
export function forwardedAddress(
  peer: string,
  forwardedFor: string,
  isTrustedProxy: (address: string) => boolean,
): string {
  let nearest = peer;
  for (const entry of forwardedFor.split(',').reverse()) {
    const hop = plainAddress(withoutPort(entry.trim()));
    if (classifyAddress(hop) === 'invalid') return nearest;
    nearest = hop;
    if (!isTrustedProxy(hop)) return nearest;
  }
  return nearest;
}

/** The word of the nearest proxy, which stands last. */
export function isForwardedHttps(forwardedProto: string): boolean {
  return forwardedProto.slice(forwardedProto.lastIndexOf(',') + 1).trim() === 'https';
}

function withoutPort(entry: string): string {
  const [, bracketed, plain] = /^(?:\[([^\]]+)\](?::\d+)?|([^:]+):\d+)$/.exec(entry) ?? [];
  return bracketed ?? plain ?? entry;
}
