import { readdir, readFile, readlink } from 'node:fs/promises';
import type { IncomingMessage, Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { basename } from 'node:path';
import { AppError, errorCode } from '../errors/app-error.ts';
import { classifyAddress, isLoopbackHost } from '../network-address/classify-address.ts';
import type { ListenAddress } from '../network-address/ip-address.ts';
import { nodeHttp } from '../runtime/runtime.ts';
import type { HttpSurface } from './surface.ts';

export interface BoundAddress extends ListenAddress {
  /** Where a browser on this machine reaches it. */
  readonly url: string;
}

/** Whether only this machine can reach an address. A name other than `localhost` may mean anything: it is not. */
export function isLoopbackBind(host: string): boolean {
  return host.toLowerCase() === 'localhost' || classifyAddress(host) === 'loopback';
}

interface ListenQuestion {
  readonly host: string;
  readonly insecure: boolean;
  readonly surfaces: readonly Pick<HttpSurface, 'title' | 'credentialSetting' | 'isOpen'>[];
}

/** Returns one line about why this address must not be opened and what to set; undefined when it may be opened. */
export function refusalToListen({ host, insecure, surfaces }: ListenQuestion): string | undefined {
  if (insecure || isLoopbackBind(host)) return undefined;
  const open = surfaces.filter((surface) => surface.isOpen());
  if (open.length === 0) return undefined;
  const titles = open.map(({ title }) => title).join(', ');
  const settings = open.flatMap(({ credentialSetting }) => credentialSetting ?? []);
  const remedy = settings.length === 0 ? 'configure a credential' : `set ${settings.join(' and ')}`;
  return `${host} can be reached from other machines and no credential protects ${titles}: ${remedy}, listen on 127.0.0.1, or give --insecure`;
}

/** Connections that wait to be accepted: after a restart thousands of clients come back at the same moment. */
const BACKLOG = 4096;

/** Opens the address. Throws an `AppError` that names the address and, if known, the process that uses it. */
export async function openAddress(
  server: Server,
  { host, port }: ListenAddress,
  exclusive = false,
): Promise<BoundAddress> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', reject);
  server.listen({ host, port, backlog: BACKLOG, exclusive }, resolve);
  try {
    await promise;
  } catch (error) {
    throw await listenError(error, host, port);
  } finally {
    server.off('error', reject);
  }
  const bound = server.address() as AddressInfo;
  return { host: bound.address, port: bound.port, url: urlOf(bound) };
}

