import type { ChatChunk, ChatCompletion, ChunkDelta, ToolCall, Usage } from '../../contract/chat.ts';
import {
  type AnswerHead,
  callId,
  completionOf,
  failedStep,
  headOf,
  lastStep,
  silentStep,
  stepOf,
  usageChunk,
  usageOf,
} from '../answer.ts';
import { listedPages } from '../citations.ts';
import type { DecodedAnswer, DialectContext, StreamEvent, StreamStep } from '../dialect.ts';
import { brokenAnswer, failureInEvent, failureInObject, isFailureObject, noObject } from '../failure.ts';
import { asCount, asList, asObject, asText, asWords, type JsonObject, parseEvent } from '../json-value.ts';

type Choice = ChatCompletion['choices'][number];
type CallDelta = NonNullable<ChunkDelta['tool_calls']>[number];

/** Keeps every field of OpenAI's response, unknown ones included, and corrects only what other servers do differently. */
export function decodeOpenaiAnswer(body: unknown, context: DialectContext): DecodedAnswer {
  const answer = asObject(body);
  if (answer === undefined) return { failure: brokenAnswer() };
  if (isFailure(answer)) return { failure: failureInObject(answer) };
  if (!Array.isArray(answer.choices)) return { failure: brokenAnswer('The answer of the model API has no choices.') };
  const head = readHead(answer, headOf(context));
  const usage = readOpenaiUsage(answer);
  const choices: Choice[] = [];
  for (const value of answer.choices) {
    const choice = asObject(value);
    if (choice === undefined) continue;
    if (isFailedChoice(choice)) return { failure: failureInObject(choice), usage };
    choices.push(readChoice(choice, choices.length, head.id));
  }
  const [first] = choices;
  if (first === undefined) return { failure: brokenAnswer('The answer of the model API has no choices.'), usage };
  const pages = listedPages(answer);
  if (pages.length > 0) first.message.annotations ??= [...pages];
  const { completion } = completionOf(head, choices, usage);
  // Usage without figures, such as null, is none.
  const { usage: _, ...rest } = answer;
  return { completion: { ...rest, ...completion } as ChatCompletion };
}

/** Returns whether a response or a chunk is a failure. Some upstreams send an empty `error` in every chunk. */
export function isFailure(body: JsonObject): boolean {
  return isFailureObject(body, Array.isArray(body.choices) || asObject(body.usage) !== undefined);
}

/** Whether one choice of an answer or of a chunk failed. */
export function isFailedChoice(choice: JsonObject): boolean {
  return isFailureObject(choice, true) || choice.finish_reason === 'error';
}

function readHead(answer: JsonObject, own: AnswerHead): AnswerHead {
  return {
    id: asWords(answer.id) ?? own.id,
    created: typeof answer.created === 'number' ? answer.created : own.created,
    model: asWords(answer.model) ?? own.model,
  };
}

function readChoice(choice: JsonObject, position: number, answerId: string): Choice {
  const message = asObject(choice.message) ?? {};
  const { text, thinking } = readContentPieces(message.content);
  const reasoning = readReasoning(message) ?? thinking;
  const calls = asList(message.tool_calls).flatMap((value, index) => readCall(value, index, answerId));
  const { reasoning: _, reasoning_content: __, tool_calls: ___, ...rest } = message;
  return {
    ...choice,
    index: typeof choice.index === 'number' ? choice.index : position,
    message: {
      ...rest,
      role: asText(message.role) ?? 'assistant',
      content: text ?? null,
      ...(reasoning !== undefined && reasoning !== '' && { reasoning_content: reasoning }),
      ...(calls.length > 0 && { tool_calls: calls }),
    },
    finish_reason: asWords(choice.finish_reason) ?? (calls.length > 0 ? 'tool_calls' : 'stop'),
  } as Choice;
}

function readCall(value: unknown, index: number, answerId: string): ToolCall[] {
  const call = asObject(value);
  const called = asObject(call?.function);
  // A tool of free text, which only a caller of this dialect can have sent.
  if (call !== undefined && asObject(call.custom) !== undefined) return [call as unknown as ToolCall];
  if (call === undefined || called === undefined) return [];
  return [
    {
      ...call,
      id: asWords(call.id) ?? callId(answerId, index),
      type: 'function',
      function: { name: asText(called.name) ?? '', arguments: argumentsText(called.arguments) ?? '' },
    },
  ];
}

/** Some servers send the arguments as an object instead of text. */
function argumentsText(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  return value === undefined || value === null ? undefined : JSON.stringify(value);
}

