import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyReply } from 'fastify';
import type { TSchema } from 'typebox';
import type { DescribedError, ErrorTable } from '../errors/error-table.ts';
import type { MessageChannel } from '../json-rpc/message-channel.ts';

/** The head of a request: all that a guard may look at. The same for plain requests and for WebSocket upgrades. */
export interface RequestHead {
  readonly requestId: string;
  readonly method: string;
  /** As sent, without the query string. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  /** The client's address: the socket's peer, or what a trusted proxy says. */
  readonly address: string;
  /** The other end of the socket, whoever that is. */
  readonly peerAddress: string;
  readonly secure: boolean;
}

/** Decides who is calling, before the body is read. Throws an `AppError` to refuse. */
export type Guard<Caller = unknown> = (head: RequestHead) => Caller | Promise<Caller>;

export interface Call<Caller = unknown> {
  readonly head: RequestHead;
  readonly caller: Caller;
  /** `body: 'json'`: the validated value; `body: 'bytes'`: a Buffer; otherwise undefined. */
  readonly body: unknown;
  readonly params: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, unknown>>;
  /** For status, headers and streams (`reply.hijack()`); a returned value is sent as JSON with status 200. */
  readonly reply: FastifyReply;
}

/** One row of a service's route table: the table is the security review. */
export interface Route<Caller = unknown> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'OPTIONS';
  /** Fastify's syntax: `/models/*`, `/sessions/:id`. */
  readonly path: string;
  readonly guard: Guard<Caller>;
  readonly summary: string;
  /** `json`: parsed and checked against `schema.body`; `bytes`: a Buffer, for what parses by itself. Default: no body. */
  readonly body?: 'json' | 'bytes';
  readonly bodyLimit?: number;
  /** Nobody is told that it is there: not in the API description, and not by a 405 to other methods. */
  readonly unlisted?: true;
  readonly schema?: RouteSchema;
  handle(call: Call<Caller>): unknown;
}

export interface RouteSchema {
  readonly body?: TSchema;
  readonly query?: TSchema;
  readonly params?: TSchema;
  /** By status; the first one is what a caller gets when all goes well. */
  readonly response?: Readonly<Record<number, TSchema>>;
  /** The shape of this row's errors, where it is not the surface's `errorSchema`. */
  readonly error?: TSchema;
}

/** One row of a service's table of WebSocket addresses. */
export interface UpgradeRoute<Caller = unknown> {
  readonly path: string;
  readonly guard: Guard<Caller>;
  readonly summary: string;
  accept(channel: MessageChannel, head: RequestHead, caller: Caller): void;
  /** Asked for every open socket after a reload: false closes it (1008). */
  stillAllowed(caller: Caller): boolean;
}

/** What a service shows on a listener. */
export interface HttpSurface {
  readonly name: string;
  readonly title: string;
  /** Paths whose 404s, 405s and other refusals take this surface's error shape. The longest match wins. */
  readonly prefixes: readonly string[];
  readonly routes: readonly Route[];
  readonly upgrades: readonly UpgradeRoute[];
  readonly errors: ErrorTable;
  /** The shape of `errorBody`, for the API description. */
  readonly errorSchema?: TSchema;
  /** The service's own error body; `head` tells the path, where one path speaks another language than the rest. */
  errorBody(error: ErrorForBody, head: RequestHead): unknown;
  /** Extra headers on a refusal. */
  errorHeaders?(error: ErrorForBody, head: RequestHead): Readonly<Record<string, string>>;
  /** Which pages of other origins may call (CORS). Absent: none. */
  readonly crossOrigin?: CrossOrigin;
  /** True while it answers without any credential: then the address must be loopback and Host is checked. */
  isOpen(): boolean;
  /** The setting that asks for a credential, named when a public address is refused. */
  readonly credentialSetting?: string;
  /** Called once, when the listener drains: take no new work, and resolve when the work under way is done. */
  settle?(): Promise<void>;
}

/**
 * Pages of other origins that may call a surface and read its responses. They send a token: cookies are never allowed
 * (no `access-control-allow-credentials`), so a page gets nothing by who happens to be logged in.
 */
export interface CrossOrigin {
  /** Asked for each request: the list may change. True for requests of programs, which have no origin. */
  allows(head: Pick<RequestHead, 'headers'>): boolean;
  /** Only paths that begin with this. Absent: all paths of the surface. */
  readonly below?: string;
}

export interface ErrorForBody extends DescribedError {
  readonly requestId: string;
}

/** The guard of a row that is open to everyone. There is no caller behind it: a handler must not look at `call.caller`. */
export const anyone: Guard<never> = () => undefined as never;

/** The token of `Authorization: Bearer <token>`; empty, which matches no secret, for anything else. */
export function bearerToken({ headers }: RequestHead): string {
  return /^bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1] ?? '';
}
