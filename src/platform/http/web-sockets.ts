import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { pause } from '../clock/clock.ts';
import { AppError } from '../errors/app-error.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { RequestCheck } from './common-routes.ts';
import type { HttpMetrics } from './http-metrics.ts';
import type { ListenerLimits } from './http-server.ts';
import type { RefuseRequest } from './refusal.ts';
import { type MatchedRow, pathOf, type RequestState } from './request-state.ts';
import type { HttpSurface, UpgradeRoute } from './surface.ts';
import { type ChannelRules, createHeartbeat, WebSocketChannel } from './web-socket-channel.ts';

export interface WebSockets {
  /** Whether a request asks for one of our WebSockets; any other upgrade is ignored, as RFC 9110 allows. */
  accepts(request: IncomingMessage): boolean;
  upgrade(state: RequestState, socket: Duplex, head: Buffer): void;
  /** Closes (1008) every socket whose route no longer allows its caller. */
  revalidate(): void;
  count(): number;
  /** Closes all sockets, spread over that time, and resolves when all are closed. */
  closeAll(code: number, reason: string, spreadMs?: number): Promise<void>;
  terminateAll(): void;
}

export interface WebSocketsOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly surfaces: readonly HttpSurface[];
  readonly limits: ListenerLimits;
  readonly metrics: HttpMetrics;
  readonly refuse: RefuseRequest;
  readonly admit: RequestCheck;
  isLeaving(): boolean;
}

interface UpgradeRow extends MatchedRow {
  readonly route: UpgradeRoute;
}

/** Between two groups of sockets, where they are not all closed in the same moment. */
const CLOSE_PAUSE_MS = 50;

