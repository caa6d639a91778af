import type { ChatChunk, ChatRequest, ToolCall, Usage } from '../../../src/completions/contract/chat.ts';
import type {
  Dialect,
  DialectContext,
  StreamEvent,
  UpstreamFailure,
} from '../../../src/completions/dialects/dialect.ts';

export const context: DialectContext = {
  model: 'a-model',
  stream: false,
  id: 'chatcmpl-01abc',
  created: 1_700_000_000,
};

export function contextFor(model: string, more: Partial<DialectContext> = {}): DialectContext {
  return { ...context, model, ...more };
}

/** A request with a plain question, and whatever a test adds. */
export function ask(more: Record<string, unknown> = {}): ChatRequest {
  return { model: 'api/a-model', messages: [{ role: 'user', content: 'Hello' }], ...more } as ChatRequest;
}

/** One event for each object, as server-sent events with a JSON body. */
export function dataEvents(...bodies: readonly unknown[]): StreamEvent[] {
  return bodies.map((body) => ({ event: undefined, data: typeof body === 'string' ? body : JSON.stringify(body) }));
}

/** Events whose name is in the framing too: that of AWS, or `event:` lines. */
export function namedEvents(...events: readonly (readonly [string, unknown])[]): StreamEvent[] {
  return events.map(([event, body]) => ({ event, data: JSON.stringify(body) }));
}

export interface StreamedAnswer {
  readonly chunks: readonly ChatChunk[];
  readonly content: string;
  readonly reasoning: string;
  readonly signature: string;
  readonly refusal: string;
  readonly calls: readonly ToolCall[];
  readonly finishReasons: readonly string[];
  readonly usage: Usage | undefined;
  readonly failure: UpstreamFailure | undefined;
  readonly done: boolean;
}

/** What a client makes of a stream that it puts together again; choice 0 alone. */
export function readStream(
  // biome-ignore lint/suspicious/noExplicitAny: a test reads whatever state a dialect has.
  dialect: Dialect<any>,
  events: readonly StreamEvent[],
  given: DialectContext = context,
): StreamedAnswer {
  const chunks: ChatChunk[] = [];
  let state = dialect.startStream({ ...given, stream: true });
  let failure: UpstreamFailure | undefined;
  let done = false;
  for (const event of events) {
    const step = dialect.decodeEvent(state, event);
    state = step.state;
    chunks.push(...step.chunks);
    failure ??= step.failure;
    done ||= step.done === true;
    if (failure !== undefined || done) break;
  }
  if (failure === undefined && !done && dialect.endStream !== undefined) {
    const step = dialect.endStream(state);
    chunks.push(...step.chunks);
    failure = step.failure;
  }
  return { chunks, failure, done, ...assemble(chunks) };
}

function assemble(chunks: readonly ChatChunk[]) {
  const calls: ToolCall[] = [];
  const answer = { content: '', reasoning: '', signature: '', refusal: '' };
  const finishReasons: string[] = [];
  let usage: Usage | undefined;
  for (const chunk of chunks) {
    usage = chunk.usage ?? usage;
    for (const { index, delta, finish_reason: reason } of chunk.choices) {
      if (index !== 0) continue;
      answer.content += delta.content ?? '';
      answer.reasoning += delta.reasoning_content ?? '';
      answer.signature += delta.reasoning_signature ?? '';
      answer.refusal += delta.refusal ?? '';
      if (reason !== null) finishReasons.push(reason);
      for (const { index: number, function: part, ...rest } of delta.tool_calls ?? []) {
        calls[number] ??= { id: '', type: 'function', ...rest, function: { name: '', arguments: '' } };
        const known = calls[number].function;
        known.name += part?.name ?? '';
        known.arguments += part?.arguments ?? '';
      }
    }
  }
  return { ...answer, calls, finishReasons, usage };
}

export const weatherTool = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather of a city.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};

/** A conversation in which two calls were made at once and answered. */
export const weatherConversation = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'Weather in Rome and Oslo?' },
  {
    role: 'assistant',
    content: 'Let me look.',
    tool_calls: [
      { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Rome"}' } },
      { id: 'call_2', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Oslo"}' } },
    ],
  },
  { role: 'tool', tool_call_id: 'call_1', content: 'Sunny' },
  { role: 'tool', tool_call_id: 'call_2', content: 'Snow' },
  { role: 'user', content: 'Thanks. Which is warmer?' },
];

export const PNG = 'iVBORw0KGgo=';
