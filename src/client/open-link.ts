import type { HttpExchange } from './http-exchange.ts';
import type { MakeCallId } from './make-call-id.ts';
import type { SessionUpdate } from './session-update.ts';
import { openSocketLink, type SocketLink, type WebSocketLike } from './socket-link.ts';
import { clientError } from './trestle-error.ts';

/** Opens a connection; with a query such as `sessionId=s&afterSeq=3` it is a client of that session from the start. */
export type OpenLink = (query: string, onUpdate: (update: SessionUpdate) => void) => Promise<SocketLink>;

/** Makes a WebSocket that sends these headers with its handshake. */
export type OpenSocket = (url: string, headers: Readonly<Record<string, string>>) => WebSocketLike;

export interface OpenLinkOptions {
  /** Of `/acp`. */
  readonly socketUrl: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly openSocket: OpenSocket;
  readonly exchange: Pick<HttpExchange, 'call'>;
  readonly makeCallId: MakeCallId;
  readonly silenceMs: number;
}

export function createOpenLink(options: OpenLinkOptions): OpenLink {
  const { socketUrl, headers, openSocket, exchange, makeCallId, silenceMs } = options;
  return async (query, onUpdate) => {
    const socket = openSocket(query === '' ? socketUrl : `${socketUrl}?${query}`, headers);
    try {
      return await openSocketLink({ socket, silenceMs, onUpdate });
    } catch (error) {
      // A WebSocket does not tell why it was refused: the same credential over HTTP does.
      const request = { jsonrpc: '2.0', id: makeCallId(), method: 'acp.capabilities', params: {} } as const;
      await exchange.call(request, {}, AbortSignal.timeout(REASON_MS));
      throw error;
    }
  };
}

const REASON_MS = 5000;

/** The WebSocket that is there. Only outside browsers it can send headers. */
export function openGlobalSocket(url: string, headers: Readonly<Record<string, string>>): WebSocketLike {
  if (Object.keys(headers).length === 0) return new WebSocket(url);
  if ('document' in globalThis || 'WorkerGlobalScope' in globalThis) {
    const way = "use transport 'sse' or 'http', or give openSocket";
    throw clientError('UNSUPPORTED', `A browser cannot send a token with a WebSocket: ${way}.`);
  }
  // Outside browsers the second argument may hold more than protocols, which their types do not know.
  return Reflect.construct(WebSocket, [url, { headers }]) as WebSocketLike;
}
