import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { ListenerLimits } from './limits.ts';
import { nodeHttp } from './node-http.ts';

export interface ServerEvents {
  /** `awaitsContinue`: the client holds its body back until it is told to go on. */
  request(request: IncomingMessage, response: ServerResponse, awaitsContinue: boolean): void;
  /** An `Expect` header with something else in it. */
  strangeExpectation(request: IncomingMessage, response: ServerResponse): void;
  acceptsUpgrade(request: IncomingMessage): boolean;
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  connect(request: IncomingMessage, socket: Duplex): void;
  clientError(error: Error, socket: Duplex): void;
}

const CHECKS_PER_TIMEOUT = 10;

/** Node's HTTP server with its strict parser and our bounds; it answers nothing by itself. */
export function createHttpServer(limits: ListenerLimits, events: ServerEvents): Server {
  // Node refuses a time for the headers that is longer than the time for the whole.
  const headersTimeout = Math.min(limits.headersTimeoutMs, limits.requestTimeoutMs);
  const server = nodeHttp.createServer({
    insecureHTTPParser: false,
    // Checked with all else that concerns Host, and then answered in a service's own shape.
    requireHostHeader: false,
    maxHeaderSize: limits.headerBytes,
    headersTimeout,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    connectionsCheckingInterval: Math.ceil(headersTimeout / CHECKS_PER_TIMEOUT),
    // A request without a body has no stream events then: who waits for the client to leave listens to the response.
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