/** Throws what opening the address would throw, such as PORT_IN_USE. The address is free again afterwards. */
export async function checkAddress(address: ListenAddress): Promise<void> {
  const server = nodeHttp.createServer();
  try {
    await openAddress(server, address);
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
}

async function listenError(error: unknown, host: string, port: number): Promise<AppError> {
  switch (errorCode(error)) {
    case 'EADDRINUSE': {
      const owner = await findPortOwner(port);
      const details = {
        host,
        port,
        ...owner,
        owner: owner === undefined ? '' : ` by ${owner.command} (pid ${owner.pid})`,
      };
      return new AppError('PORT_IN_USE', details, { cause: error });
    }
    case 'EACCES':
      return new AppError('LISTEN_DENIED', { host, port }, { cause: error });
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return new AppError('ADDRESS_NOT_AVAILABLE', { host, port }, { cause: error });
    default:
      return new AppError('LISTEN_FAILED', { host, port, reason: errorCode(error) || 'unknown' }, { cause: error });
  }
}

function urlOf({ address, port }: AddressInfo): string {
  const reachable = address === '0.0.0.0' ? '127.0.0.1' : address === '::' ? '::1' : address;
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`;
}

interface PortOwner {
  readonly pid: number;
  readonly command: string;
}

const LISTENING = '0A';

/** Who listens on a TCP port, as far as Linux tells this user; undefined anywhere else and for other users' programs. */
async function findPortOwner(port: number): Promise<PortOwner | undefined> {
  try {
    const tables = await Promise.all(['/proc/net/tcp', '/proc/net/tcp6'].map((path) => readFile(path, 'utf8')));
    const wanted = new Set(tables.flatMap((table) => listeningInodes(table, port)).map((inode) => `socket:[${inode}]`));
    if (wanted.size === 0) return undefined;
    for (const name of await readdir('/proc')) {
      if (/^\d+$/.test(name) && (await holdsOneOf(name, wanted))) {
        return { pid: Number(name), command: programOf(await readFile(`/proc/${name}/cmdline`, 'utf8')) };
      }
    }
  } catch {
    // Not Linux, or nothing that this user may see: the port alone must do.
  }
  return undefined;
}

/** The program of a command line, and the script that it runs. The name that Linux has is one of a thread, such as MainThread. */
function programOf(commandLine: string): string {
  const [program = '', ...words] = commandLine.split('\0').filter((word) => word !== '');
  const script = words.find((word) => !word.startsWith('-'));
  const isInterpreter = /^(?:node|bun|deno|python|ruby|java|sh|bash)[\d.]*$/.test(basename(program));
  return [program, ...(isInterpreter && script !== undefined ? [script] : [])].map((path) => basename(path)).join(' ');
}

/** The inodes of the sockets that listen on `port`, from the text of `/proc/net/tcp`. */
function listeningInodes(table: string, port: number): readonly string[] {
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  return table.split('\n').flatMap((line) => {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
    return state === LISTENING && local.endsWith(suffix) && inode !== undefined ? [inode] : [];
  });
}

async function holdsOneOf(pid: string, sockets: ReadonlySet<string>): Promise<boolean> {
  const folder = `/proc/${pid}/fd`;
  const descriptors = await readdir(folder).catch(() => []);
  for (const descriptor of descriptors) {
    const target = await readlink(`${folder}/${descriptor}`).catch(() => '');
    if (sockets.has(target)) return true;
  }
  return false;
}

interface HostCheckOptions {
  readonly boundHost: string;
  readonly insecure: boolean;
  readonly allowedHosts: readonly string[];
  /** Whether anything on the listener answers without a credential right now. */
  isOpen(): boolean;
}

type CheckedRequest = Pick<IncomingMessage, 'headers' | 'rawHeaders' | 'httpVersion'>;

/** Why a request may not come in under its Host; undefined when it may. */
export type HostCheck = (request: CheckedRequest) => AppError | undefined;

/**
 * A page in a browser can point a name of its own at 127.0.0.1 and so reach what listens there (DNS rebinding): where no
 * credential is asked for, the Host header must be a name that no stranger can own.
 */
export function createHostCheck(options: HostCheckOptions): HostCheck {
  const isAllowed = hostRule(options);
  let lastAllowed: string | undefined;

  return (request) => {
    const count = countHosts(request.rawHeaders);
    if (!options.isOpen()) {
      if (count === 1 || (count === 0 && request.httpVersion === '1.0')) return undefined;
      return new AppError('INVALID_REQUEST', { reason: 'exactly one Host header is needed' });
    }
    const host = count === 1 ? (request.headers.host ?? '') : '';
    if (host === lastAllowed) return undefined;
    if (!isAllowed(host)) return new AppError('HOST_NOT_ALLOWED', { host: host.slice(0, 200) });
    lastAllowed = host;
    return undefined;
  };
}

function hostRule({ boundHost, insecure, allowedHosts }: HostCheckOptions): (host: string) => boolean {
  const loopback = isLoopbackBind(boundHost);
  // A credential that a reload took away must not open a public address.
  if (!loopback && !insecure) return () => false;
  const allowed = new Set(allowedHosts.map((host) => host.toLowerCase()));
  return (host) => {
    if (isLoopbackHost(host)) return true;
    const [, name = ''] = /^(\[[^\]]*\]|[^:]*)(?::\d{1,5})?$/.exec(host.toLowerCase()) ?? [];
    if (name === '') return false;
    if (allowed.has(name) || allowed.has(host.toLowerCase())) return true;
    return !loopback && classifyAddress(name) !== 'invalid';
  };
}

function countHosts(rawHeaders: readonly string[]): number {
  let count = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index];
    if (name !== undefined && name.length === 4 && name.toLowerCase() === 'host') count += 1;
  }
  return count;
}
