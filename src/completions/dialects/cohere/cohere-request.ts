import type { ChatMessage, ChatRequest } from '../../contract/chat.ts';
import { droppedPiece, readContent } from '../content.ts';
import { asFunctionCall, cacheMarkers, nameLostMembers } from '../conversation.ts';
import { createSteps, type DialectContext, type Steps, type UpstreamRequest } from '../dialect.ts';
import type { JsonObject } from '../json-value.ts';
import {
  answerSchema,
  maxTokens,
  readTools,
  sortFields,
  stopSequences,
  type ToolUse,
  takenFields,
} from '../request-fields.ts';

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

export function encodeCohereRequest(request: ChatRequest, context: DialectContext): UpstreamRequest {
  const { dropped, extra } = sortFields(request, TAKEN);
  const names = new Set(dropped);
  nameLostMembers(request.messages, names);
  if (cacheMarkers(request).length > 0) names.add('cache_control');
  const steps = createSteps();
  const use = readTools(request, steps);
  for (const name of use.dropped) names.add(name);
  const limit = maxTokens(request);
  const stop = stopSequences(request);
  const schema = answerSchema(request);
  const wantsJson = request.response_format?.type === 'json_object' || schema !== undefined;
  // A model of Cohere's either calls functions or answers in JSON.
  const isJson = wantsJson && use.functions.length === 0;
  if (wantsJson && !isJson) names.add('response_format');
  const { temperature, seed } = request;
  const body: JsonObject = {
    model: context.model,
    messages: request.messages.map((message) => encodeMessage(message, names, steps)),
    ...(context.stream && { stream: true }),
    ...(limit !== undefined && { max_tokens: limit }),
    ...(typeof temperature === 'number' && { temperature }),
    ...encodeTopP(request),
    ...(typeof seed === 'number' && { seed }),
    ...(stop !== undefined && { stop_sequences: stop }),
    ...encodePenalties(request, names),
    ...encodeTools(use),
    ...(isJson && {
      response_format: { type: 'json_object', ...(schema !== undefined && { json_schema: schema.schema }) },
    }),
    ...encodeThinking(request, context.model, names),
    ...extra,
  };
  return { path: '/chat', headers: {}, body, dropped: [...names] };
}

/** Messages are OpenAI's, but for reasoning: before calls it is Cohere's plan, and elsewhere it has no place. */
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
        return { id, type, function: called };
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
      return [{ type: 'image_url', image_url: { url } }];
    }
    dropped.add(droppedPiece(item));
    return [];
  });
  return pieces;
}

/** Cohere's `p` ends just before 1, which is its meaning when it is not given. */
function encodeTopP({ top_p: topP }: ChatRequest): JsonObject {
  return typeof topP === 'number' && topP < 1 ? { p: Math.min(0.99, Math.max(0.01, topP)) } : {};
}

/** They go from 0 to 1 here. */
function encodePenalties(request: ChatRequest, dropped: Set<string>): JsonObject {
  const penalties: JsonObject = {};
  for (const name of ['presence_penalty', 'frequency_penalty'] as const) {
    const value = request[name] ?? 0;
    if (value > 0) penalties[name] = Math.min(1, value);
    else if (value < 0) dropped.add(name);
  }
  return penalties;
}

/** One function that must be called is the only one that is offered. */
function encodeTools({ functions, choice }: ToolUse): JsonObject {
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
  return {
    tools,
    ...(isStrict && { strict_tools: true }),
    ...(choice === 'none' && { tool_choice: 'NONE' }),
    ...((choice === 'required' || typeof choice === 'object') && { tool_choice: 'REQUIRED' }),
  };
}

function encodeThinking({ reasoning_effort: effort }: ChatRequest, model: string, dropped: Set<string>): JsonObject {
  if (effort === null || effort === undefined) return {};
  if (!model.includes('reasoning')) {
    if (effort !== 'none') dropped.add('reasoning_effort');
    return {};
  }
  if (effort === 'none') return { thinking: { type: 'disabled' } };
  const budget = BUDGETS.get(effort);
  return { thinking: { type: 'enabled', ...(budget !== undefined && { token_budget: budget }) } };
}
