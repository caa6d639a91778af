import { WebSocket } from 'ws';
import { type Envelope, postRpc } from '../../kit/bridge/bridge-client.ts';
import { asMain } from '../../kit/bridge/start-nodes.ts';
import type { TurnOperation } from './check-operations.ts';

export const TRANSPORTS = ['http', 'sse', 'websocket'] as const;
export type Transport = (typeof TRANSPORTS)[number];

export interface WantedTurn {
  readonly url: string;
  readonly transport: Transport;
  readonly method: TurnOperation['method'];
  readonly session: string;
  readonly prompt: string;
}

/** Asks for a turn, and tells what came of it as a client sees it. */
export async function askForTurn({ url, transport, method, session, prompt }: WantedTurn): Promise<TurnOperation> {
  const began = performance.now();
  const params = { sessionId: session, taskPrompt: prompt };
  const answer = await ask(url, transport, method, params).catch(() => undefined);
  return { prompt, session, method, transport, outcome: outcomeOf(answer), ms: performance.now() - began };
}

async function ask(url: string, transport: Transport, method: string, params: object): Promise<Envelope | undefined> {
  if (transport === 'websocket') return overSocket(url, method, params);
  const accept: Readonly<Record<string, string>> = transport === 'sse' ? { accept: 'text/event-stream' } : {};
  const { text, json } = await postRpc(url, { jsonrpc: '2.0', id: 1, method, params }, { ...asMain, ...accept });
  return json ?? lastEnvelope(text);
}

/** The answer within a stream of events; undefined when it ended before. */
function lastEnvelope(events: string): Envelope | undefined {
  const data = events.split('\n').flatMap((line) => (line.startsWith('data: {') ? [line.slice('data: '.length)] : []));
  const last = JSON.parse(data.at(-1) ?? '{}') as Envelope;
  return last.type === 'res' ? last : undefined;
}

function overSocket(url: string, method: string, params: object): Promise<Envelope | undefined> {
  const socket = new WebSocket(`${url.replace(/^http/, 'ws')}/acp`, { headers: asMain });
  return new Promise<Envelope | undefined>((resolve) => {
    socket.on('open', () => socket.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })));
    socket.on('message', (data) => {
      const message = JSON.parse(String(data)) as Envelope;
      if (message.type === 'res') resolve(message);
    });
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(undefined));
  }).finally(() => socket.terminate());
}

function outcomeOf(answer: Envelope | undefined): TurnOperation['outcome'] {
  if (answer === undefined) return 'unknown';
  if (answer.error === undefined) return 'ok';
  const { code, data } = answer.error;
  if (code !== -32060) return code === -32603 ? 'unknown' : 'refused';
  return data.outcome === 'not_started' ? 'not_started' : 'unknown';
}
