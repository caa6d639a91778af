import { platform } from 'node:os';
import { type Clock, joinSignals } from '../../platform/clock/clock.ts';
import type { Randomness } from '../../platform/clock/randomness.ts';
import type { Logger } from '../../platform/log/logger.ts';
import { isLoopbackHost } from '../../platform/network-address/classify-address.ts';
import { backoffDelay } from '../../platform/retry/retry.ts';
import { sameSecret } from '../../platform/secrets/tokens.ts';
import type { ProbeResult } from '../agents/probe-board.ts';
import type { GatewaySnapshot } from '../contract/routing.ts';
import { type GatewayConnection, type HearEvent, openGatewayConnection } from './gateway-connection.ts';
import { type DeviceKey, describeGatewayFailure, type GatewayFailure, gatewayFailed } from './gateway-messages.ts';

/** The only connection of this bridge to its gateway. It is opened on demand, and opened again after it was lost. */
export interface GatewayLink {
  /** Resolves when connected; rejects with GATEWAY_FAILED. */
  connect(): Promise<GatewayConnection>;
  /** Connects first if necessary. */
  request(method: string, params: unknown, timeoutMs: number, signal?: AbortSignal): Promise<unknown>;
  /** Receives all events until the returned function is called. */
  listen(hear: HearEvent): () => void;
  /** Closes the connection as soon as no listener and no request uses it. */
  disconnect(): void;
  snapshot(): Promise<GatewaySnapshot>;
  probe(signal: AbortSignal): Promise<ProbeResult>;
  setToken(token: string): void;
  stop(): Promise<void>;
}

export interface GatewayLinkOptions {
  /** Empty: there is no gateway. */
  readonly url: string;
  readonly token: string;
  readonly version: string;
  readonly clock: Clock;
  readonly randomness: Pick<Randomness, 'below'>;
  readonly logger: Pick<Logger, 'warn'>;
  /** Called when the key is first needed. Creates the key if there is none. */
  loadDeviceKey(): Promise<DeviceKey>;
  /** Called when the link has connected or disconnected. */
  onChange(): void;
  readonly limits?: Partial<typeof LIMITS>;
}

const LIMITS = {
  handshakeMs: 10_000,
  firstPauseMs: 500,
  longestPauseMs: 30_000,
  /** How long a refusal counts; then the probe asks again, because the gateway may have been fixed. */
  refusalMs: 300_000,
};

