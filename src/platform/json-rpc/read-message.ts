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
