import { AppError, type ErrorCode } from '../errors/app-error.ts';
import type { DescribedError } from '../errors/error-table.ts';

/**
 * How messages look on the wire. All parts come as JSON text, so that a result is serialised once even where it stands
 * twice. `seq` is the number of the message on its connection; shapes without one ignore it.
 */
export interface Envelope {
  /** Whether requests must say `"jsonrpc": "2.0"`. */
  readonly versioned: boolean;
  success(id: string, result: string, seq: number): string;
  failure(id: string, error: string, seq: number): string;
  notification(method: string, params: string | undefined, seq: number): string;
  request(id: string, method: string, params: string | undefined): string;
}

/** JSON-RPC 2.0 as it is specified. */
export const plainEnvelope: Envelope = {
  versioned: true,
  success: (id, result) => `{"jsonrpc":"2.0","id":${id},"result":${result}}`,
  failure: (id, error) => `{"jsonrpc":"2.0","id":${id},"error":${error}}`,
  notification: (method, params) => `{"jsonrpc":"2.0","method":${method}${paramsMember(params)}}`,
  request: (id, method, params) => `{"jsonrpc":"2.0","id":${id},"method":${method}${paramsMember(params)}}`,
};

/** JSON-RPC with the members that older clients read beside its own: `ok`, `type`, `event`, `payload`, `seq`. */
export const hybridEnvelope: Envelope = {
  versioned: true,
  success: (id, result, seq) =>
    `{"jsonrpc":"2.0","id":${id},"result":${result},"ok":true,"type":"res","payload":${result},"seq":${seq}}`,
  failure: (id, error, seq) =>
    `{"jsonrpc":"2.0","id":${id},"error":${error},"ok":false,"type":"res","payload":null,"seq":${seq}}`,
  notification: (method, params = '{}', seq) =>
    `{"jsonrpc":"2.0","method":${method},"params":${params},"type":"event","event":${method},"payload":${params},"seq":${seq}}`,
  request: plainEnvelope.request,
};

/** JSON-RPC without its version member. */
export const bareEnvelope: Envelope = {
  versioned: false,
  success: (id, result) => `{"id":${id},"result":${result}}`,
  failure: (id, error) => `{"id":${id},"error":${error}}`,
  notification: (method, params) => `{"method":${method}${paramsMember(params)}}`,
  request: (id, method, params) => `{"id":${id},"method":${method}${paramsMember(params)}}`,
};

function paramsMember(params: string | undefined): string {
  return params === undefined ? '' : `,"params":${params}`;
}

/** An id as JSON-RPC allows it. Numbers are safe integers: others would not come back as they were sent. */
export type RequestId = string | number | null;

export type IncomingMessage =
  /** A call; without an id it is a notification, which nobody waits for. */
  | { readonly kind: 'call'; readonly id: RequestId | undefined; readonly method: string; readonly params: unknown }
  | { readonly kind: 'response'; readonly id: unknown; readonly result: unknown; readonly error: unknown }
  | { readonly kind: 'invalid'; readonly id: RequestId; readonly reason: string };

/**
 * Sorts one parsed message (JSON-RPC 2.0, sections 4 and 5). Unknown members are ignored. `params` that are neither an
 * object nor an array make the request invalid (-32600); whether an array will do is for the method to say (-32602).
 * An invalid request keeps its id when that can be read, and has null otherwise.
 */
export function readMessage(value: unknown, versioned: boolean): IncomingMessage {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return { kind: 'invalid', id: null, reason: 'a request is an object' };
  }
  const { jsonrpc, id, method, params, result, error } = value as Readonly<Record<string, unknown>>;
  if (method === undefined && (result !== undefined || error !== undefined)) {
    return { kind: 'response', id, result, error };
  }
  if (id !== undefined && !isRequestId(id)) {
    return { kind: 'invalid', id: null, reason: 'the id must be a string, a whole number up to 2^53 or null' };
  }
  if (versioned && jsonrpc !== '2.0') {
    return { kind: 'invalid', id: id ?? null, reason: 'jsonrpc must be "2.0"' };
  }
  if (typeof method !== 'string') {
    return { kind: 'invalid', id: id ?? null, reason: 'the method must be a string' };
  }
  if (params !== undefined && (typeof params !== 'object' || params === null)) {
    return { kind: 'invalid', id: id ?? null, reason: 'params must be an object' };
  }
  return { kind: 'call', id, method, params };
}

