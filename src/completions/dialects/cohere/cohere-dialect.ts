import type { ChatMessage, ChatRequest, ChunkDelta, ToolCall, Usage } from '../../contract/chat.ts';
import {
  type AnswerHead,
  callId,
  choiceOf,
  completionOf,
  deltaChunk,
  failedStep,
  headOf,
  lastStep,
  silentStep,
  stepOf,
  usageChunk,
  usageOf,
} from '../answer.ts';
import { readCohereCitation } from '../citations.ts';
import { asFunctionCall, DETAIL_FIELD, droppedPiece, readContent } from '../conversation.ts';
import {
  type DecodedAnswer,
  type Dialect,
  type DialectContext,
  type Steps,
  type StreamEvent,
  type StreamStep,
  thinkingOf,
  type UpstreamFailure,
  type UpstreamRequest,
} from '../dialect.ts';
import {
  brokenAnswer,
  failureInBody,
  failureInEvent,
  failureInObject,
  isFailureObject,
  noObject,
  upstreamFailure,
} from '../failure.ts';
import { asCount, asList, asObject, asText, asWords, type JsonObject, parseEvent } from '../json-value.ts';
import {
  answerSchema,
  dropCacheMarkers,
  maxTokens,
  plainResults,
  readTools,
  STRICT_FIELD,
  startTranslation,
  stopSequences,
  type ToolUse,
  takenFields,
  topK,
} from '../request-fields.ts';

export const cohereDialect: Dialect<CohereStreamState> = {
  name: 'cohere',
  framing: 'sse',
  encodeRequest: encodeCohereRequest,
  decodeResponse: decodeCohereAnswer,
  decodeFailure: failureInBody,
  startStream: startCohereStream,
  decodeEvent: decodeCohereEvent,
};

const FINISH_REASONS: ReadonlyMap<unknown, string> = new Map([
  ['COMPLETE', 'stop'],
  ['STOP_SEQUENCE', 'stop'],
  ['MAX_TOKENS', 'length'],
  ['TOOL_CALL', 'tool_calls'],
  ['ERROR_TOXIC', 'content_filter'],
]);

function cohereFinish(reason: unknown, calls: number, message: string | undefined): string | UpstreamFailure {
  if (reason === 'TIMEOUT') return upstreamFailure({ status: 504, message: message ?? 'The model took too long.' });
  const known = FINISH_REASONS.get(reason);
  if (known === undefined && typeof reason === 'string' && reason.startsWith('ERROR')) {
    return upstreamFailure({ status: 502, message: message ?? 'The model API failed while the model was answering.' });
  }
  return known ?? (calls > 0 ? 'tool_calls' : 'stop');
}

/** Converts usage. Prefers `tokens`, which the model processed; the billed tokens may be fewer. */
function cohereUsage(value: unknown): Usage | undefined {
  const usage = asObject(value);
  const tokens = asObject(usage?.tokens) ?? asObject(usage?.billed_units);
  if (usage === undefined || tokens === undefined) return undefined;
  return usageOf({
    prompt: asCount(tokens.input_tokens),
    completion: asCount(tokens.output_tokens),
    cached: asCount(usage.cached_tokens),
  });
}

function decodeCohereAnswer(body: unknown, context: DialectContext): DecodedAnswer {
  const answer = asObject(body);
  if (answer === undefined) return { failure: brokenAnswer() };
  const message = asObject(answer.message);
  if (message === undefined) {
    return {
      failure: isFailureObject(answer, false)
        ? failureInObject(answer)
        : brokenAnswer('The answer of the model API has no message.'),
    };
  }
  const own = headOf(context);
  const head = { ...own, id: asWords(answer.id) ?? own.id };
  const calls = asList(message.tool_calls).flatMap((value, index) => readCall(value, index, head.id));
  const finishReason = cohereFinish(answer.finish_reason, calls.length, undefined);
  const usage = cohereUsage(answer.usage);
  if (typeof finishReason !== 'string') return { failure: finishReason, usage };
  let text = asText(message.content) ?? '';
  let reasoning = asText(message.tool_plan) ?? '';
  for (const value of asList(message.content)) {
    const piece = asObject(value);
    text += asText(piece?.text) ?? '';
    reasoning += asText(piece?.thinking) ?? '';
  }
  const annotations = asList(message.citations).flatMap(readCohereCitation);
  const choice = choiceOf({ text, reasoning, signature: '', calls, finishReason, annotations });
  return completionOf(head, [choice], usage);
}

function readCall(value: unknown, index: number, answerId: string): ToolCall[] {
  const call: JsonObject | undefined = asObject(value);
  const called = asObject(call?.function);
  if (call === undefined || called === undefined) return [];
  const id = asWords(call.id) ?? callId(answerId, index);
  return [
    {
      id,
      type: 'function',
      function: { name: asText(called.name) ?? '', arguments: argumentsText(called.arguments) },
    },
  ];
}

/** For a function without parameters Cohere sends nothing, or `null`. */
function argumentsText(value: unknown): string {
  const text = asWords(value);
  return text === undefined || text === 'null' ? '{}' : text;
}

