import { asMain } from '../../bridge/forwarding/start-nodes.ts';
import { type Envelope, postRpc } from '../../contract/bridge/bridge-client.ts';
import { openClient } from '../../contract/bridge/session-client.ts';
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

async function overSocket(url: string, method: string, params: object): Promise<Envelope | undefined> {
  const closing: (() => unknown)[] = [];
  try {
    const client = await openClient({ after: (run) => closing.push(run) }, url, { headers: asMain });
    return await Promise.race([client.call(method, params), client.closed().then(() => undefined)]);
  } finally {
    for (const close of closing) close();
  }
}

function outcomeOf(answer: Envelope | undefined): TurnOperation['outcome'] {
  if (answer === undefined) return 'unknown';
  if (answer.error === undefined) return 'ok';
  const { code, data } = answer.error;
  if (code !== -32060) return code === -32603 ? 'unknown' : 'refused';
  return data.outcome === 'not_started' ? 'not_started' : 'unknown';
}
