import { type ChildProcess, spawn } from 'node:child_process';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import type { ClientRequest, IncomingMessage, Server, ServerResponse } from 'node:http';
import { connect, Server as NetServer, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { Duplex } from 'node:stream';
import { type Clock, withinTime } from '../clock/clock.ts';
import { classifyAddress, classifyHost, isMetadataName } from '../network-address/classify-address.ts';
import { createAddressMatcher } from '../network-address/ip-address.ts';
import { nodeHttp } from '../runtime/runtime.ts';

/** The only address that exists inside a network of ours. It is served by this process. */
const NETWORK_PORT = 47_113;
/** Where programs in the sandbox reach what `ServeOwn` serves. */
export const SANDBOX_URL = `http://127.0.0.1:${NETWORK_PORT}`;
export const NETWORK_URL = `http://127.0.0.1:${NETWORK_PORT}`;

/** Answers requests that are for this program itself, on behalf of the one that a network is for. */
export type ServeOwn = (name: string, request: IncomingMessage, response: ServerResponse) => void;

/** Finds the addresses of a name; rejects when it has none. */
type LookUp = (name: string) => Promise<readonly string[]>;

export interface SandboxNetworksOptions {
  readonly bubblewrap: string;
  /** Hosts that may be reached: names, `*.example.com`, or `*` for all. Only public addresses are ever connected to. */
  readonly hosts: readonly string[];
  readonly serveOwn: ServeOwn;
  readonly clock: Pick<Clock, 'after'>;
  readonly lookUp?: LookUp;
  /** Whether a connection to this address may be made; tests reach servers on loopback. */
  allowsAddress?(address: string): boolean;
}

/** A network namespace that is in use. */
interface HeldNetwork {
  /** Of the process that keeps the namespace: others join the namespace by it. */
  readonly pid: number;
  release(): void;
}

/** Network namespaces by name: each has a loopback device with one port, which this process serves, and nothing else. */
export interface SandboxNetworks {
  hold(name: string): Promise<HeldNetwork>;
  stop(): Promise<void>;
}

interface Network {
  readonly pid: number;
  readonly keeper: ChildProcess;
  readonly server: Server;
  holders: number;
  stopTimer: (() => void) | undefined;
}

const START_MS = 30_000;
/** A namespace that nothing uses is kept for the next program for this long. */
const IDLE_MS = 5 * 60_000;
const MAX_CONNECTIONS = 512;
const CONNECT_MS = 30_000;
const SILENCE_MS = 15 * 60_000;
/** Mail servers act upon what is sent to them without a login. */
const REFUSED_PORTS: ReadonlySet<number> = new Set([25]);

/**
 * Runs inside the new namespace: opens the port there, hands the socket to us, and becomes a program that only waits. The
 * socket stays in its namespace, also in another process.
 */
const KEEPER = `
const server = require('node:net').createServer();
server.listen(${NETWORK_PORT}, '127.0.0.1', () => process.send({ pid: process.pid }, server));
process.once('message', () => process.execve('/bin/sleep', ['sleep', '2147483647'], {}));`;

export function createSandboxNetworks(options: SandboxNetworksOptions): SandboxNetworks {
  const { bubblewrap, clock, serveOwn } = options;
  const mayReach = createHostRule(options);
  const networks = new Map<string, Promise<Network>>();
  let isStopped = false;

  async function open(name: string): Promise<Network> {
    const args = ['--unshare-user', '--unshare-net', '--die-with-parent', '--dev-bind', '/', '/', '--'];
    const keeper = spawn(bubblewrap, [...args, process.execPath, '--no-warnings', '-e', KEEPER], {
      env: {},
      detached: true,
      shell: false,
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    keeper.once('exit', () => networks.delete(name));
    const failure = once(keeper, 'exit').then(() => {
      throw new Error('the network of the sandbox could not be created');
    });
    failure.catch(() => undefined);
    keeper.on('error', () => undefined);
    const given = withinTime(clock, START_MS, Promise.race([once(keeper, 'message'), failure]), () => {
      throw new Error('the network of the sandbox was not ready in time');
    });
    try {
      const [message, socket] = (await given) as [{ readonly pid: number }, unknown];
      if (!(socket instanceof NetServer)) throw new Error('the network of the sandbox has no socket');
      const server = createProxy(mayReach, (asked, response) => serveOwn(name, asked, response));
      socket.on('connection', (connection: Socket) => {
        if (isStopped) connection.destroy();
        else server.emit('connection', connection);
      });
      socket.maxConnections = MAX_CONNECTIONS;
      keeper.once('exit', () => socket.close());
      keeper.send({});
      keeper.disconnect();
      keeper.unref();
      return { pid: message.pid, keeper, server, holders: 0, stopTimer: undefined };
    } catch (error) {
      endKeeper(keeper);
      networks.delete(name);
      throw error;
    }
  }

  return {
    async hold(name) {
      if (isStopped) throw new Error('the program is stopping');
      const opening = networks.get(name) ?? open(name);
      networks.set(name, opening);
      const network = await opening;
      network.stopTimer?.();
      network.holders += 1;
      let isHeld = true;
      return {
        pid: network.pid,
        release() {
          if (!isHeld) return;
          isHeld = false;
          network.holders -= 1;
          if (network.holders > 0) return;
          network.stopTimer = clock.after(IDLE_MS, () => {
            networks.delete(name);
            endKeeper(network.keeper);
          });
        },
      };
    },
    async stop() {
      isStopped = true;
      const open = await Promise.allSettled(networks.values());
      for (const one of open) {
        if (one.status !== 'fulfilled') continue;
        one.value.stopTimer?.();
        one.value.server.closeAllConnections();
        endKeeper(one.value.keeper);
      }
    },
  };
}

function endKeeper({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended already.
  }
}

/** Finds the address to connect to for a host; undefined when the host may not be reached. */
type MayReach = (host: string) => Promise<string | undefined>;

function createHostRule({ hosts, lookUp = lookUpName, allowsAddress }: SandboxNetworksOptions): MayReach {
  const isPublic = (address: string) =>
    classifyAddress(address) === 'public' && !createAddressMatcher(ownAddresses())(address);
  const allows = allowsAddress ?? isPublic;
  return async (host) => {
    const found = classifyHost(host);
    if (found.kind === 'invalid') return undefined;
    const name = found.kind === 'name' ? found.name : found.address;
    if (isMetadataName(name) || !hosts.some((pattern) => matchesHost(pattern, name))) return undefined;
    if (found.kind === 'address') return allows(name) ? name : undefined;
    const addresses = await lookUp(name).catch(() => []);
    // All of them: a name with a public and a private address is an attempt to get in by chance.
    return addresses.every(allows) ? addresses[0] : undefined;
  };
}

/** Whether a host fits `*`, `*.example.com`, or a name. */
export function matchesHost(pattern: string, name: string): boolean {
  if (pattern === '*' || pattern.toLowerCase() === name) return true;
  return pattern.startsWith('*.') && name.endsWith(pattern.slice(1).toLowerCase());
}

async function lookUpName(name: string): Promise<readonly string[]> {
  return (await lookup(name, { all: true })).map(({ address }) => address);
}

function ownAddresses(): readonly string[] {
  return Object.values(networkInterfaces()).flatMap((found = []) =>
    found.map(({ address }) => address.split('%')[0] ?? address),
  );
}

const REFUSAL = 'Programs in the sandbox may not reach this host; the operator lists hosts in bridge.sandbox_hosts.\n';
const UNREACHED = 'The host did not answer.\n';

/** Serves one namespace: tunnels (`CONNECT`), plain requests to other hosts, and what is for this program itself. */
function createProxy(mayReach: MayReach, serveOwn: (asked: IncomingMessage, response: ServerResponse) => void): Server {
  const server = nodeHttp.createServer((asked, response) => {
    if (asked.url?.startsWith('/') === true) serveOwn(asked, response);
    else void relayRequest(asked, response, mayReach);
  });
  server.timeout = SILENCE_MS;
  server.on('connect', (asked: IncomingMessage, client: Duplex) => void openTunnel(asked, client, mayReach));
  server.on('clientError', (_error, socket) => socket.destroy());
  return server;
}

async function relayRequest(asked: IncomingMessage, response: ServerResponse, mayReach: MayReach): Promise<void> {
  const url = URL.parse(asked.url ?? '');
  const port = Number(url?.port || 80);
  const isPlain = url?.protocol === 'http:' && !REFUSED_PORTS.has(port);
  const address = isPlain ? await mayReach(url.hostname) : undefined;
  if (url === null || address === undefined) {
    response.writeHead(403, { 'content-type': 'text/plain' }).end(REFUSAL);
    return;
  }
  const headers = Object.fromEntries(Object.entries(asked.headers).filter(([name]) => !name.startsWith('proxy-')));
  const onward = nodeHttp.request({
    host: address,
    port,
    method: asked.method,
    path: `${url.pathname}${url.search}`,
    headers: { ...headers, host: url.host },
    timeout: SILENCE_MS,
  });
  relayThrough(onward, asked, response);
}

/** Sends the body of a request onward, and the response to it back; 502 when there is none. */
export function relayThrough(onward: ClientRequest, asked: IncomingMessage, response: ServerResponse): void {
  onward.on('response', (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
    answer.pipe(response);
    answer.on('error', () => response.destroy());
  });
  onward.on('timeout', () => onward.destroy());
  onward.on('error', () => {
    if (response.headersSent) response.destroy();
    else response.writeHead(502, { 'content-type': 'text/plain' }).end(UNREACHED);
  });
  response.on('close', () => onward.destroy());
  asked.pipe(onward);
}

async function openTunnel(asked: IncomingMessage, client: Duplex, mayReach: MayReach): Promise<void> {
  client.on('error', () => client.destroy());
  const [, host = '', port = ''] = /^(\[[^\]]+\]|[^:]+):(\d{1,5})$/.exec(asked.url ?? '') ?? [];
  const isOpen = host !== '' && Number(port) > 0 && Number(port) < 65_536 && !REFUSED_PORTS.has(Number(port));
  const address = isOpen ? await mayReach(host) : undefined;
  if (address === undefined) {
    client.end(`HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n${REFUSAL}`);
    return;
  }
  const onward = connect({ host: address, port: Number(port), timeout: CONNECT_MS });
  let isConnected = false;
  const end = (): void => {
    onward.destroy();
    if (isConnected) client.destroy();
    else client.end(`HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n${UNREACHED}`);
  };
  onward.once('connect', () => {
    isConnected = true;
    onward.setTimeout(SILENCE_MS);
    client.write('HTTP/1.1 200 Connection established\r\n\r\n');
    onward.pipe(client);
    client.pipe(onward);
  });
  onward.once('timeout', end);
  onward.once('error', end);
  client.once('close', () => onward.destroy());
}
