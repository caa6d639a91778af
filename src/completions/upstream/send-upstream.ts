import type { Clock } from '../../platform/clock/clock.ts';
import type { UsableApi } from '../apis/model-api.ts';
import type { AuthoriseUpstream } from '../dialects/authorise-upstream.ts';
import { upstreamUrl } from '../dialects/dialect.ts';
import type { Attempt } from '../routing/attempt-call.ts';
import {
  createAlarms,
  type Exchange,
  type ExchangeListener,
  startExchange,
  type UpstreamBody,
  type UpstreamMethod,
} from './upstream-exchange.ts';
import type { UpstreamPool, UpstreamPools } from './upstream-pools.ts';

export interface OutgoingCall {
  readonly api: UsableApi;
  readonly attempt: Attempt;
  readonly encoded: {
    readonly path: string;
    readonly headers: Readonly<Record<string, string>>;
    readonly body: UpstreamBody;
    /** Absent: POST. */
    readonly method?: UpstreamMethod;
    /** Absent: JSON. */
    readonly contentType?: string;
    /** Absent: JSON, or events for a stream. */
    readonly accept?: string;
  };
  readonly stream: boolean;
  readonly idempotencyId: string;
}

/** Makes a request ready to go. Nothing is sent before the returned function is called. */
export type SendUpstream = (call: OutgoingCall) => StartExchange | Promise<StartExchange>;

type StartExchange = (listener: ExchangeListener) => Exchange;

export interface SendUpstreamOptions {
  readonly pools: UpstreamPools;
  readonly authorise: AuthoriseUpstream;
  readonly clock: Clock;
}

export function createSendUpstream({ pools, authorise, clock }: SendUpstreamOptions): SendUpstream {
  const alarms = createAlarms(clock);
  /** The address that was called last, for each API: nearly always it is the next one, too. */
  const lastAddress = new WeakMap<UsableApi, Address>();

  function addressOf(api: UsableApi, operation: string): Address {
    const last = lastAddress.get(api);
    if (last?.operation === operation) return last;
    const url = upstreamUrl(api.baseUrl, operation);
    const split = url.indexOf('/', url.indexOf('://') + 3);
    const address = {
      operation,
      url,
      origin: split === -1 ? url : url.slice(0, split),
      host: url.slice(url.indexOf('://') + 3, split === -1 ? undefined : split),
      path: split === -1 ? '/' : url.slice(split),
    };
    lastAddress.set(api, address);
    return address;
  }

  return ({ api, attempt, encoded, stream, idempotencyId }) => {
    const { timeouts, deadline, deadlineName } = attempt;
    const { url, origin, host, path } = addressOf(api, encoded.path);
    const headers = {
      'user-agent': 'trestle',
      ...api.headers,
      ...encoded.headers,
      'content-type': encoded.contentType ?? 'application/json',
      accept: encoded.accept ?? (stream ? ACCEPT_STREAM : 'application/json'),
      // What is not compressed can be passed on as it comes.
      'accept-encoding': 'identity',
      'idempotency-key': idempotencyId,
    };
    const { dialect, credentials } = api;
    const authorised = authorise({
      dialect,
      credentials,
      url,
      headers,
      // Read for signatures only.
      get body() {
        return typeof encoded.body === 'string' ? encoded.body : Buffer.concat(encoded.body);
      },
    });
    const pool = pools.open(origin, timeouts.connect);
    const { first_byte: firstByteMs, idle: idleMs } = timeouts;
    const times = { firstByteMs, idleMs, deadline, deadlineName, untilEvent: stream };
    const ready =
      (opened: UpstreamPool, allowed: Readonly<Record<string, string>>): StartExchange =>
      (listener) => {
        const call = {
          host,
          path,
          headers: allowed,
          body: encoded.body,
          ...(encoded.method && { method: encoded.method }),
        };
        return startExchange({ pool: opened, call, times, clock, alarms, listener });
      };
    // Only the first call of all, signatures and access tokens take time.
    if (!(authorised instanceof Promise) && !(pool instanceof Promise)) return ready(pool, authorised);
    return Promise.all([pool, authorised]).then(([opened, allowed]) => ready(opened, allowed));
  };
}

interface Address {
  readonly operation: string;
  readonly url: string;
  readonly origin: string;
  readonly host: string;
  readonly path: string;
}

const ACCEPT_STREAM = 'text/event-stream, application/vnd.amazon.eventstream';
