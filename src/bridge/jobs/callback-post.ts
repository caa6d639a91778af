import { type Clock, deadline, withinTime } from '../../platform/clock/clock.ts';
import type { CallbackNetwork } from './callback-network.ts';
import { type CallbackRules, notOpen } from './callback-rules.ts';
import type { CallbackRequest } from './send-callback.ts';

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

  async function post(request: CallbackRequest): Promise<number> {
    const { url, name } = rules.read(request.url);
    const addresses = name === undefined ? [] : await addressesOf(name, LOOKUP_MS);
    return network.send({ ...request, url: url.href }, { addresses, allows: rules.allows });
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
      const late = new Error('the callback took too long');
      const { signal, release } = deadline(clock, ATTEMPT_MS, [given.signal], late);
      try {
        return await Promise.race([post({ ...given, signal }), rejectionOf(signal)]);
      } finally {
        release();
      }
    },
  };
}

function rejectionOf(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
}
