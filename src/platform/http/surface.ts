import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { pipeline, Readable } from 'node:stream';
import type { Static, TSchema } from 'typebox';
import type { DescribedError, ErrorTable } from '../errors/error-table.ts';
import type { MessageChannel } from '../json-rpc/message-channel.ts';

/** The head of a request, the only part that a guard may read. The same for plain requests and for WebSocket upgrades. */
export interface RequestHead {
  readonly requestId: string;
  readonly method: string;
  /** As sent, without the query string. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  /** The client's address: the socket's peer, or what a trusted proxy says. */
  readonly address: string;
  /** The other end of the socket: the client, or the nearest proxy. */
  readonly peerAddress: string;
  readonly secure: boolean;
}

/** Decides who is calling, before the body is read. Throws an `AppError` to refuse. */
export type Guard<Caller = unknown> = (head: RequestHead) => Caller | Promise<Caller>;

export interface Call<Caller = unknown, Body = unknown, Query = Readonly<Record<string, unknown>>, Params = unknown> {
  readonly head: RequestHead;
  readonly caller: Caller;
  /** `body: 'json'`: the validated value; `body: 'bytes'`: a Buffer; otherwise undefined. */
  readonly body: Body;
  readonly params: Params;
  readonly query: Query;
  /** For status, headers and streams (`reply.takeOver()`); a returned value is sent as JSON with status 200. */
  readonly reply: Reply;
}

/** One row of a service's route table: the table is the security review. */
export interface Route<Caller = unknown> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'OPTIONS';
  /** Fixed segments, `:name` for one segment, a final `*` for the rest: `/sessions/:id`, `/models/*`. */
  readonly path: string;
  readonly guard: Guard<Caller>;
  readonly summary: string;
  /** `json`: parsed and checked against `schema.body`; `bytes`: a Buffer, for what parses by itself. Default: no body. */
  readonly body?: 'json' | 'bytes';
  readonly bodyLimit?: number;
  /** Takes a body of any content type, not only JSON: a file. */
  readonly anyType?: true;
  /** In neither the API description nor a 405 to other methods. */
  readonly unlisted?: true;
  readonly schema?: RouteSchema;
  handle(call: Call<Caller, unknown, Readonly<Record<string, unknown>>, Readonly<Record<string, string>>>): unknown;
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

/** What a row takes and returns: its part of the contract. */
export interface Operation {
  readonly summary: string;
  /** The JSON body. Absent: no body. */
  readonly body?: TSchema;
  /** The handler gets the bytes of the body and parses them; `body` is there for the documents. */
  readonly raw?: true;
  /** With `raw`: takes a body of any content type, not only JSON. */
  readonly anyType?: true;
  readonly bodyLimit?: number;
  readonly query?: TSchema;
  readonly params?: TSchema;
  /** By status; the first one is the status of a success. */
  readonly response?: Readonly<Record<number, TSchema>>;
  /** The shape of this row's errors, where it is not the surface's `errorSchema`. */
  readonly error?: TSchema;
  /** In neither the API description nor a 405 to other methods. */
  readonly unlisted?: true;
}

type RowName = `${Route['method']} /${string}`;
/** The body of an operation, as its handler gets it. */
export type BodyOf<Given extends Operation> = Given extends { raw: true }
  ? Buffer
  : Given extends { body: infer Body extends TSchema }
    ? Static<Body>
    : undefined;
type QueryOf<Given extends Operation> = Given extends { query: infer Query extends TSchema }
  ? Static<Query>
  : Readonly<Record<string, unknown>>;
/** The names after the colons of a path, and `*` for the rest of one. */
type ParamsOf<Path extends string> = Path extends `${string}:${infer Name}/${infer Rest}`
  ? { readonly [Key in Name]: string } & ParamsOf<Rest>
  : Path extends `${string}:${infer Name}`
    ? { readonly [Key in Name]: string }
    : Path extends `${string}/*`
      ? { readonly '*': string }
      : unknown;

/**
 * One row of a route table. The handler takes the types of body, query and path from the operation and the name, and its
 * result is sent with the first status of the operation: `defineRoute('GET /keys/:id', guard, operation, handle)`.
 */
export function defineRoute<Caller, const Name extends RowName, const Given extends Operation>(
  name: Name,
  guard: Guard<Caller>,
  operation: Given,
  handle: (call: Call<Caller, BodyOf<Given>, QueryOf<Given>, ParamsOf<Name>>) => unknown,
): Route {
  const space = name.indexOf(' ');
  const { summary, body, raw, anyType, bodyLimit, query, params, response, error, unlisted } = operation;
  const status = Number(Object.keys(response ?? {})[0] ?? 200);
  return {
    method: name.slice(0, space) as Route['method'],
    path: name.slice(space + 1),
    guard,
    summary,
    ...(raw === true ? { body: 'bytes' } : body !== undefined && { body: 'json' }),
    ...(bodyLimit !== undefined && { bodyLimit }),
    ...(anyType && { anyType }),
    ...(unlisted && { unlisted }),
    schema: {
      ...(body && { body }),
      ...(query && { query }),
      ...(params && { params }),
      ...(response && { response }),
      ...(error && { error }),
    },
    handle(call) {
      if (status === 201 || status === 202) call.reply.code(status);
      // The listener has checked every part against the schemas that these types come from.
      return handle(call as Parameters<typeof handle>[0]);
    },
  };
}

