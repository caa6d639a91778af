import { once } from 'node:events';
import { type ClientOptions, WebSocket } from 'ws';
import { inTime } from '../in-time.ts';
import type { Scope } from '../running-program.ts';

export interface Envelope {
  readonly jsonrpc: string;
  readonly id: unknown;
  readonly ok: boolean;
  readonly type: string;
  readonly seq: number;
  readonly result?: Record<string, unknown>;
  readonly payload: unknown;
  readonly error?: { code: number; message: string; data: Record<string, unknown> };
}

export interface HttpResult {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly json: Envelope;
}

/** Posts a body (a string as it stands, anything else as JSON) to `/acp/rpc`. */
export async function postRpc(url: string, body: unknown, headers: Record<string, string> = {}): Promise<HttpResult> {
  const response = await fetch(`${url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const text = await response.text();
  const json = (text.startsWith('{') || text.startsWith('[') ? JSON.parse(text) : undefined) as Envelope;
  return { status: response.status, headers: response.headers, text, json };
}

export interface BridgeSocket {
  readonly socket: WebSocket;
  send(message: unknown): void;
  /** The next message that comes. */
  next(): Promise<Envelope>;
  call(message: unknown): Promise<Envelope>;
  /** The close code. */
  closed(): Promise<number>;
}

export async function openSocket(scope: Scope, url: string, options: ClientOptions = {}): Promise<BridgeSocket> {
  const socket = new WebSocket(`${url.replace(/^http/, 'ws')}/acp`, options);
  scope.after(() => socket.terminate());
  const waiting: ((envelope: Envelope) => void)[] = [];
  const arrived: Envelope[] = [];
  const end = once(socket, 'close').then(([code]) => code as number);
  socket.on('message', (data) => {
    const envelope = JSON.parse(String(data)) as Envelope;
    const take = waiting.shift();
    if (take === undefined) arrived.push(envelope);
    else take(envelope);
  });
  await once(socket, 'open');
  socket.on('error', () => {});
  const next = (): Promise<Envelope> => {
    const envelope = arrived.shift();
    if (envelope !== undefined) return Promise.resolve(envelope);
    return inTime('the next message', new Promise((resolve) => waiting.push(resolve)));
  };
  const send = (message: unknown): void => socket.send(typeof message === 'string' ? message : JSON.stringify(message));
  return {
    socket,
    send,
    next,
    call(message) {
      send(message);
      return next();
    },
    closed: () => end,
  };
}

/** The answer with which an upgrade is refused. */
export async function refusedUpgrade(
  url: string,
  options: ClientOptions = {},
): Promise<{ status: number; body: Envelope }> {
  const socket = new WebSocket(`${url.replace(/^http/, 'ws')}/acp`, options);
  socket.on('error', () => {});
  const [, response] = await once(socket, 'unexpected-response');
  let text = '';
  for await (const chunk of response) text += String(chunk);
  socket.terminate();
  return { status: response.statusCode, body: JSON.parse(text) as Envelope };
}