export function createWebSockets(options: WebSocketsOptions): WebSockets {
  const { surfaces, limits, metrics, clock, logger, refuse, admit } = options;
  const rows = new Map(upgradeRows(surfaces, metrics).map((row) => [row.path, row]));
  const channels = new Map<WebSocketChannel, UpgradeRoute>();
  /** What forgets the credential that a socket was opened with. */
  const forgets = new WeakMap<WebSocketChannel, () => void>();
  const perAddress = new Map<string, number>();
  const heartbeat = createHeartbeat(limits.pingIntervalMs, clock);
  const handshakes = new WeakMap<IncomingMessage, { state: RequestState; row: UpgradeRow }>();
  const handshaking = new Set<Duplex>();
  let whenEmpty: (() => void) | undefined;
  // Apart, because the type declarations do not know `closeTimeout` yet.
  const serverOptions = {
    noServer: true,
    clientTracking: false,
    autoPong: false,
    perMessageDeflate: false,
    maxPayload: limits.messageBytes,
    maxFragments: limits.messageFragments,
    maxBufferedChunks: limits.messageFragments,
    closeTimeout: limits.closeTimeoutMs,
  };
  const server = new WebSocketServer(serverOptions);

  const rules: ChannelRules = {
    logger,
    socketBufferBytes: limits.socketBufferBytes,
    allSocketBuffersBytes: limits.allSocketBuffersBytes,
    stalledAfterMs: limits.stalledAfterMs,
    clock,
    backlog: { bytes: 0, readers: 0 },
    isLeaving: options.isLeaving,
    ended(channel, { code }) {
      channels.delete(channel);
      forgets.get(channel)?.();
      heartbeat.remove(channel);
      const left = (perAddress.get(channel.address) ?? 1) - 1;
      if (left === 0) perAddress.delete(channel.address);
      else perAddress.set(channel.address, left);
      logger.debug({ requestId: channel.requestId, code }, 'websocket closed');
      if (channels.size === 0) whenEmpty?.();
    },
  };

  function refusalOf(state: RequestState): AppError | undefined {
    const full = (perAddress.get(state.address) ?? 0) >= limits.socketsPerAddress;
    return admit(state) ?? (full ? new AppError('OVERLOADED') : undefined);
  }

  function open(state: RequestState, row: UpgradeRow, webSocket: WebSocket, stream: Duplex): void {
    const { requestId, address, caller } = state;
    const channel = new WebSocketChannel(rules, webSocket, stream, { requestId, address, caller });
    channels.set(channel, row.route);
    perAddress.set(address, (perAddress.get(address) ?? 0) + 1);
    heartbeat.add(channel);
    state.rawStatus = 101;
    note(state, row);
    const forget = row.route.onRevoked?.(caller, () => channel.close(1008, 'no longer allowed'));
    if (forget !== undefined) forgets.set(channel, forget);
    try {
      row.route.accept(channel, state, caller);
    } catch (error) {
      logger.error({ err: error, requestId }, 'a websocket could not be accepted');
      channel.close(1011, 'internal error');
    }
  }

  function complete(state: RequestState, row: UpgradeRow, socket: Duplex, head: Buffer): void {
    handshaking.delete(socket);
    if (socket.destroyed) return;
    // Checks again, because other sockets may have opened, or the shutdown begun, while the guard was running.
    const refusal = refusalOf(state);
    if (refusal !== undefined) refuseUpgrade(state, row, refusal);
    else server.handleUpgrade(state.request, socket, head, (webSocket) => open(state, row, webSocket, socket));
  }

  function refuseUpgrade(state: RequestState, row: UpgradeRow, error: unknown): void {
    refuse(state, error);
    note(state, row);
  }

  function note({ requestId, method, rawStatus: status, startedAt }: RequestState, row: UpgradeRow): void {
    row.meter.observe(status, (clock.monotonic() - startedAt) / 1000);
    logger.info({ requestId, method, route: row.path, status }, 'request');
  }

  // An invalid handshake: no usable key, or an unsupported version.
  server.on('wsClientError', (error, _socket, request) => {
    const waiting = handshakes.get(request);
    if (waiting === undefined) return;
    const version = request.headers['sec-websocket-version'];
    const refusal =
      version === '13' ? new AppError('INVALID_REQUEST', { reason: error.message }) : new AppError('UPGRADE_REQUIRED');
    refuseUpgrade(waiting.state, waiting.row, refusal);
  });

  return {
    accepts: (request) =>
      request.method === 'GET' && request.headers.upgrade?.toLowerCase() === 'websocket' && rows.has(pathOf(request)),
    upgrade(state, socket, head) {
      const row = rows.get(state.path);
      if (row === undefined) {
        socket.destroy();
        return;
      }
      state.row = row;
      handshakes.set(state.request, { state, row });
      const refusal = refusalOf(state);
      if (refusal !== undefined) {
        refuseUpgrade(state, row, refusal);
        return;
      }
      handshaking.add(socket);
      // `then` also catches what the guard throws synchronously; the microtask costs nothing beside a handshake.
      Promise.resolve(state)
        .then(row.route.guard)
        .then(
          (caller) => {
            state.caller = caller;
            complete(state, row, socket, head);
          },
          (error) => {
            handshaking.delete(socket);
            refuseUpgrade(state, row, error);
          },
        );
    },
    revalidate() {
      for (const [channel, route] of channels) {
        if (!route.stillAllowed(channel.caller)) channel.close(1008, 'no longer allowed');
      }
    },
    count: () => channels.size,
    async closeAll(code, reason, spreadMs = 0) {
      if (channels.size === 0) return;
      const { promise, resolve } = Promise.withResolvers<void>();
      whenEmpty = resolve;
      const all = [...channels.keys()];
      const together = Math.ceil((all.length * CLOSE_PAUSE_MS) / Math.max(spreadMs, CLOSE_PAUSE_MS));
      for (const [index, channel] of all.entries()) {
        if (index > 0 && index % together === 0) await pause(clock, CLOSE_PAUSE_MS);
        channel.close(code, reason);
      }
      await promise;
    },
    terminateAll() {
      heartbeat.stop();
      for (const channel of channels.keys()) channel.terminate();
      for (const socket of handshaking) socket.destroy();
    },
  };
}

function upgradeRows(surfaces: readonly HttpSurface[], metrics: HttpMetrics): UpgradeRow[] {
  return surfaces.flatMap((surface) =>
    surface.upgrades.map((route) => {
      const { path } = route;
      return { surface, path, route, meter: metrics.meter({ service: surface.name, route: path, method: 'GET' }) };
    }),
  );
}
