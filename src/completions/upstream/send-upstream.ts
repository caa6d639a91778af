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
  readonly attempt: Omit<Attempt, 'lease'>;
  readonly encoded: {
    readonly path: string;
    readonly headers: Readonly<Record<string, string>>;
    readonly body: UpstreamBody;
    /** Absent: POST. */
    readonly method?: UpstreamMethod;
    /** Absent: JSON. */
    readonly contentType?: string;
    /** Absent: as in the headers, else JSON, or events for a stream. */
    readonly accept?: string;
  };
  readonly stream: boolean;
  readonly idempotencyId: string;
}

/** Prepares a request. The returned function sends it. */
export type SendUpstream = (call: OutgoingCall) => StartExchange | Promise<StartExchange>;

type StartExchange = (listener: ExchangeListener) => Exchange;

export interface SendUpstreamOptions {
  readonly pools: UpstreamPools;
  readonly authorise: AuthoriseUpstream;
  readonly clock: Clock;
}

export function createSendUpstream({ pools, authorise, clock }: SendUpstreamOptions): SendUpstream {
  const alarms = createAlarms(clock);
  /** The last address of each API, because the next call nearly always uses the same one. */
  const lastAddress = new WeakMap<UsableApi, Address>();

  function addressOf(api: UsableApi, operation: string): Address {
    const last = lastAddress.get(api);
    if (last?.operation === operation) return last;
    const url = upstreamUrl(api.baseUrl, operation);
    const split = url.indexOf('/', url.indexOf('://') + 3);
    const address: Address = {
      operation,
      url,
      origin: split === -1 ? url : url.slice(0, split),
      host: url.slice(url.indexOf('://') + 3, split === -1 ? undefined : split),
      path: split === -1 ? '/' : url.slice(split),
      template: undefined,
    };
    lastAddress.set(api, address);
    return address;
  }

  /**
   * The headers of a call, with its credential. Those of the last call to the address are the template of the next one, where
   * they differ in nothing but the idempotency key: no own headers, the same types, and a credential that is always the same.
   */
  function headersFor(
    address: Address,
    api: UsableApi,
    encoded: OutgoingCall['encoded'],
    stream: boolean,
    idempotencyId: string,
  ): Headers | Promise<Headers> {
    const contentType = encoded.contentType ?? JSON_TYPE;
    const accept = encoded.accept ?? encoded.headers.accept ?? (stream ? ACCEPT_STREAM : JSON_TYPE);
    const isPlain = Object.keys(encoded.headers).length === 0;
    const { template } = address;
    if (isPlain && template !== undefined && template.accept === accept && template['content-type'] === contentType) {
      return { ...template, 'idempotency-key': idempotencyId };
    }
    const headers = {
      'user-agent': 'trestle',
      ...api.headers,
      ...encoded.headers,
      'content-type': contentType,
      accept,
      // Uncompressed responses can be relayed as bytes.
      'accept-encoding': 'identity',
      'idempotency-key': idempotencyId,
    };
    const { dialect, credentials } = api;
    const authorised = authorise({ dialect, credentials, url: address.url, headers, body: encoded.body });
    // A promise stands for a signature of this call, or for an access token that expires.
    if (isPlain && !(authorised instanceof Promise)) address.template = authorised;
    return authorised;
  }

  return ({ api, attempt, encoded, stream, idempotencyId }) => {
    const { timeouts, deadline, deadlineName } = attempt;
    const address = addressOf(api, encoded.path);
    const { origin, host, path } = address;
    const authorised = headersFor(address, api, encoded, stream, idempotencyId);
    const pool = pools.open(origin, timeouts.connect);
    const { first_byte: firstByteMs, idle: idleMs } = timeouts;
    const times = { firstByteMs, idleMs, deadline, deadlineName, untilEvent: stream };
    const { body, method } = encoded;
    const ready =
      (opened: UpstreamPool, headers: Headers): StartExchange =>
      (listener) =>
        startExchange({ pool: opened, call: { host, path, headers, body, method }, times, clock, alarms, listener });
    // Only the first call, signatures and access tokens need to wait.
    if (!(authorised instanceof Promise) && !(pool instanceof Promise)) return ready(pool, authorised);
    return Promise.all([pool, authorised]).then(([opened, allowed]) => ready(opened, allowed));
  };
}

type Headers = Readonly<Record<string, string>>;

interface Address {
  /** The headers of a call to this address. */
  template: Headers | undefined;
  readonly operation: string;
  readonly url: string;
  readonly origin: string;
  readonly host: string;
  readonly path: string;
}

const JSON_TYPE = 'application/json';
const ACCEPT_STREAM = 'text/event-stream, application/vnd.amazon.eventstream';
