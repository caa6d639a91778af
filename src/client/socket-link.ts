import {
  type Deferred,
  defer,
  MAX_MESSAGE_CHARACTERS,
  type MakeCallId,
  parseMessage,
  type RpcMessage,
  type RpcRequest,
} from './bridge-transport.ts';
import type { HttpExchange } from './http-exchange.ts';
import { clientError, connectionLost } from './trestle-error.ts';

/** The members of a WebSocket that the client uses: the browser's, Node's, or that of the `ws` package. */
export interface WebSocketLike {
  /** 1 while it is open. Where it is absent, the events alone tell. */
  readonly readyState?: number;
  send(text: string): void;
  close(code?: number): void;
  addEventListener(type: 'open' | 'close' | 'error', listener: () => void): void;
  addEventListener(type: 'message', listener: (event: { data: unknown }) => void): void;
}

export type OnAnswer = (answer: RpcMessage) => void;

/** One connection, without reconnection. */
export interface SocketLink {
  /**
   * Sends a request and returns its response. Throws when it cannot be sent; rejects when the connection breaks before the
   * response. `onAnswer` gets the response before any later message.
   */
  send(request: RpcRequest, onAnswer?: OnAnswer): Promise<RpcMessage>;
  close(): void;
  /** Resolves when it is over, for whatever reason. */
  readonly closed: Promise<void>;
}

interface SocketLinkOptions {
  readonly socket: WebSocketLike;
  /** After this much silence a ping is sent; after three times as much the connection is given up. */
  readonly silenceMs: number;
  /** Takes what the other side sends by itself. */
  onMessage(message: RpcMessage): void;
}

const OPEN = 1;
const OPEN_MS = 10_000;
const SIGN_OF_LIFE = '{"jsonrpc":"2.0","id":"alive","method":"acp.capabilities","params":{}}';

/** Resolves when the connection is open. */
async function openSocketLink({ socket, silenceMs, onMessage }: SocketLinkOptions): Promise<SocketLink> {
  const waiting = new Map<string, Deferred<RpcMessage> & { readonly onAnswer: OnAnswer | undefined }>();
  const opened = defer<void>();
  const closed = defer<void>();
  let isClosed = false;
  let heardAt = performance.now();

  function end(reason: string): void {
    if (isClosed) return;
    isClosed = true;
    clearTimeout(opening);
    clearInterval(watch);
    const error = connectionLost(reason);
    opened.reject(error);
    for (const { reject } of waiting.values()) reject(error);
    waiting.clear();
    closed.resolve();
    try {
      socket.close();
    } catch {
      // It was never open.
    }
  }

  function receive(data: unknown): void {
    heardAt = performance.now();
    const message = read(data);
    if (message === undefined) {
      end('it sent what is no message');
      return;
    }
    if (message.method !== undefined) {
      onMessage(message);
      return;
    }
    const id = String(message.id);
    const call = waiting.get(id);
    waiting.delete(id);
    call?.onAnswer?.(message);
    call?.resolve(message);
  }

  /** The other side may have closed it already, although the event is still to come. */
  const canSend = () => !isClosed && (socket.readyState ?? OPEN) === OPEN;

  function look(): void {
    const silentMs = performance.now() - heardAt;
    if (silentMs > 3 * silenceMs) end(`nothing came for ${Math.round(silentMs)} ms`);
    // Browsers do not show the pings of the other side; any answer will do.
    else if (silentMs > silenceMs && canSend()) socket.send(SIGN_OF_LIFE);
  }

  const opening = setTimeout(() => end('the connection was not opened in time'), OPEN_MS);
  const watch = setInterval(look, silenceMs);
  socket.addEventListener('open', () => opened.resolve());
  socket.addEventListener('message', ({ data }) => {
    if (!isClosed) receive(data);
  });
  socket.addEventListener('error', () => end('the connection failed'));
  socket.addEventListener('close', () => end('the connection was closed'));
  await opened.promise;
  clearTimeout(opening);
  heardAt = performance.now();

  return {
    closed: closed.promise,
    close: () => end('it was closed here'),
    send(request, onAnswer) {
      if (!canSend()) throw connectionLost('the connection was closed');
      const answer = defer<RpcMessage>();
      waiting.set(request.id, { ...answer, onAnswer });
      socket.send(JSON.stringify(request));
      return answer.promise;
    },
  };
}

function read(data: unknown): RpcMessage | undefined {
  if (typeof data !== 'string' || data.length > MAX_MESSAGE_CHARACTERS) return undefined;
  try {
    return parseMessage(data);
  } catch {
    return undefined;
  }
}

/** Opens a connection; with a query such as `sessionId=s&afterSeq=3` it is a client of that session from the start. */
export type OpenLink = (query: string, onMessage: (message: RpcMessage) => void) => Promise<SocketLink>;

/** Makes a WebSocket that sends these headers with its handshake. */
export type OpenSocket = (url: string, headers: Readonly<Record<string, string>>) => WebSocketLike;

interface OpenLinkOptions {
  readonly socketUrl: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly openSocket: OpenSocket;
  readonly exchange: Pick<HttpExchange, 'call'>;
  readonly makeCallId: MakeCallId;
  readonly silenceMs: number;
}

export function createOpenLink(options: OpenLinkOptions): OpenLink {
  const { socketUrl, headers, openSocket, exchange, makeCallId, silenceMs } = options;
  return async (query, onMessage) => {
    const socket = openSocket(query === '' ? socketUrl : `${socketUrl}?${query}`, headers);
    try {
      return await openSocketLink({ socket, silenceMs, onMessage });
    } catch (error) {
      // Calls over HTTP with the same credential, because a WebSocket does not report why it was refused.
      const request = { jsonrpc: '2.0', id: makeCallId(), method: 'acp.capabilities', params: {} } as const;
      await exchange.call(request, {}, AbortSignal.timeout(REASON_MS));
      throw error;
    }
  };
}

const REASON_MS = 5000;

/** Opens the global WebSocket, which can send headers only outside browsers. */
export function openGlobalSocket(url: string, headers: Readonly<Record<string, string>>): WebSocketLike {
  if (!('WebSocket' in globalThis)) {
    const way =
      "use Node 22 or newer, transport 'sse' or 'http', or pass openSocket with a WebSocket of the ws package";
    throw clientError('UNSUPPORTED', `This runtime has no WebSocket: ${way}.`);
  }
  if (Object.keys(headers).length === 0) return new WebSocket(url);
  if ('document' in globalThis || 'WorkerGlobalScope' in globalThis) {
    const way = "use transport 'sse' or 'http', or give openSocket";
    throw clientError('UNSUPPORTED', `A browser cannot send a token or a team with a WebSocket: ${way}.`);
  }
  // Outside browsers the second argument may hold more than protocols, which their types do not know.
  return Reflect.construct(WebSocket, [url, { headers }]) as WebSocketLike;
}
