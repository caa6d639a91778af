import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { Randomness } from '../clock/randomness.ts';
import type { LogFields } from '../log/logger.ts';
import { classifyAddress } from '../network-address/classify-address.ts';
import type { Bagged } from '../queue/after-reads.ts';
import type { RouteMeter } from './http-metrics.ts';
import type { HttpSurface, RequestHead } from './surface.ts';

/** What all requests of one listener share. */
interface RequestOrigin {
  readonly hasTrustedProxies: boolean;
  isTrustedProxy(address: string): boolean;
}

/** The row of a route table that a request was matched to. */
export interface MatchedRow {
  readonly surface: HttpSurface;
  readonly path: string;
  readonly meter: RouteMeter;
}

const STATE = Symbol('request state');

interface MarkedMessage extends IncomingMessage {
  [STATE]?: RequestState;
}

/**
 * One request on its way: the head that guards see, and what the platform notes about it. A class with lazy getters,
 * because there is one per request and usually only its id is read.
 */
export class RequestState implements RequestHead, Bagged {
  readonly requestId: string;
  readonly startedAt: number;
  readonly request: IncomingMessage;
  /** Undefined for WebSocket upgrades. */
  readonly response: ServerResponse | undefined;
  row: MatchedRow | undefined = undefined;
  caller: unknown = undefined;
  /** What a service adds to the log line of the request. */
  about: LogFields | undefined = undefined;
  /** The same as members of JSON text, each with a comma, where every part of it is ours. */
  ownAbout = '';
  /** Set when the answer was written around `response`. */
  rawStatus = 0;
  awaitsContinue = false;
  place = -1;
  readonly #origin: RequestOrigin;
  #path: string | undefined = undefined;
  #query: URLSearchParams | undefined = undefined;

  constructor(
    origin: RequestOrigin,
    requestId: string,
    startedAt: number,
    request: IncomingMessage,
    response: ServerResponse | undefined,
  ) {
    this.#origin = origin;
    this.requestId = requestId;
    this.startedAt = startedAt;
    this.request = request;
    this.response = response;
    (request as MarkedMessage)[STATE] = this;
  }

  get method(): string {
    return this.request.method ?? '';
  }

  get path(): string {
    this.#path ??= pathOf(this.request);
    return this.#path;
  }

  get query(): URLSearchParams {
    if (this.#query === undefined) {
      const url = this.request.url ?? '';
      const mark = url.indexOf('?');
      this.#query = new URLSearchParams(mark === -1 ? '' : url.slice(mark + 1));
    }
    return this.#query;
  }

  get headers(): IncomingHttpHeaders {
    return this.request.headers;
  }

  get peerAddress(): string {
    return plainAddress(this.request.socket.remoteAddress);
  }

  get address(): string {
    const peer = this.peerAddress;
    const forwardedFor = this.#trustedHeader(peer, 'x-forwarded-for');
    return forwardedFor === undefined ? peer : forwardedAddress(peer, forwardedFor, this.#origin.isTrustedProxy);
  }

  get secure(): boolean {
    if (!this.#origin.hasTrustedProxies) return false;
    const proto = this.#trustedHeader(this.peerAddress, 'x-forwarded-proto');
    return proto !== undefined && isForwardedHttps(proto);
  }

  #trustedHeader(peer: string, name: 'x-forwarded-for' | 'x-forwarded-proto'): string | undefined {
    if (!this.#origin.hasTrustedProxies) return undefined;
    const value = this.request.headers[name];
    if (value === undefined || !this.#origin.isTrustedProxy(peer)) return undefined;
    return typeof value === 'string' ? value : value.join(',');
  }
}

export function stateOf(request: IncomingMessage): RequestState {
  const state = (request as MarkedMessage)[STATE];
  if (state === undefined) throw new Error('The request did not come through a listener');
  return state;
}

/** The path as sent, without the query string. */
export function pathOf(request: Pick<IncomingMessage, 'url'>): string {
  const url = request.url ?? '';
  const mark = url.indexOf('?');
  return mark === -1 ? url : url.slice(0, mark);
}

const ACCEPTABLE = /^[A-Za-z0-9_-]{1,128}$/;
const START_BYTES = 6;

/** Takes over the caller's `x-request-id` when it is harmless, else makes one: unique, cheap, not a secret. */
export function createRequestIds(randomness: Pick<Randomness, 'bytes'>): (given: unknown) => string {
  const start = Buffer.from(randomness.bytes(START_BYTES)).toString('hex');
  let count = 0;
  return (given) => {
    if (typeof given === 'string' && ACCEPTABLE.test(given)) return given;
    count += 1;
    return `req-${start}-${count.toString(36)}`;
  };
}

const MAPPED = '::ffff:';

/** Strips the IPv4-mapped prefix: `::ffff:10.0.0.1` becomes `10.0.0.1`. */
export function plainAddress(address: string | undefined): string {
  if (address === undefined) return '';
  return address.startsWith(MAPPED) && address.includes('.') ? address.slice(MAPPED.length) : address;
}

/**
 * Returns the client behind trusted proxies: from the right of `X-Forwarded-For`, the first hop that is not a trusted proxy.
 * Entries left of it are that client's own claims. An entry that is not an address ends the search.
 */
export function forwardedAddress(
  peer: string,
  forwardedFor: string,
  isTrustedProxy: (address: string) => boolean,
): string {
  let nearest = peer;
  for (const entry of forwardedFor.split(',').reverse()) {
    const hop = plainAddress(withoutPort(entry.trim()));
    if (classifyAddress(hop) === 'invalid') return nearest;
    nearest = hop;
    if (!isTrustedProxy(hop)) return nearest;
  }
  return nearest;
}

/** Returns whether the nearest proxy, which is the last entry, received the request over https. */
export function isForwardedHttps(forwardedProto: string): boolean {
  return forwardedProto.slice(forwardedProto.lastIndexOf(',') + 1).trim() === 'https';
}

function withoutPort(entry: string): string {
  const [, bracketed, plain] = /^(?:\[([^\]]+)\](?::\d+)?|([^:]+):\d+)$/.exec(entry) ?? [];
  return bracketed ?? plain ?? entry;
}