function isRequestId(id: unknown): id is RequestId {
  return typeof id === 'string' || id === null || Number.isSafeInteger(id);
}

/** A value that is already JSON text, such as a cached answer: it is put into messages as it stands. */
export class RawJson {
  readonly text: string;
  /** Of a large text: the parts that it consists of. */
  readonly parts: readonly string[] | undefined;

  constructor(text: string, parts?: readonly string[]) {
    this.text = text;
    this.parts = parts;
  }
}

export function rawJson(text: string): RawJson {
  return new RawJson(text);
}

/** JSON text in parts. JavaScript copies strings that were added when the sum is first read, so an unused `text` costs nothing. */
export function rawJsonOf(parts: readonly string[]): RawJson {
  let text = '';
  for (const part of parts) text += part;
  return new RawJson(text, parts);
}

/** The bytes of a text in parts. Equal parts are encoded once. */
export function encodeParts(parts: readonly string[]): readonly Buffer[] {
  const encoded = new Map<string, Buffer>();
  return parts.map((part) => {
    const bytes = encoded.get(part) ?? Buffer.from(part);
    encoded.set(part, bytes);
    return bytes;
  });
}

/** Serialises a value. One that JSON cannot represent, such as `undefined`, becomes `{}`, so that there is always a result. */
export function toJsonText(value: unknown): string {
  return value instanceof RawJson ? value.text : (JSON.stringify(value) ?? '{}');
}

/**
 * The `error` member of a response. Its `data` has the stable code, whatever the error tells about itself, and for
 * failures of our own the id under which they were logged.
 */
export function errorText(error: DescribedError, requestId?: string): string {
  const data = { code: error.code, ...error.details };
  data.code = error.code;
  return JSON.stringify({
    code: error.rpc,
    message: error.message,
    data: requestId === undefined ? data : { ...data, requestId },
  });
}

/** The `error` member of a response of another server. */
export interface ForeignError {
  readonly code: number;
  readonly message: string;
  readonly data: unknown;
}

/** An error of another server that our caller gets unchanged, without our error tables. */
export class RelayedError extends AppError {
  /** The `error` member of the answer, as JSON text. */
  readonly text: string;
  readonly described: DescribedError;

  constructor(error: ForeignError, status: number) {
    const details = typeof error.data === 'object' && error.data !== null ? { ...error.data } : {};
    const word = 'code' in details && typeof details.code === 'string' ? details.code : 'REMOTE_ERROR';
    // A code of the other server: our tables are not asked about this error.
    super(word as ErrorCode, details);
    this.name = 'RelayedError';
    this.text = JSON.stringify(error);
    this.described = { code: word, status, rpc: error.code, message: error.message, details };
  }
}

/**
 * The other side answered a request of ours with an error. Its words are for our code to read: they are no `details`,
 * so nothing of them reaches our own caller by itself.
 */
export class RemoteError extends AppError {
  /** 0 where the other side gave no number. */
  readonly rpcCode: number;
  readonly remoteMessage: string;
  readonly data: unknown;

  constructor(rpcCode: number, remoteMessage: string, data: unknown) {
    super('REMOTE_ERROR', { rpcCode });
    this.name = 'RemoteError';
    this.rpcCode = rpcCode;
    this.remoteMessage = remoteMessage;
    this.data = data;
  }
}

/** Reads the `error` member of a response, however badly it is made. */
export function toRemoteError(error: unknown): RemoteError {
  const { code, message, data } = Object(error) as Readonly<Record<string, unknown>>;
  return new RemoteError(typeof code === 'number' ? code : 0, typeof message === 'string' ? message : '', data);
}