export interface OpenaiStreamState {
  readonly head: AnswerHead;
  /** How many calls each choice has begun, for servers that do not number them. */
  readonly calls: number[];
  usage: Usage | undefined;
}

const MAX_CHOICES = 128;

export function startOpenaiStream(context: DialectContext): OpenaiStreamState {
  return { head: headOf(context), calls: [], usage: undefined };
}

export function decodeOpenaiEvent(state: OpenaiStreamState, event: StreamEvent): StreamStep<OpenaiStreamState> {
  const { data } = event;
  if (data === '[DONE]') return lastStep(state, heldUsage(state));
  if (data.trim() === '') return silentStep(state);
  const body = parseEvent(data);
  if (event.event === 'error') return failedStep(state, failureInEvent(data, body));
  if (body === undefined) return failedStep(state, noObject());
  if (isFailure(body)) return failedStep(state, failureInObject(body));
  if (typeof body.id === 'string' && body.id !== '') state.head.id = body.id;
  if (typeof body.model === 'string' && body.model !== '') state.head.model = body.model;
  if (typeof body.created === 'number') state.head.created = body.created;
  return decodeChoices(state, body);
}

function decodeChoices(state: OpenaiStreamState, body: JsonObject): StreamStep<OpenaiStreamState> {
  const choices: ChatChunk['choices'][number][] = [];
  let finished = false;
  for (const value of asList(body.choices)) {
    const choice = asObject(value);
    if (choice === undefined) continue;
    if (isFailedChoice(choice)) return failedStep(state, failureInObject(choice));
    const read = readChoiceDelta(state, choice);
    if (read.finish_reason !== null) finished = true;
    choices.push(read);
  }
  state.usage = readOpenaiUsage(body) ?? state.usage;
  const chunks: ChatChunk[] = [];
  // Servers that list pages repeat the list with every chunk.
  const pages = finished ? listedPages(body) : [];
  const [first] = choices;
  if (first !== undefined && pages.length > 0) first.delta.annotations ??= pages;
  if (choices.length > 0) {
    const { usage: _, ...rest } = body;
    chunks.push({ ...rest, ...state.head, object: 'chat.completion.chunk', choices });
  }
  // Figures that come before the end are repeated, larger, with every chunk: only the last ones count.
  if (finished || choices.length === 0) chunks.push(...heldUsage(state));
  return stepOf(state, chunks);
}

function heldUsage(state: OpenaiStreamState): readonly ChatChunk[] {
  const { usage } = state;
  if (usage === undefined) return [];
  state.usage = undefined;
  return [usageChunk(state.head, usage)];
}

function readChoiceDelta(state: OpenaiStreamState, choice: JsonObject): ChatChunk['choices'][number] {
  const index = Number.isInteger(choice.index) && (choice.index as number) >= 0 ? (choice.index as number) : 0;
  const delta = asObject(choice.delta) ?? asObject(choice.message) ?? {};
  return {
    ...choice,
    index,
    delta: readDelta(state, index, delta),
    finish_reason: asWords(choice.finish_reason) ?? null,
  };
}

function readDelta(state: OpenaiStreamState, choice: number, delta: JsonObject): ChunkDelta {
  const fitted = fitDelta(delta) ?? delta;
  if (fitted.tool_calls === undefined) return fitted;
  const { tool_calls: calls, ...read } = fitted;
  if (!Array.isArray(calls)) return read;
  return { ...read, tool_calls: calls.flatMap((call) => readCallDelta(state, choice, call)) };
}

/** Returns a delta with plain text and with `reasoning_content`; undefined if it has this form already. */
function fitDelta(delta: JsonObject): JsonObject | undefined {
  const plain = typeof delta.content === 'string' || delta.content === undefined || delta.content === null;
  if (plain && !('reasoning' in delta)) return undefined;
  const { reasoning: _, ...read } = delta;
  const { text, thinking } = readContentPieces(delta.content);
  const reasoning = readReasoning(delta) ?? thinking;
  if (text !== undefined) read.content = text;
  else if (!plain) delete read.content;
  if (reasoning !== undefined && reasoning !== '') read.reasoning_content = reasoning;
  return read;
}

/** Returns a chunk in the form of OpenAI's API; undefined if it can pass unchanged. */
export function fitChunk(body: JsonObject): JsonObject | undefined {
  let changed = false;
  const choices = asList(body.choices).map((value) => {
    const choice = asObject(value);
    const delta = asObject(choice?.delta);
    const fitted = delta === undefined ? undefined : fitDelta(delta);
    if (fitted === undefined) return value;
    changed = true;
    return { ...choice, delta: fitted };
  });
  return changed ? { ...body, choices } : undefined;
}

