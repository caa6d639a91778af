import { isIP, isIPv4, isIPv6 } from 'node:net';

export interface ListenAddress {
  /** A name or an address; IPv6 without brackets. */
  readonly host: string;
  /** 0 lets the system choose. */
  readonly port: number;
}

export type ParsedListenAddress = ListenAddress | { readonly wrong: string; readonly mend?: string };

const LABEL = /^[A-Za-z\d_-]{1,63}$/;

/** `127.0.0.1:8787`, `[::1]:8787`, `localhost:0`. */
export function parseListenAddress(text: string): ParsedListenAddress {
  const [, bracketed, plain, portText] = /^(?:\[([^[\]]*)\]|([^:[\]]*)):(\d{1,6})$/.exec(text) ?? [];
  if (portText === undefined) return mistaken(text);
  const port = Number(portText);
  if (port > 65_535) return { wrong: 'has a port above 65535' };
  if (plain === '') return { wrong: 'names no address', mend: `say 0.0.0.0:${port} for every address of this machine` };
  if (plain === '*') return { wrong: 'has * for an address', mend: `say 0.0.0.0:${port} for every address` };
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
  if (/^\d{1,5}$/.test(text)) return { wrong: 'is a port without an address', mend: `say 127.0.0.1:${text}` };
  const [, address, port] = /^(.+):(\d{1,5})$/.exec(text) ?? [];
  if (address !== undefined && isIPv6(address)) return { wrong: 'has no brackets', mend: `say [${address}]:${port}` };
  if (isIP(text) === 6) return { wrong: 'has no port', mend: `say [${text}]:8787` };
  if (isHostNameOrIpv4(text)) return { wrong: 'has no port', mend: `say ${text}:8787` };
  return { wrong: 'is not an address with a port' };
}
