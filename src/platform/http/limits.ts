import { STALLED_AFTER_MS } from '../queue/stalled-writes.ts';

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
  /** How long the peer of a closed WebSocket may take to say goodbye. */
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
