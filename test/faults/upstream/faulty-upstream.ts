import { createServer, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { deltaEvent } from '../../kit/chat-chunk.ts';
import { listenOnLoopback } from '../../kit/loopback-server.ts';
import type { Fault, Operation } from './check-operations.ts';

/** What a call tells the upstream to do; it travels as the text of the user. */
export interface Script {
  readonly id: string;
  readonly words: number;
  /** `endless`: words until the other side has enough; after none of them, silence. */
  readonly ending: Fault | 'endless';
}

export interface FaultyUpstream {
  readonly url: string;
  openSockets(): number;
  /** Resolves when the call has come. */
  begun(id: string): Promise<void>;
  close(): Promise<void>;
}

/** Short, so that connections that nobody uses any more are soon gone. */
const KEEP_ALIVE_MS = 1500;
const WORD_MS = 10;
const MAX_MS = 60_000;

/** A model API that dies in the middle of its streams, as each call tells it to. */
export async function startFaultyUpstream(note: (operation: Operation) => void): Promise<FaultyUpstream> {
  const sockets = new Set<Socket>();
  const waiting = new Map<string, () => void>();
  const server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS }, async (request, response) => {
    response.on('error', () => undefined);
    let text = '';
    try {
      for await (const chunk of request) text += String(chunk);
    } catch {
      return;
    }
    if (request.method === 'GET') {
      response.end('{"data":[]}');
      return;
    }
    const { messages } = JSON.parse(text) as { messages: { content: string }[] };
    const script = JSON.parse(String(messages.at(-1)?.content)) as Script;
    note({ kind: 'begun', id: script.id });
    waiting.get(script.id)?.();
    response.on('close', () => note({ kind: 'closed', id: script.id, at: performance.now() }));
    await play(response, script, note);
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket)).on('error', () => undefined);
  });
  const { url, close } = await listenOnLoopback(server);
  return {
    url: `${url}/v1`,
    openSockets: () => sockets.size,
    begun: (id) => new Promise((resolve) => waiting.set(id, resolve)),
    close,
  };
}

async function play(
  response: ServerResponse,
  { id, words, ending }: Script,
  note: (operation: Operation) => void,
): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.flushHeaders();
  const end = performance.now() + MAX_MS;
  const most = ending === 'endless' && words > 0 ? Number.POSITIVE_INFINITY : words;
  for (let word = 0; word < most && !response.destroyed && performance.now() < end; word += 1) {
    await new Promise((resolve) => response.write(deltaEvent({ content: `w${word} ` }), resolve));
    if (ending === 'endless') await sleep(WORD_MS);
  }
  if (ending === 'endless') return;
  // What was sent shall have arrived: a reset takes back what is still on its way.
  await sleep(WORD_MS);
  note({ kind: 'fault', id, fault: ending, words, at: performance.now() });
  faults[ending](response);
}

const half = (response: ServerResponse): boolean => response.write(deltaEvent({ content: 'never ' }).slice(0, 40));

const faults: Readonly<Record<Fault, (response: ServerResponse) => unknown>> = {
  whole: (response) => response.end(`${deltaEvent({}, 'stop')}data: [DONE]\n\n`),
  closed: (response) => response.socket?.destroy(),
  reset: (response) => response.socket?.resetAndDestroy(),
  silent: () => undefined,
  'half-frame'(response) {
    half(response);
    response.socket?.destroySoon();
  },
  'half-frame-then-silent': half,
  'error-frame': (response) => response.end('data: {"error":{"message":"overloaded","type":"server_error"}}\n\n'),
  ended: (response) => response.end(),
};
