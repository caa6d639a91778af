import { once } from 'node:events';
import { WebSocket } from 'ws';

export interface SessionUpdate {
  readonly sessionId: string;
  readonly seq: number;
  readonly type: string;
  readonly delta?: string;
}

export interface BridgeClient {
  call(method: string, params: object): Promise<Readonly<Record<string, unknown>>>;
  /** Called with each update that comes. One listener at a time. */
  onUpdate(listener: (update: SessionUpdate) => void): void;
  close(): void;
}

interface Message {
  readonly id?: number;
  readonly params: SessionUpdate;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly message: string };
}

/** An app on a socket of the bridge, with nothing in it that could hold it up. */
export async function openBridgeClient(url: string, path = '/acp'): Promise<BridgeClient> {
  const socket = new WebSocket(`${url.replace(/^http/, 'ws')}${path}`, { perMessageDeflate: false });
  const waiting = new Map<number, PromiseWithResolvers<Message>>();
  let listener: (update: SessionUpdate) => void = () => undefined;
  let lastId = 0;
  socket.on('message', (data) => {
    const message = JSON.parse(String(data)) as Message;
    if (message.id === undefined) listener(message.params);
    else waiting.get(message.id)?.resolve(message);
  });
  await once(socket, 'open');
  socket.on('close', () => {
    for (const { reject } of waiting.values()) reject(new Error('the bridge closed the socket'));
  });
  return {
    async call(method, params) {
      lastId += 1;
      const id = lastId;
      const answer = Promise.withResolvers<Message>();
      waiting.set(id, answer);
      socket.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
      const { result, error } = await answer.promise;
      waiting.delete(id);
      if (result === undefined) throw new Error(error?.message ?? 'no result');
      return result;
    },
    onUpdate(next) {
      listener = next;
    },
    close: () => socket.terminate(),
  };
}
