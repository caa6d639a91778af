import type { UsableApi } from '../apis/model-api.ts';
import type {
  ChatChunk,
  ChatCompletion,
  ChatMessage,
  ChatRequest,
  ChatTool,
  ToolCall,
  Usage,
} from '../contract/chat.ts';
import type { Dialect, DialectContext } from '../dialects/dialect.ts';
import type { KeyHolder } from '../keys/admission.ts';
import type { OpenedChat } from '../relay/open-stream.ts';
import { spliceModel } from '../relay/splice-body.ts';
import type { CallRecord, SpendingRecord } from '../routing/call-record.ts';
import type { UpstreamBody } from '../upstream/upstream-exchange.ts';

/** A chat request as one upstream takes it. */
export interface EncodedChat {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: UpstreamBody;
  /** Fields of the caller that this upstream cannot take. */
  readonly dropped: readonly string[];
}

const ASK_FOR_USAGE = '"stream_options":{"include_usage":true},';
/** What is spliced in, or is the same whether it is said or not. */
const SPLICED: ReadonlySet<string> = new Set(['model', 'stream', 'stream_options']);

/**
 * `bytes`: the body as it came, when it may be passed on. That is done when the dialect would change nothing in it but
 * the model and the wish for usage.
 */
export function encodeChat(
  dialect: Dialect,
  request: ChatRequest,
  context: DialectContext,
  bytes: Buffer | undefined,
): EncodedChat {
  const { path, headers, body, dropped } = dialect.encodeRequest(request, context);
  const spliced =
    bytes === undefined || dropped.length > 0 || !speaksOpenai(dialect) || !isUnchanged(request, body)
      ? undefined
      : spliceRequest(request, context, bytes);
  return { path, headers, body: spliced ?? JSON.stringify(body), dropped };
}

/** Whether requests and answers are OpenAI's own, so that bytes may be passed on. */
export function speaksOpenai({ name }: Pick<Dialect, 'name'>): boolean {
  return name === 'openai' || name === 'azure';
}

/** What a dialect must know of an API. */
export function dialectContext(
  api: UsableApi,
  model: string,
  answer: Pick<DialectContext, 'stream' | 'id' | 'created' | 'translated' | 'maxOutputTokens' | 'facts'>,
): DialectContext {
  const { baseUrl, refuses, noStreamOptions, responses: servesResponses } = api;
  return { ...answer, model, baseUrl, refuses, noStreamOptions, servesResponses };
}

function spliceRequest(request: ChatRequest, context: DialectContext, bytes: Buffer): readonly Buffer[] | undefined {
  const { stream_options: options } = request;
  const asks = context.stream && context.noStreamOptions !== true;
  if (!asks || options?.include_usage === true) {
    // An API that does not know the option must not get the caller's either.
    if (!asks && options !== undefined) return undefined;
    return spliceModel(bytes, request.model, context.model);
  }
  return options === undefined ? spliceModel(bytes, request.model, context.model, ASK_FOR_USAGE) : undefined;
}

function isUnchanged(request: ChatRequest, encoded: unknown): boolean {
  const before = request as Readonly<Record<string, unknown>>;
  const after = encoded as Readonly<Record<string, unknown>>;
  for (const name of Object.keys(after)) if (!SPLICED.has(name) && !isSame(before[name], after[name])) return false;
  for (const name of Object.keys(before)) if (!SPLICED.has(name) && !Object.hasOwn(after, name)) return false;
  return true;
}

/** A list counts as the same when everything in it is. */
function isSame(before: unknown, after: unknown): boolean {
  if (before === after) return true;
  if (!Array.isArray(before) || !Array.isArray(after) || before.length !== after.length) return false;
  return before.every((item, index) => item === after[index]);
}

/** A chat request on its way, checked and in today's form. */
export interface ChatWork {
  readonly request: ChatRequest;
  /** As it came, when bytes may be passed on. */
  readonly bytes: Buffer | undefined;
  /** The upstream's own bytes will do as the answer. */
  readonly answerAsBytes: boolean;
  readonly strict: boolean;
  /** Parameters that we added ourselves: they are never refused, and never named as dropped. */
  readonly added?: readonly string[] | undefined;
  /** The request came in another API's form. */
  readonly translated?: boolean | undefined;
  /** Whose call it is, and what is noted of it. */
  readonly call?: { readonly holder: KeyHolder; readonly record: CallRecord };
  /** Without a `call`: where to note what an answer that failed has used. */
  readonly spending?: SpendingRecord;
  readonly promptTokens: number;
  /** The same for every try of one call, so that an upstream can recognise a repetition. */
  readonly idempotencyId: string;
  /** For answers of upstreams that give none. */
  readonly answerId: string;
  readonly created: number;
}

