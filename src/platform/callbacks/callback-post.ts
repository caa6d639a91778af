import { createHmac } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { isIPv6, type LookupFunction } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { buildConnector } from 'undici';
import { type Clock, deadline, withinTime } from '../clock/clock.ts';
import { AppError, errorCode } from '../errors/app-error.ts';
import {
  type AddressClass,
  classifyAddress,
  classifyHost,
  isLoopbackHost,
  isMetadataName,
} from '../network-address/classify-address.ts';
import { createAddressMatcher } from '../network-address/ip-address.ts';

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

/** Allows callbacks to public addresses, and to those that the operator lists. */
interface CallbackRules {
  /** Reads a URL as far as that can be done without a lookup. Throws CALLBACK_URL_REFUSED. */
  read(url: string): CallbackPlace;
  /** Whether a connection to this address may be made. */
  allows(address: string): boolean;
  /** The refusal of an address. It does not say what the address is, so that it does not map our network for the caller. */
  notOpen(): AppError;
}

interface CallbackPlace {
  readonly url: URL;
  /** A name that has to be looked up; undefined when the URL has an address in it. */
  readonly name: string | undefined;
}

export interface CallbackRulesOptions {
  /** Ranges that the operator lists. */
  readonly allow: readonly string[];
  /** The setting that lists them, for refusals. */
  readonly allowedBy: string;
  /** Whether callers need no credential: a local program with one user. */
  isOpen(): boolean;
  /** The addresses of this machine. A caller that may not reach them directly must not reach them through a callback. */
  ownAddresses(): readonly string[];
}

/** Ports of services that might act upon parts of an HTTP request. */
const REFUSED_PORTS: ReadonlySet<string> = new Set(['22', '25']);
const LISTABLE: ReadonlySet<AddressClass> = new Set(['loopback', 'private', 'carrier-nat', 'public']);

