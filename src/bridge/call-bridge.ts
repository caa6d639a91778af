import { parseJson } from '../platform/json/parse-json.ts';
import type { ForeignError, RequestId } from '../platform/json-rpc/envelope.ts';
import { asObject, textOf } from './agents/agent-text.ts';
import { type EventRequest, type EventResponse, postForEvents } from './agents/post-for-events.ts';

type JsonObject = Readonly<Record<string, unknown>>;

/** A JSON-RPC call to another bridge. */
export interface BridgeCall extends Omit<EventRequest, 'body'> {
  /** Undefined for a notification. */
  readonly id: RequestId | undefined;
  readonly method: string;
  readonly params: unknown;
  /** What is sent in the place of the call as JSON text, and the headers that belong to it. */
  frame?(text: string): Pick<EventRequest, 'body' | 'headers'>;
  /** The other bridge has accepted the call, and its response may take long. */
  accepted?(): void;
  /** A notification that comes before the response. Resolves when the next one can be taken; undefined: now. */
  notified(method: string, params: unknown, eventId: string | undefined): Promise<void> | undefined;
}

export type BridgeResponse =
  /** The response came without a stream: a refusal, mostly. */
  | Extract<EventResponse, { readonly kind: 'document' }>
  /** The envelope at the end of the stream. */
  | { readonly kind: 'envelope'; readonly message: JsonObject }
  /** The stream ended without an envelope. `isCut`: the connection broke, so the call may go on over there. */
  | { readonly kind: 'broken'; readonly reason: string; readonly isCut: boolean };

/** Sends one call and reads its stream to the end. Throws what the network throws, and what `notified` throws. */
export async function callBridge({ id, method, params, frame, ...call }: BridgeCall): Promise<BridgeResponse> {
  const text = JSON.stringify({ jsonrpc: '2.0', id, method, params });
  const { body, headers } = frame?.(text) ?? { body: text, headers: {} };
  const response = await postForEvents({ ...call, headers: { ...call.headers, ...headers }, body });
  if (response.kind === 'document') return response;
  call.accepted?.();
  for await (const event of response.events) {
    if (event.data === '[DONE]') break;
    const message = readMessage(event.data);
    if (message === undefined) return { kind: 'broken', reason: 'it sent what is not JSON', isCut: false };
    if (typeof message.method !== 'string') return { kind: 'envelope', message };
    await call.notified(message.method, message.params, event.id);
  }
  return { kind: 'broken', reason: 'the connection was cut', isCut: true };
}

/** Undefined for anything that is not a JSON object. */
export function readMessage(text: string): JsonObject | undefined {
  try {
    const value = parseJson(text);
    return typeof value === 'object' && value !== null ? (value as JsonObject) : undefined;
  } catch {
    return undefined;
  }
}

/** The error of an envelope; undefined when it has none. */
export function errorOf(message: JsonObject): ForeignError | undefined {
  if (message.error === undefined || message.error === null) return undefined;
  const { code, message: said, data } = asObject(message.error);
  return { code: Number.isSafeInteger(code) ? Number(code) : -32603, message: textOf(said), data };
}

/** Our own code of an error, such as `SESSION_NOT_FOUND`; empty where the other side gave none. */
export function wordOf(error: ForeignError | undefined): string {
  return textOf(asObject(error?.data).code);
}
