import { createHmac } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { isIPv6, type LookupFunction } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { buildConnector } from 'undici';
import { type Clock, deadline, withinTime } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import {
  type AddressClass,
  classifyAddress,
  classifyHost,
  isLoopbackHost,
  isMetadataName,
} from '../../platform/network-address/classify-address.ts';
import { createAddressMatcher } from '../../platform/network-address/ip-address.ts';
import type { JobDeliveryRow, JobRow } from '../storage/bridge-schema.ts';
import { toRecord } from './job-record.ts';

/** What callbacks need of the network. */
export interface CallbackNetwork {
  /** All addresses of a name. Rejects when it has none. */
  lookUp(name: string): Promise<readonly string[]>;
  ownAddresses(): readonly string[];
  /** Posts once and gives the status of the answer. Rejects when there is none. */
  send(request: CallbackRequest, way: CallbackWay): Promise<number>;
}

export const systemCallbackNetwork: CallbackNetwork = {
  async lookUp(name) {
    return (await lookup(name, { all: true })).map(({ address }) => address);
  },
  ownAddresses: () =>
    Object.values(networkInterfaces()).flatMap((found = []) => found.map(({ address }) => withoutZone(address))),
  send: sendCallback,
};

function withoutZone(address: string): string {
  return address.split('%')[0] ?? address;
}

/** Where callbacks may go (contract/bridge 7, address rule). */
interface CallbackRules {
  /** Reads a URL as far as that can be done without a lookup. Throws CALLBACK_URL_REFUSED. */
  read(url: string): CallbackPlace;
  /** Whether a connection to this address may be made. */
  allows(address: string): boolean;
}

interface CallbackPlace {
  readonly url: URL;
  /** A name that has to be looked up; undefined when the URL has an address in it. */
  readonly name: string | undefined;
}

export interface CallbackRulesOptions {
  /** Ranges that the operator lists. */
  readonly allow: readonly string[];
  /** Whether no token is configured: a local bridge with one user. */
  isOpen(): boolean;
  /** The addresses of this machine. Whoever may not call it directly must not do so through a callback. */
  ownAddresses(): readonly string[];
}

/** Services that understand no HTTP, but might act upon it. */
const REFUSED_PORTS: ReadonlySet<string> = new Set(['22', '25']);
const LISTABLE: ReadonlySet<AddressClass> = new Set(['loopback', 'private', 'carrier-nat', 'public']);

export function createCallbackRules({ allow, isOpen, ownAddresses }: CallbackRulesOptions): CallbackRules {
  const isListed = createAddressMatcher(allow);

  function allows(address: string): boolean {
    const kind = classifyAddress(address);
    if (!LISTABLE.has(kind)) return false;
    if (isListed(address)) return true;
    if (kind === 'loopback') return isOpen();
    return kind === 'public' && (isOpen() || !createAddressMatcher(ownAddresses())(address));
  }

  return {
    allows,
    read(text) {
      const url = URL.parse(text);
      if (url === null) throw refused('it is not a URL');
      if (url.protocol !== 'http:' && url.protocol !== 'https:') throw refused('only http and https can be called');
      if (url.username !== '' || url.password !== '') throw refused('it must not hold credentials');
      if (REFUSED_PORTS.has(url.port)) throw refused(`port ${url.port} is not for callbacks`);
      const host = classifyHost(url.hostname);
      if (host.kind === 'invalid') throw refused('its host is not valid');
      if (host.kind === 'address') {
        if (!allows(host.address)) throw notOpen();
        return { url, name: undefined };
      }
      if (isMetadataName(host.name)) throw notOpen();
      if (isLoopbackHost(host.name) && !allows('127.0.0.1') && !allows('::1')) throw notOpen();
      return { url, name: host.name };
    },
  };
}

/** What the address is stays unsaid: a refusal must not map our network for the caller. */
export function notOpen(): AppError {
  return refused('its address is not open to callbacks; the operator may list it in jobs.callback_allow');
}

function refused(reason: string): AppError {
  return new AppError('CALLBACK_URL_REFUSED', { reason });
}

export interface CallbackPost {
  /** Refuses a URL that no callback may go to. A name that cannot be looked up now is looked up again when it is called. */
  check(url: string): Promise<string>;
  /** Posts once and gives the status of the answer. Rejects when there is none, and with CALLBACK_URL_REFUSED. */
  post(request: CallbackRequest): Promise<number>;
}

interface CallbackPostOptions {
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

interface CallbackRequest {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly signal: AbortSignal;
}

/** Where a request may go. */
interface CallbackWay {
  /** What the name in the URL stands for; none when the URL has an address in it. */
  readonly addresses: readonly string[];
  /** Asked about the address at the other end, which has the last word. */
  allows(address: string): boolean;
}

const MOST_READ = 64 * 1024;

type Connector = buildConnector.connector;

/** Posts once over a connection of its own, and gives the status of the answer. */
async function sendCallback(
  { url, headers, body, signal }: CallbackRequest,
  { addresses, allows }: CallbackWay,
): Promise<number> {
  const { Agent, buildConnector, request } = await import('undici');
  const dispatcher = new Agent({
    connect: checkedConnector(buildConnector({ lookup: pinnedLookup(addresses) }), allows),
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

/** What came of an attempt to tell somebody something. */
export type DeliveryResult = 'sent' | 'try again' | 'given up';

interface WebhookOptions {
  readonly post: CallbackPost['post'];
  /** Empty: webhooks carry no signature. */
  secret(): string;
  now(): number;
}

/** One attempt to post the record of an ended job (contract/bridge 7, webhook). */
type SendWebhook = (job: JobRow, delivery: JobDeliveryRow, signal: AbortSignal) => Promise<DeliveryResult>;

export function createWebhook({ post, secret, now }: WebhookOptions): SendWebhook {
  return async (job, delivery, signal) => {
    // As it was when the job ended: every attempt says the same.
    const body = JSON.stringify(toRecord({ ...job, webhook_sent: 0, webhook_tries: 0, card_sent: 0 }, now()));
    const headers = {
      'content-type': 'application/json',
      'x-app-event': 'job.finished',
      'x-app-job-id': job.id,
      'x-app-delivery': delivery.id,
      ...signatureHeader(secret(), Math.floor(now() / 1000), body),
    };
    try {
      return judgeStatus(await post({ url: job.webhook_url, headers, body, signal }));
    } catch (error) {
      return errorCode(error) === 'CALLBACK_URL_REFUSED' ? 'given up' : 'try again';
    }
  };
}

export function judgeStatus(status: number): DeliveryResult {
  if (status >= 200 && status < 300) return 'sent';
  return status === 408 || status === 429 || status >= 500 ? 'try again' : 'given up';
}

function signatureHeader(secret: string, time: number, body: string): Record<string, string> {
  if (secret === '') return {};
  const mark = createHmac('sha256', secret).update(`${time}.${body}`).digest('hex');
  return { 'x-app-signature': `t=${time},v1=${mark}` };
}