export function createCallbackRules({ allow, allowedBy, isOpen, ownAddresses }: CallbackRulesOptions): CallbackRules {
  const isListed = createAddressMatcher(allow);
  const notOpen = () => refused(`its address is not open to calls from here; the operator may list it in ${allowedBy}`);

  function allows(address: string): boolean {
    const kind = classifyAddress(address);
    if (!LISTABLE.has(kind)) return false;
    if (isListed(address)) return true;
    if (kind === 'loopback') return isOpen();
    return kind === 'public' && (isOpen() || !createAddressMatcher(ownAddresses())(address));
  }

  return {
    allows,
    notOpen,
    read(text) {
      const url = URL.parse(text);
      if (url === null) throw refused('it is not a URL');
      if (url.protocol !== 'http:' && url.protocol !== 'https:') throw refused('only http and https can be called');
      if (url.username !== '' || url.password !== '') throw refused('it must not hold credentials');
      if (REFUSED_PORTS.has(url.port)) throw refused(`port ${url.port} may not be called`);
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
    if (!addresses.every(rules.allows)) throw rules.notOpen();
    return addresses;
  }

  async function post(request: CallbackRequest): Promise<number> {
    const { url, name } = rules.read(request.url);
    const addresses = name === undefined ? [] : await addressesOf(name, LOOKUP_MS);
    return network.send({ ...request, url: url.href }, { addresses, ...rules });
  }

  return {
    async check(text) {
      const { url, name } = rules.read(text);
      if (name !== undefined) {
        const addresses = await withinTime(clock, CHECK_LOOKUP_MS, network.lookUp(name), () => []).catch(() => []);
        if (!addresses.every(rules.allows)) throw rules.notOpen();
      }
      return url.href;
    },
    async post(given) {
      const late = Object.assign(new Error('the callback took too long'), { code: 'TIMEOUT' });
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
interface CallbackWay extends Pick<CallbackRules, 'allows' | 'notOpen'> {
  /** What the name in the URL stands for; none when the URL has an address in it. */
  readonly addresses: readonly string[];
}

const MAX_READ = 64 * 1024;

type Connector = buildConnector.connector;

/** Posts once over a connection of its own, and gives the status of the answer. */
async function sendCallback(
  { url, headers, body, signal }: CallbackRequest,
  { addresses, ...rules }: CallbackWay,
): Promise<number> {
  const { Agent, buildConnector, request } = await import('undici');
  const dispatcher = new Agent({
    connect: checkedConnector(buildConnector({ lookup: pinnedLookup(addresses) }), rules),
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

/** Returns a `fetch` that connects only to allowed addresses, also if a name changes. Redirects are errors, or results with `manual`. */
export function createCheckedFetch(rules: CallbackRules): typeof fetch {
  let made: Promise<{ readonly send: typeof fetch; readonly dispatcher: unknown }> | undefined;
  const make = async () => {
    const { Agent, buildConnector, fetch: send } = await import('undici');
    const connect = checkedConnector(buildConnector({ lookup: allowedLookup(rules), timeout: ATTEMPT_MS }), rules);
    return { send: send as unknown as typeof fetch, dispatcher: new Agent({ connect }) };
  };
  return async (input, init) => {
    const { url } = rules.read(String(input));
    made ??= make();
    const { send, dispatcher } = await made;
    const redirect = init?.redirect === 'manual' ? 'manual' : 'error';
    return send(url, { ...init, redirect, dispatcher } as RequestInit);
  };
}

/** Looks a name up, and fails for a name with any address that is not allowed. */
function allowedLookup({ allows, notOpen }: CallbackRules): LookupFunction {
  return (name, { all }, give) => {
    lookup(name, { all: true }).then(
      (found) => {
        const [first] = found;
        if (first === undefined || !found.every(({ address }) => allows(address))) return give(notOpen(), '');
        return all ? give(null, found) : give(null, first.address, first.family);
      },
      (error: NodeJS.ErrnoException) => give(error, ''),
    );
  };
}

/** Resolves to the checked addresses, even if the name has changed since. */
function pinnedLookup(addresses: readonly string[]): LookupFunction {
  const found = addresses.map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }));
  return (_name, { all }, give) => {
    if (all) give(null, found);
    else give(null, found[0]?.address ?? '', found[0]?.family);
  };
}

/** Refuses a connection whose remote address is not allowed. */
function checkedConnector(connect: Connector, { allows, notOpen }: Pick<CallbackWay, 'allows' | 'notOpen'>): Connector {
  return (options, done) =>
    connect(options, (...[error, socket]) => {
      if (error !== null) return done(error, null);
      if (allows(socket.remoteAddress ?? '')) return done(null, socket);
      socket.destroy();
      return done(notOpen(), null);
    });
}

/** Reads a part of the body only so that the receiver can finish its response. Only the status counts. */
async function readSome(body: AsyncIterable<Buffer>): Promise<void> {
  let read = 0;
  for await (const chunk of body) {
    read += chunk.length;
    if (read >= MAX_READ) return;
  }
}

/** The result of an attempt to send something. */
type DeliveryResult = 'sent' | 'try again' | 'given up';

export interface AttemptReport {
  readonly result: DeliveryResult;
  /** For people: the status of the response, or why there was none. Names no address. */
  readonly detail: string;
}

/** One event to post. */
export interface EventPost {
  readonly url: string;
  /** Its name, such as `user.created`. */
  readonly event: string;
  /** The same for every attempt, so that the receiver can tell a repeated one. */
  readonly delivery: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: string;
  /** Empty: the request has no signature. */
  readonly secret: string;
  readonly now: number;
  readonly signal: AbortSignal;
}

/** Makes one attempt to post an event, signed. Never rejects. */
export async function postEvent(post: CallbackPost['post'], given: EventPost): Promise<AttemptReport> {
  const { url, event, delivery, body, secret, now, signal } = given;
  const headers = {
    'content-type': 'application/json',
    'x-app-event': event,
    ...given.headers,
    'x-app-delivery': delivery,
    ...signatureHeader(secret, Math.floor(now / 1000), body),
  };
  try {
    const status = await post({ url, headers, body, signal });
    return { result: judgeStatus(status), detail: `HTTP ${status}` };
  } catch (error) {
    const isRefused = errorCode(error) === 'CALLBACK_URL_REFUSED';
    return { result: isRefused ? 'given up' : 'try again', detail: describeFailure(error) };
  }
}

/** The code of the system or the client where there is one: messages may hold addresses. */
export function describeFailure(error: unknown): string {
  const { code, cause } = Object(error) as { readonly code?: unknown; readonly cause?: unknown };
  const found = [code, (Object(cause) as { readonly code?: unknown }).code].find((one) => typeof one === 'string');
  return typeof found === 'string' ? found : 'no response';
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
