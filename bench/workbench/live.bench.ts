import { once } from 'node:events';
import { WebSocket } from 'ws';
import { createScope } from '../../test/kit/create-scope.ts';
import type { Scope } from '../../test/kit/running-program.ts';
import { type BridgeClient, openBridgeClient } from '../bridge/bridge-client.ts';
import { startScriptedBridge } from '../bridge/scripted-bridge.ts';

/** Bytes of the same updates on both surfaces. */
export interface UpdateBytes {
  readonly live: number;
  readonly first: number;
  readonly updates: number;
}

interface Sent {
  readonly id?: number;
  readonly method?: string;
  readonly params: {
    readonly seq: number;
    readonly type: string;
    readonly update: { readonly seq: number };
    readonly topic: string;
    readonly item: { readonly doing?: string; readonly sessionId: string };
  };
}

const TEXT = 'say '.concat('A piece of text has the length of a word, as most agents send it. '.repeat(20));

/** What the updates of one turn take on each surface: pieces of text, and everything that is not text. */
export async function benchUpdateBytes(): Promise<{ readonly text: UpdateBytes; readonly others: UpdateBytes }> {
  const scope = createScope();
  try {
    const { url } = await startScriptedBridge(scope);
    const seen = { live: new Map<number, number>(), first: new Map<number, { bytes: number; isText: boolean }>() };
    const session = { sessionId: 'bench' };
    const live = await openSocket(scope, url, '/api/bridge/live', ({ method, params }, bytes) => {
      if (method === 'update') seen.live.set(params.update.seq, bytes);
    });
    await send(live, 1, 'follow', session);
    const first = await openSocket(scope, url, '/acp', ({ method, params }, bytes) => {
      if (method === 'session.update') seen.first.set(params.seq, { bytes, isText: params.type === 'delta' });
    });
    await send(first, 1, 'session.start', { ...session, taskPrompt: TEXT });
    await send(first, 2, 'session.message', { ...session, taskPrompt: 'work' });
    // An answer to a later call comes after all updates that were sent before.
    await send(live, 2, 'unwatch', {});
    const both = [...seen.first].flatMap(([seq, { bytes, isText }]) => {
      const liveBytes = seen.live.get(seq);
      return liveBytes === undefined ? [] : [{ first: bytes, live: liveBytes, isText }];
    });
    const sum = (isText: boolean): UpdateBytes => {
      const some = both.filter((one) => one.isText === isText);
      const of = (side: 'live' | 'first') => some.reduce((total, one) => total + one[side], 0);
      return { live: of('live'), first: of('first'), updates: some.length };
    };
    return { text: sum(true), others: sum(false) };
  } finally {
    await scope.end();
  }
}

export interface DeliveryOptions {
  readonly watchers: number;
  readonly sessions: number;
  /** Of all watchers together. */
  readonly perSecond: number;
  readonly seconds: number;
}

export interface Deliveries {
  readonly perSecond: number;
  readonly lost: number;
  /** From the moment at which the agent began a call until the watcher has read the change, in ms. */
  readonly lateMs: readonly number[];
}

const SESSIONS_PER_SOCKET = 10;
/** Until all sessions run and all watchers watch. */
const PREPARATION_MS = 5000;

/** Sessions whose turns run and do something else from time to time, and sockets that watch all of them. */
export async function benchDeliveries(options: DeliveryOptions): Promise<Deliveries> {
  const { watchers, sessions, perSecond, seconds } = options;
  const scope = createScope();
  try {
    const { url } = await startScriptedBridge(scope);
    const lateMs: number[] = [];
    const begin = Date.now() + PREPARATION_MS;
    const end = begin + seconds * 1000;
    const last = new Map<string, string>();
    for (let watcher = 0; watcher < watchers; watcher += 1) {
      const socket = await openSocket(scope, url, '/api/bridge/live', ({ method, params }) => {
        if (method !== 'changed' || params.topic !== 'sessions') return;
        const { sessionId, doing = '' } = params.item;
        const of = `${watcher} ${sessionId}`;
        // A summary is sent again when something else of it changes.
        if (!/^\d+$/.test(doing) || last.get(of) === doing) return;
        last.set(of, doing);
        lateMs.push(Date.now() - Number(doing));
      });
      await send(socket, 1, 'watch', { topics: ['sessions'] });
    }
    const clients: BridgeClient[] = [];
    for (let count = 0; count < sessions; count += SESSIONS_PER_SOCKET) {
      const client = await openBridgeClient(url);
      scope.after(() => client.close());
      clients.push(client);
    }
    // Each change goes to all watchers, and the sessions take turns.
    const stepMs = (watchers * 1000) / perSecond;
    const everyMs = stepMs * sessions;
    const turns = Array.from({ length: sessions }, (_, index) => {
      const moments = `${begin + index * stepMs} ${everyMs} ${end}`;
      const client = clients[Math.floor(index / SESSIONS_PER_SOCKET)] as BridgeClient;
      return client.call('session.start', { sessionId: `bench-${index}`, taskPrompt: `report ${moments}` });
    });
    await Promise.all(turns);
    return { perSecond: lateMs.length / seconds, lost: perSecond * seconds - lateMs.length, lateMs };
  } finally {
    await scope.end();
  }
}

async function openSocket(
  scope: Scope,
  url: string,
  path: string,
  onMessage: (message: Sent, bytes: number) => void,
): Promise<WebSocket> {
  const socket = new WebSocket(`${url.replace(/^http/, 'ws')}${path}`, { perMessageDeflate: false });
  scope.after(() => socket.terminate());
  socket.on('message', (data) => {
    const text = String(data);
    onMessage(JSON.parse(text) as Sent, Buffer.byteLength(text));
  });
  await once(socket, 'open');
  return socket;
}

/** Calls, and waits for the answer. */
async function send(socket: WebSocket, id: number, method: string, params: object): Promise<void> {
  const answered = new Promise<void>((resolve, reject) => {
    socket.on('message', (data) => {
      const { id: of, error } = JSON.parse(String(data)) as { id?: number; error?: { message: string } };
      if (of !== id) return;
      if (error === undefined) resolve();
      else reject(new Error(`${method}: ${error.message}`));
    });
    socket.once('close', () => reject(new Error('the bridge closed the socket')));
  });
  socket.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
  await answered;
}
