import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** What a model was asked, whichever dialect it came in. */
export interface ModelRequest {
  readonly model: string;
  /** Everything the user said in this conversation, oldest first. */
  readonly userTexts: readonly string[];
  /** What tools answered after the user last spoke. */
  readonly toolResults: readonly string[];
  readonly toolNames: readonly string[];
  /** Images since the model last spoke. */
  readonly images: number;
  readonly streamed: boolean;
  /** How much it is to think, in OpenAI's words. Absent: as it does. */
  readonly effort?: string;
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

/** A model API on loopback that speaks OpenAI chat completions, OpenAI responses, Gemini and what else is given, and says what it is told to. */
export async function startScriptedModel(
  answer: (request: ModelRequest) => ModelReply,
  more: readonly ModelDialect[] = [],
): Promise<ScriptedModel> {
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
    const dialect = [...modelDialects, ...more].find(({ serves }) => serves(path));
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

/** How one model API writes requests and answers. Only what agents read is there. */
export interface ModelDialect {
  serves(path: string): boolean;
  read(path: string, body: Json): ModelRequest;
  whole(request: ModelRequest, reply: ModelReply): unknown;
  /** The stream's events: those that come at once, and those that end it. */
  stream(
    request: ModelRequest,
    reply: ModelReply,
  ): { readonly before: readonly string[]; readonly after: readonly string[] };
}

// biome-ignore lint/suspicious/noExplicitAny: bodies of foreign programs, read as they come
type Json = any;

const USAGE = { input: 11, output: 7 };

const chat: ModelDialect = {
  serves: (path) => path.endsWith('/chat/completions'),
  read: (_path, body) => {
    const messages: readonly Json[] = body.messages ?? [];
    const lastUser = messages.findLastIndex(({ role }) => role === 'user');
    return {
      model: body.model,
      userTexts: messages.filter(({ role }) => role === 'user').map(({ content }) => textOf(content)),
      toolResults: messages
        .slice(lastUser + 1)
        .flatMap(({ role, content }) => (role === 'tool' ? [textOf(content)] : [])),
      toolNames: (body.tools ?? []).map((tool: Json) => tool.function?.name ?? ''),
      images: imagesIn(messages.slice(messages.findLastIndex(({ role }) => role === 'assistant') + 1)),
      streamed: body.stream === true,
      effort: body.reasoning_effort,
    };
  },
  whole: (request, reply) => ({
    id: 'chatcmpl-1',
    object: 'chat.completion',
    created: 1,
    model: request.model,
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: joined(reply), ...chatToolCalls(reply) },
        finish_reason: reply.toolCall === undefined ? 'stop' : 'tool_calls',
      },
    ],
    usage: chatUsage(),
  }),
  stream: (request, reply) => {
    const chunk = (delta: unknown, finish: string | null, usage?: unknown) =>
      data({
        id: 'chatcmpl-1',
        object: 'chat.completion.chunk',
        created: 1,
        model: request.model,
        choices: [{ index: 0, delta, finish_reason: finish }],
        ...(usage !== undefined && { usage }),
      });
    return {
      before: [
        chunk({ role: 'assistant', content: '' }, null),
        ...(reply.thinking === undefined ? [] : [chunk({ reasoning_content: reply.thinking }, null)]),
        ...(reply.text ?? []).map((text) => chunk({ content: text }, null)),
        ...(reply.toolCall === undefined ? [] : [chunk(chatToolCalls(reply), null)]),
      ],
      after: [chunk({}, reply.toolCall === undefined ? 'stop' : 'tool_calls', chatUsage()), 'data: [DONE]\n\n'],
    };
  },
};

const responses: ModelDialect = {
  serves: (path) => path.endsWith('/responses'),
  read: (_path, body) => {
    const input: readonly Json[] =
      typeof body.input === 'string' ? [{ role: 'user', content: body.input }] : body.input;
    const lastUser = input.findLastIndex(({ role }) => role === 'user');
    return {
      model: body.model,
      userTexts: input.filter(({ role }) => role === 'user').map(({ content }) => textOf(content)),
      toolResults: input
        .slice(lastUser + 1)
        .flatMap(({ type, output }) => (String(type).endsWith('_call_output') ? [textOf(output)] : [])),
      toolNames: (body.tools ?? []).map((tool: Json) => tool.name ?? tool.type ?? ''),
      images: imagesIn(input.slice(input.findLastIndex(({ role }) => role === 'assistant') + 1)),
      streamed: body.stream === true,
      effort: body.reasoning?.effort,
    };
  },
  whole: (request, reply) => ({
    id: 'resp_1',
    object: 'response',
    status: 'completed',
    model: request.model,
    output: responseItems(reply),
    usage: responsesUsage(),
  }),
  stream: (request, reply) => {
    const items = responseItems(reply);
    const response = { id: 'resp_1', object: 'response', model: request.model, output: [] };
    return {
      before: [
        named('response.created', { response: { ...response, status: 'in_progress' } }),
        ...items.flatMap((item, index) => [
          named('response.output_item.added', { output_index: index, item: { ...item, content: [], summary: [] } }),
          ...itemDeltas(item, index, reply),
          ...(reply.endless === true ? [] : [named('response.output_item.done', { output_index: index, item })]),
        ]),
      ],
      after: [
        named('response.completed', {
          response: { ...response, status: 'completed', output: items, usage: responsesUsage() },
        }),
      ],
    };
  },
};

