import type { EnvHttpProxyAgent } from 'undici';
import type { Environment } from '../runtime/runtime.ts';

/** The proxy through which calls leave this machine, as every program reads it from the environment. */
export interface OutgoingProxy {
  readonly http: string;
  readonly https: string;
  /** Hosts that are called directly, separated by commas; this machine always is. */
  readonly direct: string;
}

/** Variables that name a proxy, with the value that may hold a credential, and the list of what needs none. */
const PROXY_NAMES: ReadonlySet<string> = new Set(['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY']);
const THIS_MACHINE = ['localhost', '127.0.0.1', '[::1]'];

export function isProxyVariable(name: string): boolean {
  return PROXY_NAMES.has(name.toUpperCase()) && (name === name.toUpperCase() || name === name.toLowerCase());
}

/** Whether the address of a proxy has a user or password in it, with a scheme in front or without. */
export function hasCredentials(proxy: string): boolean {
  return proxy.includes('@');
}

/** Undefined: calls go out directly. The small names win, as they do in curl and Node. */
export function readOutgoingProxy(environment: Environment): OutgoingProxy | undefined {
  const read = (name: string) => environment[name] || environment[name.toUpperCase()] || '';
  const http = withScheme(read('http_proxy'));
  const https = withScheme(read('https_proxy'));
  if (http === '' && https === '') return undefined;
  return { http, https, direct: [read('no_proxy'), ...THIS_MACHINE].filter((part) => part !== '').join(',') };
}

/** Proxies are also written as `host:port`. What is not an address is left out, and the program starts anyway. */
function withScheme(proxy: string): string {
  if (proxy === '') return '';
  const address = /^[a-z][a-z0-9+.-]*:\/\//i.test(proxy) ? proxy : `http://${proxy}`;
  return URL.canParse(address) && /^https?:/i.test(address) ? address : '';
}

type ProxyOptions = ConstructorParameters<typeof EnvHttpProxyAgent>[0];

/** What undici's agent takes; the members are given even when empty, so that it does not read the environment itself. */
export function proxyOptions({ http, https, direct }: OutgoingProxy): NonNullable<ProxyOptions> {
  return { httpProxy: http, httpsProxy: https, noProxy: direct };
}

/**
 * Sends all calls of `fetch` and of undici that name no connection of their own through the proxy of the environment.
 * Calls under the address rules (webhooks, other bridges) have connections of their own, and so go out directly: whom they
 * reach is decided by the address that they connect to, which a proxy would hide.
 */
export async function useOutgoingProxy(environment: Environment): Promise<boolean> {
  const proxy = readOutgoingProxy(environment);
  if (proxy === undefined) return false;
  const { EnvHttpProxyAgent, setGlobalDispatcher } = await import('undici');
  setGlobalDispatcher(new EnvHttpProxyAgent(proxyOptions(proxy)));
  return true;
}