/** Puts what the call cost into the usage of a translated answer; `costOf` gives nothing where the price is not known. */
export function withCost(opened: OpenedChat, costOf: (usage: Usage) => Pick<Usage, 'cost'>): OpenedChat {
  const priced = <Priced extends { readonly usage?: Usage | null }>(answer: Priced): Priced =>
    answer.usage ? { ...answer, usage: { ...answer.usage, ...costOf(answer.usage) } } : answer;
  if (opened.kind === 'completion') return { ...opened, completion: priced(opened.completion) };
  if (opened.kind !== 'chunk-stream') return opened;
  const { stream } = opened;
  const attach: typeof stream.attach = (sink) =>
    stream.attach({
      write: (chunks) => sink.write(chunks.map(priced)),
      end: (last) => sink.end(last?.map(priced)),
      fail: (error) => sink.fail(error),
    });
  return { ...opened, stream: { ...stream, attach } };
}

/**
 * The older way to call functions (`functions`, `function_call`) in terms of tools, the only one that most upstreams
 * know, and back again for a caller that used it.
 */
export function usesLegacyFunctions({ functions, function_call: choice, messages }: ChatRequest): boolean {
  if ((functions !== undefined && functions !== null) || (choice !== undefined && choice !== null)) return true;
  return messages.some(({ role, function_call: call }) => role === 'function' || (call !== undefined && call !== null));
}

export function withTools(request: ChatRequest): ChatRequest {
  const { functions, function_call: asked, messages, ...rest } = request;
  const definitions = functions ?? [];
  const choice = asked ?? definitions.find((definition) => definition.function_call !== undefined)?.function_call;
  return {
    ...rest,
    messages: withToolMessages(messages),
    ...(definitions.length > 0 && {
      tools: [...(rest.tools ?? []), ...definitions.map(toTool)],
      // There is room for one call in the older form.
      parallel_tool_calls: false,
    }),
    ...(choice !== undefined && definitions.length > 0 && { tool_choice: toToolChoice(choice) }),
  };
}

function toTool({ function_call: _, ...definition }: NonNullable<ChatRequest['functions']>[number]): ChatTool {
  return { type: 'function', function: definition };
}

/** Without `/v1` the choice is a text inside a definition: `auto`, `none`, or a function's name. */
function toToolChoice(choice: NonNullable<ChatRequest['function_call']>): NonNullable<ChatRequest['tool_choice']> {
  if (choice === 'auto' || choice === 'none') return choice;
  const name = typeof choice === 'string' ? choice : choice.name;
  return { type: 'function', function: { name } };
}

/** Calls get ids, and each result the id of the latest call of its function. */
function withToolMessages(messages: readonly ChatMessage[]): ChatMessage[] {
  const latest = new Map<string, string>();
  return messages.map((message, position): ChatMessage => {
    const { function_call: call, ...rest } = message;
    if (call !== undefined && call !== null) {
      const id = `call_${position}`;
      latest.set(call.name, id);
      return { ...rest, tool_calls: [{ id, type: 'function', function: call }] };
    }
    if (message.role !== 'function') return message;
    const { name = '', ...result } = rest;
    return { ...result, role: 'tool', tool_call_id: latest.get(name) ?? `call_${name}` };
  });
}

export function withFunctionCalls(completion: ChatCompletion): ChatCompletion {
  return {
    ...completion,
    choices: completion.choices.map((choice) => {
      const { tool_calls: calls, ...message } = choice.message;
      const call = calls?.find(({ type }) => type === 'function');
      if (call === undefined) return choice;
      return {
        ...choice,
        message: { ...message, function_call: toFunctionCall(call) },
        finish_reason: toFinishReason(choice.finish_reason),
      };
    }),
  };
}

/** Only the first call has a place there; the request asked for no more than one. */
export function withFunctionCallDeltas(chunk: ChatChunk): ChatChunk {
  return {
    ...chunk,
    choices: chunk.choices.map((choice) => {
      const { tool_calls: calls, ...delta } = choice.delta;
      const call = calls?.find(({ index }) => index === 0)?.function;
      const finishReason = toFinishReason(choice.finish_reason);
      return {
        ...choice,
        delta: call === undefined ? delta : { ...delta, function_call: call },
        finish_reason: finishReason,
      };
    }),
  };
}

function toFunctionCall({ function: { name, arguments: text } }: ToolCall) {
  return { name, arguments: text };
}

function toFinishReason(reason: string | null): string | null {
  return reason === 'tool_calls' ? 'function_call' : reason;
}
