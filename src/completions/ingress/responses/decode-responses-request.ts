import { AppError } from '../../../platform/errors/app-error.ts';
import type { ChatRequest } from '../../contract/chat.ts';
import type { ResponsesRequest, ResponsesTool } from '../../contract/responses.ts';
import { createSteps } from '../../dialects/steps.ts';
import { type DecodedRequest, droppedNames, isPresent, streamFields, unknownFields } from '../decoded-request.ts';
import { decodeInput } from './decode-input.ts';
import { type ToolTranslation, translateTools } from './responses-tools.ts';

export interface DecodedResponsesRequest extends DecodedRequest {
  readonly tools: ToolTranslation;
}

/** Translated below, or of no consequence because of what they are. Everything else is dropped and named. */
const KNOWN: ReadonlySet<string> = new Set([
  ...['model', 'input', 'instructions', 'stream', 'stream_options', 'max_output_tokens', 'temperature', 'top_p'],
  ...['tools', 'tool_choice', 'parallel_tool_calls', 'text', 'reasoning', 'metadata', 'store', 'include', 'user'],
  ...[
    'safety_identifier',
    'service_tier',
    'background',
    'truncation',
    'previous_response_id',
    'conversation',
    'prompt',
  ],
]);

/** Fields that chat completions have under the same name. */
const SAME = ['temperature', 'top_p', 'user', 'safety_identifier', 'service_tier'] as const;

/** What refers to something that OpenAI keeps and we do not: leaving it out would change what is asked. */
const STORED = ['previous_response_id', 'conversation', 'prompt'] as const;

/** A request of the Responses API as a chat completion. */
export function decodeResponsesRequest(request: ResponsesRequest): DecodedResponsesRequest {
  const given: Readonly<Record<string, unknown>> = request;
  for (const field of STORED) {
    if (isPresent(given[field])) throw new AppError('NOTHING_STORED', { field, issues: [{ path: `/${field}` }] });
  }
  if (given.background === true) {
    throw new AppError('NOTHING_STORED', { field: 'background', issues: [{ path: '/background' }] });
  }
  const steps = createSteps();
  const tools = translateTools([...(request.tools ?? []), ...additionalTools(request.input)], steps);
  const { messages, dropped } = decodeInput(request.input, request.instructions ?? '', tools, steps);
  const choice = decodeToolChoice(request.tool_choice, tools);
  const chat: ChatRequest = {
    model: request.model,
    messages,
    ...streamFields(request),
    ...Object.fromEntries(SAME.flatMap((name) => (isPresent(given[name]) ? [[name, given[name]]] : []))),
    ...(isPresent(request.max_output_tokens) && { max_completion_tokens: request.max_output_tokens }),
    ...(tools.tools.length > 0 && {
      tools: [...tools.tools],
      ...(choice.choice !== undefined && { tool_choice: choice.choice }),
      ...(isPresent(request.parallel_tool_calls) && { parallel_tool_calls: request.parallel_tool_calls }),
    }),
    ...answerFormat(request.text?.format),
    ...(isPresent(request.reasoning?.effort) && { reasoning_effort: request.reasoning.effort }),
  };
  const lost = [...unknownFields(request, KNOWN), ...withoutEffect(request), ...tools.dropped, ...choice.dropped];
  return { chat, tools, dropped: droppedNames([...lost, ...dropped]) };
}

/** Some clients give their tools among the items of the conversation. */
function additionalTools(input: ResponsesRequest['input']): readonly ResponsesTool[] {
  if (typeof input === 'string') return [];
  return input.flatMap(({ type, tools }) => (type === 'additional_tools' ? (tools ?? []) : []));
}

/** Known fields whose value asks for more than we do. */
function withoutEffect(request: ResponsesRequest): readonly string[] {
  const { truncation } = request as { truncation?: unknown };
  const includes = (request.include ?? []).filter((name) => name !== 'reasoning.encrypted_content');
  return [
    ...(request.store === true ? ['store'] : []),
    ...(isPresent(request.text?.verbosity) ? ['text.verbosity'] : []),
    ...(isPresent(truncation) && truncation !== 'disabled' ? ['truncation'] : []),
    ...includes.map((name) => `include.${name}`),
  ];
}

function decodeToolChoice(
  choice: ResponsesRequest['tool_choice'],
  tools: ToolTranslation,
): { readonly choice?: NonNullable<ChatRequest['tool_choice']>; readonly dropped: readonly string[] } {
  if (!isPresent(choice)) return { dropped: [] };
  if (typeof choice === 'string') return { choice, dropped: [] };
  const { type, name } = choice;
  if ((type === 'function' || type === 'custom') && name !== undefined) {
    return { choice: { type: 'function', function: { name: tools.chatName(undefined, name) } }, dropped: [] };
  }
  const { mode } = choice as { mode?: unknown };
  return {
    ...(type === 'allowed_tools' && (mode === 'auto' || mode === 'required') && { choice: mode }),
    dropped: [`tool_choice.${type}`],
  };
}

type TextFormat = NonNullable<ResponsesRequest['text']>['format'];

function answerFormat(format: TextFormat): Pick<ChatRequest, 'response_format'> {
  if (!isPresent(format) || format.type === 'text') return {};
  if (format.type !== 'json_schema') return { response_format: { type: format.type } };
  const { name, schema, strict } = format;
  return {
    response_format: {
      type: 'json_schema',
      json_schema: {
        ...(name !== undefined && { name }),
        ...(schema !== undefined && { schema }),
        ...(isPresent(strict) && { strict }),
      },
    },
  };
}
