import type { ChatMessage, ChatRequest, ContentPart } from '../../contract/chat.ts';
import { cacheMarkers } from '../conversation.ts';
import { countsReasoning, type Dialect, type DialectContext, pathSegment, type UpstreamRequest } from '../dialect.ts';
import { failureInBody } from '../failure.ts';
import type { JsonObject } from '../json-value.ts';
import { asksForSomething, plainResults } from '../request-fields.ts';
import { decodeOpenaiAnswer, decodeOpenaiEvent, type OpenaiStreamState, startOpenaiStream } from './openai-answer.ts';

export const openaiDialect: Dialect<OpenaiStreamState> = {
  name: 'openai',
  framing: 'sse',
  encodeRequest: encodeOpenaiRequest,
  decodeResponse: decodeOpenaiAnswer,
  decodeFailure: failureInBody,
  startStream: startOpenaiStream,
  decodeEvent: decodeOpenaiEvent,
};

/** The newest of the versions that Azure promised to keep; another one stands in the base URL's query. */
const API_VERSION = '2024-10-21';

/**
 * OpenAI's body under Azure's two forms of URL. `.../openai/v1` takes the deployment as the model; everything else is
 * the older form, where the deployment is part of the path.
 */
export const azureDialect: Dialect<OpenaiStreamState> = {
  ...openaiDialect,
  name: 'azure',
  encodeRequest(request, context) {
    const refuses = ['reasoning_content', ...(context.refuses ?? [])];
    const encoded = encodeOpenaiRequest(request, { ...context, refuses });
    return { ...encoded, path: azurePath(context.baseUrl ?? '', context.model, '/chat/completions') };
  },
};

export function azurePath(baseUrl: string, deployment: string, operation: string): string {
  const [base = '', query = ''] = baseUrl.split('?', 2);
  const path = base.replace(/\/{1,4}$/, '');
  if (path.endsWith('/openai/v1')) return operation;
  const version = query.includes('api-version=') ? '' : `?api-version=${API_VERSION}`;
  if (path.includes('/openai/deployments/')) return `${operation}${version}`;
  const root = path.endsWith('/openai') ? '' : '/openai';
  return `${root}/deployments/${pathSegment(deployment)}${operation}${version}`;
}

/** Fields that a request of the Responses API may have, and that many servers of this dialect refuse. */
const ONLY_OPENAI = ['prompt_cache_key', 'prompt_cache_retention', 'verbosity'] as const;
const NOTHING_REFUSED: ReadonlySet<string> = new Set();

/**
 * Passes OpenAI's request on unchanged, except for the fields that this API refuses. `refuses` may also name `developer` (the role
 * becomes `system`) and `reasoning_content` (left out of messages).
 */
function encodeOpenaiRequest(request: ChatRequest, context: DialectContext): UpstreamRequest {
  const refused = context.refuses === undefined ? NOTHING_REFUSED : new Set(context.refuses);
  const dropped: string[] = [];
  const body: JsonObject = { ...request, model: context.model };
  if (context.translated === true) {
    body.messages = plainResults(request.messages);
    // Ours alone: the effort says it here.
    delete body.thinking_budget;
    if (context.servesResponses !== true) {
      for (const name of ONLY_OPENAI) {
        if (body[name] !== undefined) dropped.push(name);
        delete body[name];
      }
    }
  }
  renameLimit(body, refused, countsReasoning(context));
  for (const name of refused) {
    if (body[name] === undefined) continue;
    if (asksForSomething(name, body[name])) dropped.push(name);
    delete body[name];
  }
  const messages = body.messages as readonly ChatMessage[];
  const needsFitting = messages.some((message) => fitMessage(message, refused) !== message);
  if (needsFitting) body.messages = messages.map((message) => fitMessage(message, refused));
  if (context.translated === true && cacheMarkers(request).length > 0) {
    removeCacheMarkers(body);
    dropped.push('cache_control');
  }
  askForUsage(body, request, context);
  return { path: '/chat/completions', headers: {}, body, dropped };
}

/** The limit has two names, and some APIs know only one of them. */
function renameLimit(body: JsonObject, refused: ReadonlySet<string>, counts: boolean): void {
  const needsModern = refused.has('max_tokens') || counts;
  if (!needsModern && !refused.has('max_completion_tokens')) return;
  const [from, to] = needsModern ? ['max_tokens', 'max_completion_tokens'] : ['max_completion_tokens', 'max_tokens'];
  if (refused.has(to) || body[from] === null || body[from] === undefined) return;
  body[to] ??= body[from];
  delete body[from];
}

/** Signatures of reasoning are ours alone: no API of this dialect knows them. */
function fitMessage(message: ChatMessage, refused: ReadonlySet<string>): ChatMessage {
  const role = message.role === 'developer' && refused.has('developer') ? 'system' : message.role;
  const withoutReasoning = message.reasoning_content !== undefined && refused.has('reasoning_content');
  if (role === message.role && message.reasoning_signature === undefined && !withoutReasoning) return message;
  const { reasoning_signature: _, ...rest } = message;
  if (withoutReasoning) delete rest.reasoning_content;
  return { ...rest, role };
}

/** Removes the markers that a caller of another API set: they are unknown here, and some servers refuse them. */
function removeCacheMarkers(body: JsonObject): void {
  const without = (given: object): object => {
    const { cache_control: _, ...rest } = given as JsonObject;
    return rest;
  };
  body.messages = (body.messages as readonly ChatMessage[]).map((message) => ({
    ...without(message),
    ...(Array.isArray(message.content) && { content: joinedTexts(message.content) ?? message.content.map(without) }),
    ...(message.tool_calls !== undefined && { tool_calls: message.tool_calls.map(without) }),
  }));
  if (Array.isArray(body.tools)) body.tools = body.tools.map(without);
}

/** Only the markers kept these texts apart, and many servers take instructions as one text only. */
function joinedTexts(parts: readonly ContentPart[]): string | undefined {
  const texts = parts.flatMap(({ type, text }) => (type === 'text' && text !== undefined ? [text] : []));
  return texts.length === parts.length ? texts.join('\n\n') : undefined;
}

/** Usage is always asked for, since it is metered. */
function askForUsage(body: JsonObject, request: ChatRequest, context: DialectContext): void {
  delete body.stream;
  delete body.stream_options;
  if (!context.stream) return;
  body.stream = true;
  if (context.noStreamOptions !== true) body.stream_options = { ...request.stream_options, include_usage: true };
}