/** One row of a service's table of WebSocket addresses. */
export interface UpgradeRoute<Caller = unknown> {
  readonly path: string;
  readonly guard: Guard<Caller>;
  readonly summary: string;
  /** The shape of this row's errors, where it is not the surface's `errorSchema`. */
  readonly error?: TSchema;
  /** Left out of the API description, because only this program calls it. */
  readonly unlisted?: boolean;
  accept(channel: MessageChannel, head: RequestHead, caller: Caller): void;
  /** Asked for every open socket after a reload: false closes it (1008). */
  stillAllowed(caller: Caller): boolean;
  /**
   * Calls the listener, which closes the socket (1008), when the credential of the caller ends. Returns a function that
   * forgets the listener. Absent, or undefined: it ends with a reload only.
   */
  onRevoked?(caller: Caller, listener: () => void): (() => void) | undefined;
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
  /** Returns the service's own error body. `head` has the path, because some paths use another format than the rest. */
  errorBody(error: ErrorForBody, head: RequestHead): unknown;
  /** Extra headers on a refusal. */
  errorHeaders?(error: ErrorForBody, head: RequestHead): Readonly<Record<string, string>>;
  /** Which pages of other origins may call (CORS). Absent: none. */
  readonly crossOrigin?: CrossOrigin;
  /** True while it answers without any credential: then the address must be loopback and Host is checked. */
  isOpen(): boolean;
  /** The setting that asks for a credential, named when a public address is refused. */
  readonly credentialSetting?: string;
  /** Paths that are served while the listener drains, with what lies below them: for what is under way here. */
  readonly servedLast?: readonly string[];
  /** Called once, before the listener drains: the surface must start no more work by itself. */
  leave?(): void;
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

/** The guard of a row that is open to everyone. It returns no caller, so a handler must not read `call.caller`. */
export const anyone: Guard<never> = () => undefined as never;

/** The token of `Authorization: Bearer <token>`; empty, which matches no secret, for anything else. */
export function bearerToken({ headers }: RequestHead): string {
  return /^bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1] ?? '';
}

/** Status, headers and body of a response. Nothing is written before `send`, so a refusal can still replace it all. */
export class Reply {
  readonly raw: ServerResponse;
  statusCode = 200;
  /** Whether the response was written, or is written by the handler from now on. */
  sent = false;
  readonly #headers: OutgoingHttpHeaders;

  /** `headers`: those that every response has. */
  constructor(raw: ServerResponse, headers: Readonly<Record<string, string>> = {}) {
    this.raw = raw;
    this.#headers = { ...headers };
  }

  code(status: number): this {
    this.statusCode = status;
    return this;
  }

  /** Names are in lower case. Cookies add up; any other header replaces an earlier one of its name. */
  header(name: string, value: number | string | readonly string[]): this {
    const before = name === 'set-cookie' ? this.#headers[name] : undefined;
    const all = typeof value === 'object' ? [...value] : value;
    this.#headers[name] = before === undefined ? all : [before, all].flat().map(String);
    return this;
  }

  headers(values: Readonly<Record<string, string>>): this {
    Object.assign(this.#headers, values);
    return this;
  }

  type(value: string): this {
    this.#headers['content-type'] = value;
    return this;
  }

  /** Returns the headers so far. From now on the handler writes the response to `raw` itself. */
  takeOver(): OutgoingHttpHeaders {
    this.sent = true;
    return this.#headers;
  }

  /** Sends text, bytes and streams as they are and any other value as JSON. Throws when a header cannot be sent. */
  send(value?: unknown): this {
    if (this.sent) throw new Error('the response was sent already');
    const headers = this.#headers;
    if (value instanceof Readable) {
      this.#write(headers);
      // Ends or cuts off the response with the stream, and stops the stream when the client leaves.
      if (this.raw.req.method !== 'HEAD') pipeline(value, this.raw, ignore);
      else this.raw.end(() => value.destroy());
      return this;
    }
    let body: string | Uint8Array = '';
    if (typeof value === 'string') {
      headers['content-type'] ??= 'text/plain; charset=utf-8';
      body = value;
    } else if (value instanceof Uint8Array) {
      headers['content-type'] ??= 'application/octet-stream';
      body = value;
    } else if (value !== undefined) {
      headers['content-type'] ??= 'application/json; charset=utf-8';
      body = JSON.stringify(value);
    }
    if (this.statusCode !== 204 && this.statusCode !== 304) headers['content-length'] = Buffer.byteLength(body);
    this.#write(headers);
    this.raw.end(body);
    return this;
  }

  #write(headers: OutgoingHttpHeaders): void {
    this.raw.writeHead(this.statusCode, headers);
    this.sent = true;
  }
}

function ignore(): void {}