const gemini: ModelDialect = {
  serves: (path) => path.includes(':generateContent') || path.includes(':streamGenerateContent'),
  read: (path, body) => {
    const contents: readonly Json[] = body.contents ?? [];
    const parts = (content: Json): readonly Json[] => content.parts ?? [];
    const spoke = (content: Json) => content.role === 'user' && parts(content).some(({ text }) => text !== undefined);
    const lastUser = contents.findLastIndex(spoke);
    return {
      model: /models\/([^:]{1,100}):/.exec(path)?.[1] ?? '',
      userTexts: contents.filter(spoke).map((content) =>
        parts(content)
          .map(({ text }) => text ?? '')
          .join(''),
      ),
      toolResults: contents
        .slice(lastUser + 1)
        .flatMap((content) =>
          parts(content).flatMap((part) =>
            part.functionResponse === undefined ? [] : [JSON.stringify(part.functionResponse.response)],
          ),
        ),
      toolNames: (body.tools ?? []).flatMap((tool: Json) =>
        (tool.functionDeclarations ?? []).map(({ name }: { name: string }) => name),
      ),
      images: parts(contents[lastUser] ?? {}).filter(({ inlineData }) => inlineData !== undefined).length,
      streamed: path.includes(':stream'),
    };
  },
  whole: (_request, reply) => geminiAnswer(geminiParts(reply), 'STOP'),
  stream: (_request, reply) => ({
    before: geminiParts(reply).map((part) => data(geminiAnswer([part], undefined))),
    after: [data(geminiAnswer([], 'STOP'))],
  }),
};

const modelDialects: readonly ModelDialect[] = [chat, responses, gemini];

function textOf(content: Json): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return JSON.stringify(content ?? '');
  return content.map((part: Json) => part.text ?? '').join('');
}

/** In the forms of chat (`image_url`) and of responses (`input_image`). */
function imagesIn(messages: readonly Json[]): number {
  const parts = messages.flatMap(({ content }) => (Array.isArray(content) ? content : []));
  return parts.filter(({ type }) => type === 'image_url' || type === 'input_image').length;
}

function joined(reply: ModelReply): string {
  return (reply.text ?? []).join('');
}

function data(value: unknown): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

function named(type: string, value: object): string {
  return `event: ${type}\n${data({ type, ...value })}`;
}

function chatToolCalls({ toolCall }: ModelReply): object {
  if (toolCall === undefined) return {};
  const call = { name: toolCall.name, arguments: JSON.stringify(toolCall.arguments) };
  return { tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: call }] };
}

function chatUsage(): object {
  return { prompt_tokens: USAGE.input, completion_tokens: USAGE.output, total_tokens: USAGE.input + USAGE.output };
}

function responsesUsage(): object {
  return {
    input_tokens: USAGE.input,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: USAGE.output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: USAGE.input + USAGE.output,
  };
}

function responseItems(reply: ModelReply): readonly Json[] {
  const items: Json[] = [];
  if (reply.thinking !== undefined) {
    items.push({ type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: reply.thinking }] });
  }
  if (reply.text !== undefined) {
    items.push({
      type: 'message',
      id: 'msg_1',
      role: 'assistant',
      content: [{ type: 'output_text', text: joined(reply), annotations: [] }],
    });
  }
  if (reply.toolCall !== undefined) {
    items.push({
      type: 'function_call',
      id: 'fc_1',
      call_id: 'call_1',
      name: reply.toolCall.name,
      arguments: JSON.stringify(reply.toolCall.arguments),
    });
  }
  return items;
}

function itemDeltas(item: Json, index: number, reply: ModelReply): readonly string[] {
  const at = { item_id: item.id, output_index: index };
  if (item.type === 'message') {
    return (reply.text ?? []).map((delta) => named('response.output_text.delta', { ...at, content_index: 0, delta }));
  }
  if (item.type === 'reasoning') {
    return [named('response.reasoning_summary_text.delta', { ...at, summary_index: 0, delta: reply.thinking })];
  }
  return [];
}

function geminiParts(reply: ModelReply): readonly object[] {
  return [
    ...(reply.thinking === undefined ? [] : [{ text: reply.thinking, thought: true }]),
    ...(reply.text ?? []).map((text) => ({ text })),
    ...(reply.toolCall === undefined
      ? []
      : [{ functionCall: { name: reply.toolCall.name, args: reply.toolCall.arguments } }]),
  ];
}

function geminiAnswer(parts: readonly object[], finishReason: string | undefined): object {
  return {
    candidates: [{ index: 0, content: { role: 'model', parts }, ...(finishReason !== undefined && { finishReason }) }],
    usageMetadata: {
      promptTokenCount: USAGE.input,
      candidatesTokenCount: USAGE.output,
      totalTokenCount: USAGE.input + USAGE.output,
    },
  };
}
