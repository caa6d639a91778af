import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { forwardedAddress, isForwardedHttps, plainAddress } from './client-address.ts';
import type { RouteMeter } from './http-metrics.ts';
import type { HttpSurface, RequestHead } from './surface.ts';

/** What all requests of one listener share. */
export interface RequestOrigin {
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
 * because there is one per request and most of them are asked for nothing but the id.
 */
export class RequestState implements RequestHead {
  readonly requestId: string;
  readonly startedAt: number;
  readonly request: IncomingMessage;
  /** Undefined for WebSocket upgrades. */
  readonly response: ServerResponse | undefined;
  row: MatchedRow | undefined = undefined;
  caller: unknown = undefined;
  /** Set when the answer was written around `response`. */
  rawStatus = 0;
  awaitsContinue = false;
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
