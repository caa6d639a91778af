import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type ModelDialect, modelDialects } from './scripted-model-dialects.ts';

/** What a model was asked, whichever dialect it came in. */
export interface ModelRequest {
  readonly model: string;
  /** Everything the user said in this conversation, oldest first. */
  readonly userTexts: readonly string[];
  /** What tools answered after the user last spoke. */
  readonly toolResults: readonly string[];
  readonly toolNames: readonly string[];
  readonly streamed: boolean;
}

export interface ModelReply {
  /** In the pieces in which it is streamed. */
  readonly text?: readonly string[];
  readonly thinking?: string;
  readonly toolCall?: { readonly name: string; readonly arguments: Readonly<Record<string, unknown>> };
  /** The stream stays open after what was said, until the caller goes away. */
  readonly endless?: boolean;
}

export interface ScriptedModel {
  /** Without a path. */
  readonly url: string;
  readonly requests: readonly ModelRequest[];
  /** Calls whose answer is still open. */
  openAnswers(): number;
  stop(): Promise<void>;
}

const MAX_BODY_BYTES = 32 * 1024 * 1024;

/** A model API on loopback that speaks OpenAI chat completions, OpenAI responses and Gemini, and says what it is told to. */
export async function startScriptedModel(answer: (request: ModelRequest) => ModelReply): Promise<ScriptedModel> {
  const requests: ModelRequest[] = [];
  let open = 0;

  const server = createServer((request, response) => {
    open += 1;
    response.once('close', () => {
      open -= 1;
    });
    serve(request, response).catch((error: unknown) => response.destroy(error as Error));
  });

  async function serve(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = new URL(incoming.url ?? '/', 'http://model').pathname;
    const body = await readBody(incoming);
    const dialect = modelDialects.find(({ serves }) => serves(path));
    if (incoming.method !== 'POST' || dialect === undefined) {
      response.writeHead(404, { 'content-type': 'application/json' }).end('{"error":{"message":"no such endpoint"}}');
      return;
    }
    const request = dialect.read(path, JSON.parse(body));
    requests.push(request);
    await send(dialect, request, answer(request), response);
  }

  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    requests,
    openAnswers: () => open,
    async stop() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function send(
  dialect: ModelDialect,
  request: ModelRequest,
  reply: ModelReply,
  response: ServerResponse,
): Promise<void> {
  if (!request.streamed) {
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(dialect.whole(request, reply)));
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  const events = dialect.stream(request, reply);
  for (const event of events.before) response.write(event);
  if (reply.endless === true) {
    await once(response, 'close');
    return;
  }
  response.end(events.after.join(''));
}

async function readBody(incoming: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of incoming) {
    size += (chunk as Buffer).length;
    if (size > MAX_BODY_BYTES) throw new Error('the body is too large');
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks).toString('utf8');
}