function readCallDelta(state: OpenaiStreamState, choice: number, value: unknown): CallDelta[] {
  const call = asObject(value);
  if (call === undefined) return [];
  const custom = asObject(call.custom);
  const called = asObject(call.function) ?? custom;
  const name = asWords(called?.name);
  const place = Math.min(choice, MAX_CHOICES);
  const begun = state.calls[place] ?? 0;
  const isNew = name !== undefined || asWords(call.id) !== undefined;
  const given = Number.isInteger(call.index) && (call.index as number) >= 0 ? (call.index as number) : undefined;
  const index = given ?? Math.max(0, isNew ? begun : begun - 1);
  const first = index >= begun;
  if (first) state.calls[place] = index + 1;
  const text = argumentsText(called?.arguments);
  const id = asWords(call.id) ?? (first ? callId(state.head.id, index) : undefined);
  return [
    {
      ...call,
      index,
      ...(id !== undefined && { id }),
      ...(first && { type: custom === undefined ? 'function' : 'custom' }),
      ...(custom === undefined && {
        function: { ...(name !== undefined && { name }), ...(text !== undefined && { arguments: text }) },
      }),
    } as CallDelta,
  ];
}

/** Returns the reasoning, under any name that servers of this dialect use. */
function readReasoning(message: JsonObject): string | undefined {
  return asText(message.reasoning_content) ?? asText(message.reasoning) ?? asText(asObject(message.reasoning)?.content);
}

/** Content may be a list of pieces, with thinking among them (Mistral). */
function readContentPieces(content: unknown): { text: string | undefined; thinking: string | undefined } {
  if (!Array.isArray(content)) return { text: asText(content), thinking: undefined };
  let text: string | undefined;
  let thinking: string | undefined;
  for (const value of content) {
    const piece = asObject(value);
    if (piece?.type === 'thinking') thinking = (thinking ?? '') + thinkingText(piece.thinking);
    else if (typeof piece?.text === 'string') text = (text ?? '') + piece.text;
  }
  return { text, thinking };
}

function thinkingText(value: unknown): string {
  if (typeof value === 'string') return value;
  return asList(value)
    .map((piece) => asText(asObject(piece)?.text) ?? '')
    .join('');
}

/** Returns the completion tokens, including reasoning that some APIs (xAI) count only in the total, because it is charged. */
export function completionTokens(counts: { prompt: number; completion: number; total: number }): number {
  return Math.max(counts.completion, counts.total - counts.prompt);
}

/** Reads usage from the body, from a choice (Moonshot) or from an extension (Groq). */
function readOpenaiUsage(body: JsonObject): Usage | undefined {
  const usage =
    asObject(body.usage) ??
    asObject(asObject(asList(body.choices)[0])?.usage) ??
    asObject(asObject(body.x_groq)?.usage);
  if (usage === undefined) return undefined;
  const prompt = asCount(usage.prompt_tokens);
  const total = asCount(usage.total_tokens);
  const completion = completionTokens({ prompt, completion: asCount(usage.completion_tokens), total });
  if (prompt === 0 && completion === 0) return undefined;
  const cached = asCount(usage.prompt_cache_hit_tokens);
  const lacksDetails = cached > 0 && asObject(usage.prompt_tokens_details) === undefined;
  return {
    ...usage,
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: Math.max(total, prompt + completion),
    ...(lacksDetails && { prompt_tokens_details: { cached_tokens: cached } }),
  };
}

/** Items of tools that OpenAI takes a fee for, besides the tokens. */
const PAID_TOOLS: ReadonlySet<unknown> = new Set([
  'code_interpreter_call',
  'file_search_call',
  'image_generation_call',
]);

/** Figures of the Responses API. */
export function readResponsesUsage(value: unknown, output?: unknown): Usage | undefined {
  const usage = asObject(value);
  if (usage === undefined) return undefined;
  return usageOf({
    prompt: asCount(usage.input_tokens),
    completion: asCount(usage.output_tokens),
    cached: asCount(asObject(usage.input_tokens_details)?.cached_tokens),
    reasoning: asCount(asObject(usage.output_tokens_details)?.reasoning_tokens),
    searches: asList(output).filter(isSearch).length,
    otherTools: asList(output).filter((item) => PAID_TOOLS.has(asObject(item)?.type)).length,
  });
}

/** Opening a page that was found, and looking for words in it, is part of the search. */
function isSearch(item: unknown): boolean {
  const { type, action } = asObject(item) ?? {};
  return type === 'web_search_call' && (asObject(action)?.type ?? 'search') === 'search';
}
