import type { Clock } from '../../platform/clock/clock.ts';
import type { UsableApi } from '../apis/model-api.ts';
import type { AuthoriseUpstream } from '../dialects/authorise-upstream.ts';
import { upstreamUrl } from '../dialects/upstream-url.ts';
import type { Attempt } from './attempt-call.ts';
import { type Exchange, type ExchangeListener, startExchange } from './upstream-exchange.ts';
import { upstreamError } from './upstream-failure.ts';
import type { UpstreamPools } from './upstream-pools.ts';

export interface OutgoingCall {
  readonly api: UsableApi;
  readonly attempt: Attempt;
  readonly encoded: {
    readonly path: string;
    readonly headers: Readonly<Record<string, string>>;
    readonly body: string | Buffer;
  };
  readonly stream: boolean;
  readonly idempotencyId: string;
}

/** Makes a request ready to go. Nothing is sent before the returned function is called. */
export type SendUpstream = (call: OutgoingCall) => Promise<(listener: ExchangeListener) => Exchange>;

export interface SendUpstreamOptions {
  readonly pools: UpstreamPools;
  readonly authorise: AuthoriseUpstream;
  readonly clock: Clock;
}

export function createSendUpstream({ pools, authorise, clock }: SendUpstreamOptions): SendUpstream {
  return async ({ api, attempt, encoded, stream, idempotencyId }) => {
    const { timeouts, deadline } = attempt;
    const url = upstreamUrl(api.baseUrl, encoded.path);
    const split = url.indexOf('/', url.indexOf('://') + 3);
    const origin = split === -1 ? url : url.slice(0, split);
    const headers = {
      ...api.headers,
      ...encoded.headers,
      'content-type': 'application/json',
      accept: stream ? ACCEPT_STREAM : 'application/json',
      // What is not compressed can be passed on as it comes.
      'accept-encoding': 'identity',
      'user-agent': 'trestle',
      'idempotency-key': idempotencyId,
    };
    const { dialect, credentials } = api;
    const authorised = authorise({ dialect, credentials, url, headers, body: encoded.body });
    const ready = authorised instanceof Promise ? await authorised : authorised;
    const pool = await openPool(pools, origin, timeouts.connect);
    const call = { path: split === -1 ? '/' : url.slice(split), headers: ready, body: encoded.body };
    const times = { firstByteMs: timeouts.first_byte, idleMs: timeouts.idle, deadline };
    return (listener) => startExchange({ pool, call, times, clock, listener });
  };
}

const ACCEPT_STREAM = 'text/event-stream, application/vnd.amazon.eventstream';

async function openPool(pools: UpstreamPools, origin: string, connectMs: number) {
  try {
    return await pools.open(origin, connectMs);
  } catch (error) {
    throw error instanceof TypeError ? upstreamError('its address is not a URL', error) : error;
  }
}
