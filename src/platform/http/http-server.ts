import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { STALLED_AFTER_MS } from '../queue/stalled-writes.ts';
import { nodeHttp } from '../runtime/runtime.ts';
import { plainAddress } from './request-state.ts';

interface ServerEvents {
  /** `awaitsContinue`: the client holds its body back until it gets 100 Continue. */
  request(request: IncomingMessage, response: ServerResponse, awaitsContinue: boolean): void;
  /** An `Expect` header with something else in it. */
  strangeExpectation(request: IncomingMessage, response: ServerResponse): void;
  acceptsUpgrade(request: IncomingMessage): boolean;
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  connect(request: IncomingMessage, socket: Duplex): void;
  clientError(error: Error, socket: Duplex): void;
}

/** The bytes that may wait in a connection before its writer must pause, and that are read ahead of a body. */
const HIGH_WATER_MARK = 16 * 1024;
const CHECKS_PER_TIMEOUT = 10;

/** Creates Node's HTTP server with its strict parser and our limits. It sends no responses by itself. */
export function createHttpServer(limits: ListenerLimits, events: ServerEvents): Server {
  // Node refuses a time for the headers that is longer than the time for the whole.
  const headersTimeout = Math.min(limits.headersTimeoutMs, limits.requestTimeoutMs);
  const server = nodeHttp.createServer({
    insecureHTTPParser: false,
    highWaterMark: HIGH_WATER_MARK,
    // Checked with all else that concerns Host, and then answered in a service's own shape.
    requireHostHeader: false,
    maxHeaderSize: limits.headerBytes,
    headersTimeout,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    connectionsCheckingInterval: Math.ceil(headersTimeout / CHECKS_PER_TIMEOUT),
    // A request without a body then has no stream events, so code that waits for the client to leave listens to the response.
    optimizeEmptyRequests: true,
    shouldUpgradeCallback: events.acceptsUpgrade,
  });
  // Headers over Node's own limit would be dropped unseen; ours are counted.
  server.maxHeadersCount = 0;
  server.maxConnections = limits.connections;
  server.on('request', (request, response) => events.request(request, response, false));
  server.on('checkContinue', (request, response) => events.request(request, response, true));
  server.on('checkExpectation', events.strangeExpectation);
  server.on('upgrade', events.upgrade);
  server.on('connect', events.connect);
  server.on('clientError', events.clientError);
  return server;
}

/** Bounds of one listener. All times in milliseconds, all sizes in bytes. */
export interface ListenerLimits {
  /** From the opening of a connection, or the end of the last request on it, to the last header. */
  readonly headersTimeoutMs: number;
  /** To the last byte of the body. */
  readonly requestTimeoutMs: number;
  readonly keepAliveTimeoutMs: number;
  readonly headerBytes: number;
  readonly headerCount: number;
  /** For routes that name no limit of their own. */
  readonly bodyBytes: number;
  readonly connections: number;
  readonly connectionsPerAddress: number;
  readonly socketsPerAddress: number;
  readonly messageBytes: number;
  readonly messageFragments: number;
  /** With more than this waiting for the reader of a WebSocket, none of its further messages are read. */
  readonly socketBufferBytes: number;
  /** What may wait for all of them together; beyond, each slow reader has its share of it instead. */
  readonly allSocketBuffersBytes: number;
  /** A reader of a WebSocket that takes nothing for this long, although something waits for it, is closed. */
  readonly stalledAfterMs: number;
  readonly pingIntervalMs: number;
  /** How long the peer of a closed WebSocket may take to confirm the close. */
  readonly closeTimeoutMs: number;
  /** How long the rest of a refused body is thrown away, so that the refusal reaches a client that is still sending. */
  readonly lingerMs: number;
  /** How long a listener that shuts down leaves kept connections open, so that a request on its way is still answered. */
  readonly lastRequestsMs: number;
  readonly readinessTimeoutMs: number;
}

export const defaultLimits: ListenerLimits = {
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  keepAliveTimeoutMs: 72_000,
  headerBytes: 16 * 1024,
  headerCount: 200,
  bodyBytes: 1024 * 1024,
  connections: 50_000,
  connectionsPerAddress: 20_000,
  socketsPerAddress: 20_000,
  messageBytes: 8 * 1024 * 1024,
  messageFragments: 16 * 1024,
  socketBufferBytes: 4 * 1024 * 1024,
  allSocketBuffersBytes: 64 * 1024 * 1024,
  stalledAfterMs: STALLED_AFTER_MS,
  pingIntervalMs: 30_000,
  closeTimeoutMs: 5_000,
  lingerMs: 1_000,
  lastRequestsMs: 500,
  readinessTimeoutMs: 2_000,
};

/** Closes a new connection when its address has too many already. Trusted proxies speak for many: not counted. */
export function limitConnections(
  server: Server,
  perAddress: number,
  isTrustedProxy: (address: string) => boolean,
): void {
  const counts = new Map<string, number>();

  function onClose(this: Socket): void {
    const address = plainAddress(this.remoteAddress);
    const left = (counts.get(address) ?? 1) - 1;
    if (left === 0) counts.delete(address);
    else counts.set(address, left);
  }

  server.on('connection', (socket) => {
    const address = plainAddress(socket.remoteAddress);
    if (isTrustedProxy(address)) return;
    const count = counts.get(address) ?? 0;
    if (count >= perAddress) {
      socket.destroy();
      return;
    }
    counts.set(address, count + 1);
    socket.once('close', onClose);
  });
}

/**
 * Takes no more connections, and resolves when the last of those that are open has gone. Not `server.close`, which cuts
 * all that wait for their next request: it may be on its way. What the system has accepted and we have not is cut by it,
 * so this waits for a round of the event loop, each of which takes one connection, in which there was none to take.
 */
export function stopListening(server: Server): Promise<void> {
  return new Promise((resolve) => {
    // The round that is under way may have looked before its other work.
    let knocked = true;
    const onConnection = (): void => {
      knocked = true;
    };
    function look(): void {
      if (knocked) {
        knocked = false;
        setImmediate(look);
        return;
      }
      server.off('connection', onConnection);
      NetServer.prototype.close.call(server, () => resolve());
    }
    server.on('connection', onConnection);
    setImmediate(look);
  });
}
