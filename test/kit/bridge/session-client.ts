import { once } from 'node:events';
import { WebSocket } from 'ws';
import { inTime } from '../in-time.ts';
import type { Scope } from '../running-program.ts';
import { type Envelope, postRpc } from './bridge-client.ts';

/** What `session.update` carries. */
export interface Update {
  readonly sessionId: string;
  readonly threadId: string;
  readonly turnId: string;
  readonly seq: number;
  readonly type: string;
  readonly event: string;
  readonly message: string;
  readonly text?: string;
  readonly structuredEvent?: Record<string, unknown>;
  readonly [member: string]: unknown;
}

export type Headers = Readonly<Record<string, string>>;

export const bearer = (token: string): Headers => ({ authorization: `Bearer ${token}` });

/** One call over HTTP, answered as one document. */
export async function call(url: string, method: string, params: unknown, headers: Headers = {}): Promise<Envelope> {
  return (await postRpc(url, { jsonrpc: '2.0', id: 1, method, params }, headers)).json;
}

export interface StreamedAnswer {
  /** `id` and parsed data of each event, the final envelope included. */
  readonly events: readonly { readonly id: string; readonly data: Envelope & { readonly params?: Update } }[];
  readonly updates: readonly Update[];
  readonly final: Envelope;
}

/** One call over HTTP, answered as a stream. With `until`, the connection is broken off when it says so. */
export async function stream(
  url: string,
  message: { readonly method: string; readonly params: unknown; readonly id?: unknown },
  headers: Headers = {},
  until: (update: Update) => boolean = () => false,
): Promise<StreamedAnswer> {
  const response = await fetch(`${url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream', ...headers },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, ...message }),
  });
  const events: { id: string; data: Envelope & { params?: Update } }[] = [];
  let text = '';
  const decoder = new TextDecoder();
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    for (let end = text.indexOf('\n\n'); end !== -1; end = text.indexOf('\n\n')) {
      const event = readEvent(text.slice(0, end));
      text = text.slice(end + 2);
      if (event === undefined) continue;
      events.push(event);
      // To leave the loop is to break off the connection.
      if (event.data.params !== undefined && until(event.data.params)) return summarise(events);
    }
  }
  return summarise(events);
}

function readEvent(text: string): { id: string; data: Envelope & { params?: Update } } | undefined {
  const fields = new Map(
    text.split('\n').map((line) => [line.slice(0, line.indexOf(':')), line.replace(/^\w+: /, '')]),
  );
  const data = fields.get('data');
  if (data === undefined || data === '[DONE]') return undefined;
  return { id: fields.get('id') ?? '', data: JSON.parse(data) };
}

function summarise(events: StreamedAnswer['events']): StreamedAnswer {
  const updates = events.flatMap(({ data }) => data.params ?? []);
  return { events, updates, final: events.at(-1)?.data as Envelope };
}

export interface SessionSocket {
  readonly socket: WebSocket;
  /** Everything that came, in order. */
  readonly messages: (Envelope & { readonly params?: Update })[];
  readonly updates: Update[];
  call(method: string, params: unknown): Promise<Envelope>;
  /** Resolves with the first update, past or to come, that fits. */
  seen(fits: (update: Update) => boolean): Promise<Update>;
  closed(): Promise<number>;
}

export interface SocketOptions {
  readonly headers?: Headers;
  /** `sessionId=s&afterSeq=3`. */
  readonly query?: string;
}

export async function openClient(scope: Scope, url: string, options: SocketOptions = {}): Promise<SessionSocket> {
  const { headers = {}, query = '' } = options;
  const socket = new WebSocket(`${url.replace(/^http/, 'ws')}/acp${query === '' ? '' : `?${query}`}`, { headers });
  scope.after(() => socket.terminate());
  socket.on('error', () => {});
  const messages: (Envelope & { params?: Update })[] = [];
  const updates: Update[] = [];
  const calls = new Map<unknown, (envelope: Envelope) => void>();
  let watchers: { fits: (update: Update) => boolean; resolve: (update: Update) => void }[] = [];
  let lastId = 0;
  socket.on('message', (data) => {
    const message = JSON.parse(String(data)) as Envelope & { params?: Update };
    messages.push(message);
    const { params } = message;
    if (params === undefined) {
      calls.get(message.id)?.(message);
      return;
    }
    updates.push(params);
    for (const { resolve } of watchers.filter(({ fits }) => fits(params))) resolve(params);
    watchers = watchers.filter(({ fits }) => !fits(params));
  });
  const end = once(socket, 'close').then(([code]) => code as number);
  await once(socket, 'open');
  return {
    socket,
    messages,
    updates,
    call(method, params) {
      lastId += 1;
      const id = lastId;
      socket.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
      return new Promise((resolve) => calls.set(id, resolve));
    },
    seen(fits) {
      const known = updates.find(fits);
      if (known !== undefined) return Promise.resolve(known);
      return inTime(`an update: ${fits}`, new Promise((resolve) => watchers.push({ fits, resolve })));
    },
    closed: () => end,
  };
}
