import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Scope } from './running-program.ts';

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  readonly json: Record<string, unknown>;
  /** Resolves when the other side has closed the connection, or the answer is complete. */
  readonly closed: Promise<void>;
}

/** What an upstream does with one request. */
export type Behaviour = (response: ServerResponse, request: SeenRequest) => unknown;

export interface ScriptedUpstream {
  /** Base URL of OpenAI's dialect. */
  readonly url: string;
  readonly origin: string;
  readonly requests: SeenRequest[];
  /** One behaviour for each request to come; the last one stays. */
  script(...behaviours: Behaviour[]): void;
  close(): Promise<void>;
}

/** A model API that does as it is told: a real HTTP server on a free port. */
export async function startScriptedUpstream(scope: Scope, ...behaviours: Behaviour[]): Promise<ScriptedUpstream> {
  let line = behaviours;
  const requests: SeenRequest[] = [];
  const sockets = new Set<Socket>();
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString('utf8');
    const closed = once(response, 'close').then(() => undefined);
    const seen = {
      method: request.method ?? '',
      path: request.url ?? '',
      headers: request.headers,
      text,
      json: parse(text),
      closed,
    };
    requests.push(seen);
    const behaviour = line.length > 1 ? line.shift() : line[0];
    response.on('error', () => undefined);
    await behaviour?.(response, seen);
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket)).on('error', () => undefined);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const close = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    if (!server.listening) return;
    server.close();
    await once(server, 'close');
  };
  scope.after(close);
  return {
    url: `${origin}/v1`,
    origin,
    requests,
    script(...next) {
      line = next;
    },
    close,
  };
}

export const USAGE = { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 };

export function completionOf(content: string, extra: object = {}): object {
  return {
    id: 'chatcmpl-upstream',
    object: 'chat.completion',
    created: 1_700_000_000,
    model: 'small-2026',
    choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
    usage: USAGE,
    ...extra,
  };
}

export function chunkOf(delta: object, finishReason: string | null = null, extra: object = {}): object {
  const choices = [{ index: 0, delta, finish_reason: finishReason }];
  const head = {
    id: 'chatcmpl-upstream',
    object: 'chat.completion.chunk',
    created: 1_700_000_000,
    model: 'small-2026',
  };
  return { ...head, choices, ...extra };
}

/** The events of a usual stream, as text: role, words, finish, usage where it is asked for, end. */
export function eventsOf(
  words: readonly string[],
  { usage = USAGE, done = true }: { usage?: typeof USAGE | false; done?: boolean } = {},
): string[] {
  const chunks = [
    chunkOf({ role: 'assistant', content: '' }),
    ...words.map((word) => chunkOf({ content: word })),
    chunkOf({}, 'stop'),
    ...(usage ? [{ ...chunkOf({}), choices: [], usage }] : []),
  ];
  const events = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`);
  return done ? [...events, 'data: [DONE]\n\n'] : events;
}

/** Answers with JSON, or with a status and a body. */
export function answers(body: unknown, status = 200, headers: Record<string, string> = {}): Behaviour {
  return (response) => {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(text);
  };
}

export function refuses(status: number, message = 'no', headers: Record<string, string> = {}): Behaviour {
  return answers({ error: { message, type: 'some_error', param: null, code: null } }, status, headers);
}

const STREAM = { 'content-type': 'text/event-stream' };

/** Streams these pieces, each in a packet of its own where `apart` says so. */
export function streams(pieces: readonly (string | Buffer)[], { apart = false, end = true } = {}): Behaviour {
  return async (response) => {
    response.writeHead(200, STREAM);
    for (const piece of pieces) {
      response.write(piece);
      if (apart) await new Promise((resolve) => setImmediate(resolve));
    }
    if (end) response.end();
  };
}

/** Streams some pieces, then, when those have surely been read, the others. */
export function streamsLater(pieces: readonly string[], later: readonly string[]): Behaviour {
  return async (response) => {
    response.writeHead(200, STREAM);
    response.write(pieces.join(''));
    await new Promise((resolve) => setTimeout(resolve, 60));
    response.end(later.join(''));
  };
}

/** Sends these pieces and then closes the connection in the middle of the answer. */
export function diesAfter(pieces: readonly string[]): Behaviour {
  return async (response) => {
    response.writeHead(200, STREAM);
    for (const piece of pieces) await new Promise((resolve) => response.write(piece, resolve));
    response.destroy();
  };
}

export const diesAtOnce: Behaviour = (response) => response.destroy();

export const saysNothing: Behaviour = () => undefined;

function parse(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
