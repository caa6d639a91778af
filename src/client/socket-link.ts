import { MAX_MESSAGE_CHARACTERS, parseMessage, type RpcMessage, type RpcRequest, updateOf } from './rpc-message.ts';
import type { SessionUpdate } from './session-update.ts';
import { connectionLost } from './trestle-error.ts';

/** As much of a WebSocket as the client uses: the browser's, Node's, or that of the `ws` package. */
export interface WebSocketLike {
  send(text: string): void;
  close(code?: number): void;
  addEventListener(type: 'open' | 'close' | 'error', listener: () => void): void;
  addEventListener(type: 'message', listener: (event: { data: unknown }) => void): void;
}

/** One connection; when it is lost, it is lost. */
export interface SocketLink {
  /** The answer. Throws when it cannot be sent any more; rejects when the connection breaks before the answer. */
  send(request: RpcRequest): Promise<RpcMessage>;
  close(): void;
  /** Resolves when it is over, for whatever reason. */
  readonly closed: Promise<void>;
}

export interface SocketLinkOptions {
  readonly socket: WebSocketLike;
  /** After this much silence the other side is asked for a sign of life; after three times as much it is given up. */
  readonly silenceMs: number;
  onUpdate(update: SessionUpdate): void;
}

const OPEN_MS = 10_000;
const SIGN_OF_LIFE = '{"jsonrpc":"2.0","id":"alive","method":"acp.capabilities","params":{}}';

/** Resolves when the connection is open. */
export async function openSocketLink({ socket, silenceMs, onUpdate }: SocketLinkOptions): Promise<SocketLink> {
  const waiting = new Map<string, PromiseWithResolvers<RpcMessage>>();
  const opened = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<void>();
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
    const update = updateOf(message);
    if (update !== undefined) {
      onUpdate(update);
      return;
    }
    const id = String(message.id);
    waiting.get(id)?.resolve(message);
    waiting.delete(id);
  }

  function look(): void {
    const silentMs = performance.now() - heardAt;
    if (silentMs > 3 * silenceMs) end(`nothing came for ${Math.round(silentMs)} ms`);
    // Browsers do not show the pings of the other side; any answer will do.
    else if (silentMs > silenceMs) socket.send(SIGN_OF_LIFE);
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
    send(request) {
      if (isClosed) throw connectionLost('the connection was closed');
      const answer = Promise.withResolvers<RpcMessage>();
      waiting.set(request.id, answer);
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