export function createGatewayLink(options: GatewayLinkOptions): GatewayLink {
  const { url, clock, randomness, logger } = options;
  const limits = { ...LIMITS, ...options.limits };
  const hearers = new Set<HearEvent>();
  const stopped = new AbortController();
  let { token } = options;
  let deviceKey: Promise<DeviceKey> | undefined;
  let current: GatewayConnection | undefined;
  let connecting: Promise<GatewayConnection> | undefined;
  let stopRetry: (() => void) | undefined;
  /** Requests that wait for their answer. */
  let requests = 0;
  let failures = 0;
  /** Whether a lost connection is opened again. */
  let isWanted = false;
  let lastFailure: (GatewayFailure & { readonly at: number }) | undefined;
  let lastConnectedAt: number | null = null;

  function loadKey(): Promise<DeviceKey> {
    deviceKey ??= options.loadDeviceKey().catch((error: unknown) => {
      deviceKey = undefined;
      throw error;
    });
    return deviceKey;
  }

  async function open(signal: AbortSignal, onEvent: HearEvent): Promise<GatewayConnection> {
    if (url === '') throw gatewayFailed('OFFLINE', 'no gateway is configured; set gateway.url', true);
    const device = await loadKey();
    const { version } = options;
    const { handshakeMs } = limits;
    return openGatewayConnection({
      url,
      token,
      device,
      version,
      platform: platform(),
      clock,
      handshakeMs,
      signal,
      onEvent,
    });
  }

  async function establish(): Promise<GatewayConnection> {
    stopRetry?.();
    stopRetry = undefined;
    try {
      const connection = await open(stopped.signal, (event) => {
        let room: Promise<void> | undefined;
        // Each event is about one task at most.
        for (const hear of hearers) room = hear(event) ?? room;
        return room;
      });
      current = connection;
      failures = 0;
      lastFailure = undefined;
      lastConnectedAt = clock.now();
      void connection.closed.then(() => lost(connection));
      options.onChange();
      // `disconnect` may have been called during the handshake. The next request connects again.
      endIfUnused();
      return connection;
    } catch (error) {
      failed(error);
      throw error;
    } finally {
      connecting = undefined;
    }
  }

  function lost(connection: GatewayConnection): void {
    if (current !== connection) return;
    current = undefined;
    options.onChange();
    if (!isWanted) return;
    logger.warn({}, 'the connection to the gateway was lost');
    lastFailure = {
      code: 'SOCKET_CLOSED',
      message: 'the connection was lost',
      isRefusal: false,
      at: clock.monotonic(),
    };
    retryLater();
  }

  function failed(error: unknown): void {
    const failure = describeGatewayFailure(error);
    lastFailure = { ...failure, at: clock.monotonic() };
    // The gateway would refuse again, and may lock out a bridge that keeps asking.
    if (failure.isRefusal) isWanted = false;
    else retryLater();
  }

  function retryLater(): void {
    if (!isWanted || stopped.signal.aborted || stopRetry !== undefined) return;
    failures += 1;
    const pause = backoffDelay(failures, { baseMs: limits.firstPauseMs, maxMs: limits.longestPauseMs }, randomness);
    stopRetry = clock.after(pause, () => {
      stopRetry = undefined;
      if (isWanted && current === undefined) connect().catch(() => undefined);
    });
  }

  function connect(): Promise<GatewayConnection> {
    if (stopped.signal.aborted) return Promise.reject(gatewayFailed('OFFLINE', 'the bridge is stopping'));
    isWanted = true;
    if (current !== undefined) return Promise.resolve(current);
    connecting ??= establish();
    return connecting;
  }

  /** Tasks and requests that are under way are not cut off by a caller's `disconnect`. */
  function endIfUnused(): void {
    if (!isWanted && hearers.size === 0 && requests === 0) end();
  }

  function end(): void {
    stopRetry?.();
    stopRetry = undefined;
    const connection = current;
    current = undefined;
    connection?.close();
  }

  return {
    connect,
    async request(method, params, timeoutMs, signal) {
      requests += 1;
      try {
        const connection = await connect();
        return await connection.request(method, params, timeoutMs, signal);
      } finally {
        requests -= 1;
        endIfUnused();
      }
    },
    listen(hear) {
      hearers.add(hear);
      return () => {
        hearers.delete(hear);
        endIfUnused();
      };
    },
    disconnect() {
      isWanted = false;
      lastFailure = undefined;
      endIfUnused();
    },
    async snapshot() {
      const { id: deviceId } = url === '' ? { id: '' } : await loadKey();
      const greeting = current?.greeting;
      const status =
        current !== undefined
          ? 'connected'
          : connecting !== undefined
            ? 'connecting'
            : lastFailure
              ? 'error'
              : 'offline';
      return {
        status,
        ...placeOf(url),
        statusText: STATUS_TEXTS[status],
        serverName: greeting?.serverName ?? '',
        mainSessionKey: greeting?.mainSessionKey ?? '',
        lastError: lastFailure?.message ?? '',
        lastErrorCode: lastFailure?.code ?? '',
        lastConnectedAtMs: lastConnectedAt,
        deviceId,
        authRole: greeting?.role ?? '',
        authScopes: [...(greeting?.scopes ?? [])],
        connectAuthMode: token === '' ? 'none' : 'shared-token',
        hasSharedAuth: token !== '',
        hasDeviceToken: greeting?.hasDeviceToken ?? false,
      };
    },
    async probe(signal) {
      if (url === '') return { status: 'not_configured', version: '' };
      if (current !== undefined) return { status: 'ok', version: current.greeting.serverVersion };
      const refusal = lastFailure?.isRefusal ? lastFailure : undefined;
      if (refusal !== undefined && clock.monotonic() - refusal.at < limits.refusalMs) {
        return { status: `failed: ${refusal.code}`, version: '' };
      }
      const joined = joinSignals(signal, stopped.signal);
      try {
        const connection = await open(joined.signal, () => undefined);
        connection.close();
        if (lastFailure?.isRefusal) lastFailure = undefined;
        return { status: 'ok', version: connection.greeting.serverVersion };
      } catch (error) {
        const failure = describeGatewayFailure(error);
        if (failure.isRefusal) lastFailure = { ...failure, at: clock.monotonic() };
        return { status: `failed: ${failure.code === 'OFFLINE' ? failure.message : failure.code}`, version: '' };
      } finally {
        joined.release();
      }
    },
    setToken(next) {
      if (sameSecret(next, token)) return;
      token = next;
      lastFailure = undefined;
    },
    async stop() {
      stopped.abort();
      isWanted = false;
      const connection = current;
      end();
      await connection?.closed;
      await connecting?.catch(() => undefined);
    },
  };
}

const STATUS_TEXTS: Readonly<Record<GatewaySnapshot['status'], string>> = {
  offline: 'Not connected.',
  connecting: 'Connecting.',
  connected: 'Connected.',
  error: 'Not connected; see lastError.',
};

function placeOf(url: string): Pick<GatewaySnapshot, 'mode' | 'remoteAddress'> {
  if (url === '') return { mode: 'unconfigured', remoteAddress: '' };
  const { hostname, host } = new URL(url);
  return { mode: isLoopbackHost(hostname) ? 'local' : 'remote', remoteAddress: host };
}
