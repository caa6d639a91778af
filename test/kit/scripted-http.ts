import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import { inTime } from './in-time.ts';
import { listenOnLoopback } from './loopback-server.ts';
import type { Scope } from './running-program.ts';

export interface SeenRequest {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** The answer that is being given to it, to look at later. */
  readonly response: ServerResponse;
}

export interface ScriptedHttp {
  readonly url: string;
  readonly requests: SeenRequest[];
  /** Resolves when that many requests have come. */
  arrived(count: number): Promise<void>;
}

/** A server on loopback that does to each request what the test says, for what no decent server does. */
export async function startScriptedHttp(
  scope: Scope,
  serve: (request: SeenRequest, index: number) => void | Promise<void>,
): Promise<ScriptedHttp> {
  const requests: SeenRequest[] = [];
  const waiting: { count: number; resolve(): void }[] = [];
  const server = createServer(async (incoming, response) => {
    response.on('error', () => undefined);
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const request = {
      path: incoming.url ?? '',
      headers: incoming.headers,
      body: String(Buffer.concat(chunks)),
      response,
    };
    requests.push(request);
    for (const { count, resolve } of waiting) if (requests.length >= count) resolve();
    await serve(request, requests.length - 1);
  });
  const { url, close } = await listenOnLoopback(server);
  scope.after(close);
  return {
    url,
    requests,
    arrived(count) {
      if (requests.length >= count) return Promise.resolve();
      return inTime(`request number ${count}`, new Promise((resolve) => waiting.push({ count, resolve })));
    },
  };
}

/** Begins an event stream and sends events; a string is sent as it is, anything else as JSON. */
export function sendEvents(
  response: ServerResponse,
  events: readonly unknown[],
  id?: (event: unknown) => unknown,
): void {
  if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  for (const event of events) {
    const eventId = id?.(event);
    const text = typeof event === 'string' ? event : JSON.stringify(event);
    response.write(`${eventId === undefined ? '' : `id: ${eventId}\n`}data: ${text}\n\n`);
  }
}