interface CohereStreamState {
  readonly head: AnswerHead;
  calls: number;
  /** Whether the call that is open got any arguments. Calls come one after the other. */
  hasArguments: boolean;
}

function startCohereStream(context: DialectContext): CohereStreamState {
  return { head: headOf(context), calls: 0, hasArguments: true };
}

type Step = StreamStep<CohereStreamState>;

function decodeCohereEvent(state: CohereStreamState, { event, data }: StreamEvent): Step {
  if (data === '') return silentStep(state);
  if (data === '[DONE]') return lastStep(state);
  const body = parseEvent(data);
  if (event === 'error') return failedStep(state, failureInEvent(data, body));
  if (body === undefined) return failedStep(state, noObject());
  const delta = asObject(body.delta);
  const message = asObject(delta?.message);
  switch (body.type ?? event) {
    case 'content-start':
    case 'content-delta':
      return addContent(state, asObject(message?.content));
    case 'message-start':
      state.head.id = asWords(body.id) ?? state.head.id;
      return one(state, { role: 'assistant', content: '' });
    case 'tool-plan-delta': {
      const plan = asWords(message?.tool_plan);
      return plan === undefined ? silentStep(state) : one(state, { reasoning_content: plan });
    }
    case 'tool-call-start':
      return startCall(state, asObject(message?.tool_calls));
    case 'tool-call-delta':
      return addArguments(state, asWords(asObject(asObject(message?.tool_calls)?.function)?.arguments));
    case 'tool-call-end':
      return state.hasArguments ? silentStep(state) : addArguments(state, '{}');
    case 'citation-start': {
      const annotations = readCohereCitation(message?.citations);
      return annotations.length === 0 ? silentStep(state) : one(state, { annotations });
    }
    case 'message-end':
      return finish(state, delta ?? {});
    default:
      // An error has no type here, only a message.
      return isFailureObject(body, body.type !== undefined)
        ? failedStep(state, failureInObject(body))
        : silentStep(state);
  }
}

function one(state: CohereStreamState, delta: ChunkDelta): Step {
  return stepOf(state, [deltaChunk(state.head, delta)]);
}

function addContent(state: CohereStreamState, content: JsonObject | undefined): Step {
  const text = asWords(content?.text);
  if (text !== undefined) return one(state, { content: text });
  const thinking = asWords(content?.thinking);
  return thinking === undefined ? silentStep(state) : one(state, { reasoning_content: thinking });
}

function startCall(state: CohereStreamState, call: JsonObject | undefined): Step {
  const called = asObject(call?.function);
  const index = state.calls;
  const text = asText(called?.arguments) ?? '';
  state.calls += 1;
  state.hasArguments = text !== '';
  return one(state, {
    tool_calls: [
      {
        index,
        id: asWords(call?.id) ?? callId(state.head.id, index),
        type: 'function',
        function: { name: asText(called?.name) ?? '', arguments: text },
      },
    ],
  });
}

function addArguments(state: CohereStreamState, text: string | undefined): Step {
  if (text === undefined || state.calls === 0) return silentStep(state);
  state.hasArguments = true;
  return one(state, { tool_calls: [{ index: state.calls - 1, function: { arguments: text } }] });
}

function finish(state: CohereStreamState, delta: JsonObject): Step {
  if (asWords(delta.finish_reason) === undefined && asWords(delta.error) === undefined) return lastStep(state);
  const reason = cohereFinish(delta.finish_reason, state.calls, asWords(delta.error));
  if (typeof reason !== 'string') return failedStep(state, reason);
  const usage = cohereUsage(delta.usage);
  const last = deltaChunk(state.head, {}, reason);
  return lastStep(state, usage === undefined ? [last] : [last, usageChunk(state.head, usage)]);
}

const TAKEN = takenFields(
  ...['max_tokens', 'max_completion_tokens', 'temperature', 'top_p', 'stop', 'seed', 'presence_penalty'],
  ...['frequency_penalty', 'tools', 'tool_choice', 'response_format', 'reasoning_effort'],
);

const BUDGETS: ReadonlyMap<string, number> = new Map([
  ['minimal', 1024],
  ['low', 2048],
  ['medium', 8192],
  ['high', 16_384],
  ['xhigh', 31_000],
]);

