import { isIPv6, type LookupFunction } from 'node:net';
import type { buildConnector } from 'undici';
import type { Clock } from '../../platform/clock/clock.ts';
import { joinSignals } from '../../platform/clock/join-signals.ts';
import { withinTime } from '../../platform/clock/within-time.ts';
import type { CallbackNetwork } from './callback-network.ts';
import { type CallbackRules, notOpen } from './callback-rules.ts';

export interface CallbackRequest {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly signal: AbortSignal;
}

export interface CallbackPost {
  /** Refuses a URL that no callback may go to. A name that cannot be looked up now is looked up again when it is called. */
  check(url: string): Promise<string>;
  /** Posts once and gives the status of the answer. Rejects when there is none, and with CALLBACK_URL_REFUSED. */
  post(request: CallbackRequest): Promise<number>;
}

export interface CallbackPostOptions {
  readonly rules: CallbackRules;
  readonly network: CallbackNetwork;
  readonly clock: Pick<Clock, 'after'>;
}

/** All of one attempt, from the lookup to the last byte that is read. */
export const ATTEMPT_MS = 10_000;
const LOOKUP_MS = 5000;
const CHECK_LOOKUP_MS = 2000;
const MOST_READ = 64 * 1024;

type Connector = buildConnector.connector;

export function createCallbackPost({ rules, network, clock }: CallbackPostOptions): CallbackPost {
  /** A name is looked up once; every address that it has must be open. */
  async function addressesOf(name: string, limitMs: number): Promise<readonly string[]> {
    const addresses = await withinTime(clock, limitMs, network.lookUp(name), () => {
      throw new Error('the lookup took too long');
    });
    if (addresses.length === 0) throw new Error('the name has no address');
    if (!addresses.every(rules.allows)) throw notOpen();
    return addresses;
  }

  async function post({ url: text, headers, body, signal }: CallbackRequest): Promise<number> {
    const { url, name } = rules.read(text);
    const addresses = name === undefined ? [] : await addressesOf(name, LOOKUP_MS);
    const { Agent, buildConnector, request } = await import('undici');
    const dispatcher = new Agent({
      connect: checkedConnector(buildConnector({ lookup: pinnedLookup(addresses) }), rules.allows),
    });
    try {
      // It follows no redirect: that would lead to an address that was not checked.
      const answer = await request(url, { method: 'POST', headers, body, signal, dispatcher });
      await readSome(answer.body).catch(() => undefined);
      return answer.statusCode;
    } finally {
      await dispatcher.destroy();
    }
  }

  return {
    async check(text) {
      const { url, name } = rules.read(text);
      if (name !== undefined) {
        const addresses = await withinTime(clock, CHECK_LOOKUP_MS, network.lookUp(name), () => []).catch(() => []);
        if (!addresses.every(rules.allows)) throw notOpen();
      }
      return url.href;
    },
    async post(given) {
      const late = new AbortController();
      const cancel = clock.after(ATTEMPT_MS, () => late.abort(new Error('the callback took too long')));
      const { signal, release } = joinSignals(late.signal, given.signal);
      try {
        return await Promise.race([post({ ...given, signal }), rejectionOf(signal)]);
      } finally {
        cancel();
        release();
      }
    },
  };
}

/** Connects to the addresses that were checked, whatever the name means by now. */
function pinnedLookup(addresses: readonly string[]): LookupFunction {
  const found = addresses.map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }));
  return (_name, { all }, give) => {
    if (all) give(null, found);
    else give(null, found[0]?.address ?? '', found[0]?.family);
  };
}

/** The address at the other end has the last word. */
function checkedConnector(connect: Connector, allows: (address: string) => boolean): Connector {
  return (options, done) =>
    connect(options, (...[error, socket]) => {
      if (error !== null) return done(error, null);
      if (allows(socket.remoteAddress ?? '')) return done(null, socket);
      socket.destroy();
      return done(notOpen(), null);
    });
}

/** The answer counts by its status; the rest is read only so that the other side can finish in good order. */
async function readSome(body: AsyncIterable<Buffer>): Promise<void> {
  let read = 0;
  for await (const chunk of body) {
    read += chunk.length;
    if (read >= MOST_READ) return;
  }
}

function rejectionOf(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
}