function encodeCohereRequest(request: ChatRequest, context: DialectContext): UpstreamRequest {
  const { names, extra, steps } = startTranslation(request, TAKEN);
  // Cohere has it, too.
  names.delete(DETAIL_FIELD);
  dropCacheMarkers(request, names);
  const use = readTools(request, steps);
  for (const name of use.dropped) names.add(name);
  const limit = maxTokens(request);
  const stop = stopSequences(request);
  const most = topK(request);
  const { top_k: _, ...own } = extra;
  const schema = answerSchema(request);
  const wantsJson = request.response_format?.type === 'json_object' || schema !== undefined;
  // A model of Cohere's either calls functions or answers in JSON.
  const isJson = wantsJson && use.functions.length === 0;
  if (wantsJson && !isJson) names.add('response_format');
  const { temperature, seed } = request;
  const body: JsonObject = {
    model: context.model,
    messages: plainResults(request.messages).map((message) => encodeMessage(message, names, steps)),
    ...(context.stream && { stream: true }),
    ...(limit !== undefined && { max_tokens: limit }),
    ...(typeof temperature === 'number' && { temperature }),
    ...encodeTopP(request),
    ...(most !== undefined && { k: most }),
    ...(typeof seed === 'number' && { seed }),
    ...(stop !== undefined && { stop_sequences: stop }),
    ...encodePenalties(request, names),
    ...encodeTools(use, names),
    ...(isJson && {
      response_format: { type: 'json_object', ...(schema !== undefined && { json_schema: schema.schema }) },
    }),
    ...encodeThinking(request, context, names),
    ...own,
  };
  return { path: '/chat', headers: {}, body, dropped: [...names] };
}

/** Encodes a message, which has OpenAI's form. Reasoning before calls becomes Cohere's plan; other reasoning is left out. */
function encodeMessage(message: ChatMessage, dropped: Set<string>, steps: Steps): JsonObject {
  const { role, tool_calls: calls, tool_call_id: callId, reasoning_content: reasoning } = message;
  steps.take(1 + (Array.isArray(message.content) ? message.content.length : 0) + (calls?.length ?? 0));
  const content = encodeContent(message, dropped);
  const hasCalls = calls !== undefined && calls.length > 0;
  return {
    role: role === 'developer' ? 'system' : role,
    ...(content !== undefined && { content }),
    ...(hasCalls && {
      tool_calls: calls.map((call) => {
        const { id, type, function: called } = asFunctionCall(call);
        return { id, type, function: { ...called, arguments: called.arguments || '{}' } };
      }),
    }),
    ...(hasCalls && typeof reasoning === 'string' && reasoning !== '' && { tool_plan: reasoning }),
    ...(callId !== undefined && { tool_call_id: callId }),
  };
}

function encodeContent({ content, role, tool_calls: calls }: ChatMessage, dropped: Set<string>): unknown {
  if (typeof content === 'string') return content === '' && calls !== undefined ? undefined : content;
  const items = readContent(content);
  if (items.length === 0) return calls === undefined ? '' : undefined;
  const pieces = items.flatMap((item): JsonObject[] => {
    if (item.kind === 'text') return [{ type: 'text', text: item.text }];
    if (item.kind !== 'unknown' && item.field === 'image_url' && role === 'user') {
      const url = item.kind === 'link' ? item.url : `data:${item.mediaType};base64,${item.base64}`;
      return [{ type: 'image_url', image_url: { url, ...(item.detail !== undefined && { detail: item.detail }) } }];
    }
    dropped.add(droppedPiece(item));
    return [];
  });
  return pieces;
}

/** Leaves out a `top_p` of 1, which is the default, because Cohere's `p` must be below 1. */
function encodeTopP({ top_p: topP }: ChatRequest): JsonObject {
  return typeof topP === 'number' && topP < 1 ? { p: Math.min(0.99, Math.max(0.01, topP)) } : {};
}

/** Limits penalties to Cohere's range from 0 to 1. */
function encodePenalties(request: ChatRequest, dropped: Set<string>): JsonObject {
  const penalties: JsonObject = {};
  for (const name of ['presence_penalty', 'frequency_penalty'] as const) {
    const value = request[name] ?? 0;
    if (value > 0) penalties[name] = Math.min(1, value);
    else if (value < 0) dropped.add(name);
  }
  return penalties;
}

/** Encodes tools. If one function must be called, only that function is offered. */
function encodeTools({ functions, choice }: ToolUse, dropped: Set<string>): JsonObject {
  const offered = typeof choice === 'object' ? functions.filter(({ name }) => name === choice.name) : functions;
  if (offered.length === 0) return {};
  const tools = offered.map(({ name, description, parameters }) => ({
    type: 'function',
    function: {
      name,
      ...(description !== undefined && { description }),
      parameters: { type: 'object', ...parameters },
    },
  }));
  const isStrict = offered.every(({ strict }) => strict === true);
  if (!isStrict && offered.some(({ strict }) => strict === true)) dropped.add(STRICT_FIELD);
  return {
    tools,
    ...(isStrict && { strict_tools: true }),
    ...(choice === 'none' && { tool_choice: 'NONE' }),
    ...((choice === 'required' || typeof choice === 'object') && { tool_choice: 'REQUIRED' }),
  };
}

function encodeThinking(
  { reasoning_effort: effort }: ChatRequest,
  context: DialectContext,
  dropped: Set<string>,
): JsonObject {
  if (effort === null || effort === undefined) return {};
  if (thinkingOf(context)?.style !== 'budget') {
    if (effort !== 'none') dropped.add('reasoning_effort');
    return {};
  }
  if (effort === 'none') return { thinking: { type: 'disabled' } };
  const budget = BUDGETS.get(effort);
  return { thinking: { type: 'enabled', ...(budget !== undefined && { token_budget: budget }) } };
}
