import { AppError } from '../../../platform/errors/app-error.ts';
import type { ChatMessage, ChatRequest, ContentPart } from '../../contract/chat.ts';
import type { InputItem, InputPart, ResponsesRequest, ResponsesTool } from '../../contract/responses.ts';
import { customArguments } from '../../dialects/conversation.ts';
import { createSteps, type Reference, type Steps } from '../../dialects/dialect.ts';
import { packReasoning } from '../../dialects/openai/responses-dialect.ts';
import { reasoningItems, referencesIn, STORED_FIELDS, storedInTools } from '../../dialects/openai/responses-request.ts';
import type { DecodedRequest } from '../../operations/chat-pipeline.ts';
import {
  createConversation,
  droppedNames,
  isPresent,
  isRecord,
  requiredText,
  streamFields,
  unknownFields,
  unknownMembers,
} from '../decoded-request.ts';
import { type ToolTranslation, translateTools } from './responses-tools.ts';

interface DecodedResponsesRequest extends DecodedRequest {
  readonly tools: ToolTranslation;
}

/** Fields that are translated below, or that have no effect. All others are dropped and named. */
const KNOWN: ReadonlySet<string> = new Set([
  ...['model', 'input', 'instructions', 'stream', 'stream_options', 'max_output_tokens', 'temperature', 'top_p'],
  ...[
    'tools',
    'tool_choice',
    'parallel_tool_calls',
    'text',
    'reasoning',
    'metadata',
    'store',
    'include',
    'user',
    'top_logprobs',
  ],
  ...[
    'safety_identifier',
    'service_tier',
    'background',
    'truncation',
    'previous_response_id',
    'conversation',
    'prompt',
    'prompt_cache_key',
    'prompt_cache_retention',
  ],
]);

/** Fields that chat completions have under the same name. */
const SAME = [
  ...['temperature', 'top_p', 'user', 'safety_identifier', 'service_tier', 'prompt_cache_key'],
  'prompt_cache_retention',
] as const;

/** A request of the Responses API as a chat completion. */
export function decodeResponsesRequest(request: ResponsesRequest): DecodedResponsesRequest {
  const given: Readonly<Record<string, unknown>> = request;
  // Leaving out what names something that OpenAI keeps and we do not would change what is asked.
  for (const field of STORED_FIELDS) {
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
    ...(isPresent(request.text?.verbosity) && { verbosity: request.text.verbosity }),
    ...(isPresent(request.reasoning?.effort) && { reasoning_effort: request.reasoning.effort }),
    ...logprobs(request),
  };
  const lost = [
    ...unknownFields(request, KNOWN),
    ...unknownMembers('text', request.text, ['format', 'verbosity']),
    ...unknownMembers('reasoning', request.reasoning, ['effort', 'summary', 'generate_summary']),
    ...[...withoutEffect(request), ...tools.dropped, ...choice.dropped],
  ];
  return { chat, tools, dropped: droppedNames([...lost, ...dropped]) };
}

/** What a request names that the API keeps: responses, conversations, prompts, items, files, containers and stores of vectors. */
export function storedInResponses(request: ResponsesRequest): readonly Reference[] {
  const given: Readonly<Record<string, unknown>> = request;
  const found: Reference[] = STORED_FIELDS.flatMap((field) => referencesIn(given[field], `/${field}`));
  const note = (value: unknown, path: string): void => {
    for (const each of referencesIn(value, path)) found.push(each);
  };
  // A response in the background could only be fetched later, which is not offered: no object has this id.
  if (given.background === true) found.push({ id: '', path: '/background' });
  for (const each of storedInTools(request.tools ?? [], '/tools')) found.push(each);
  const items = typeof request.input === 'string' ? [] : request.input;
  for (const [index, item] of items.entries()) {
    const path = `/input/${index}`;
    if (item.type === 'item_reference') note((item as { id?: unknown }).id, `${path}/id`);
    if (Array.isArray(item.tools)) for (const each of storedInTools(item.tools, `${path}/tools`)) found.push(each);
    // The screenshot of a computer.
    if (isRecord(item.output)) note(item.output.file_id, `${path}/output/file_id`);
    for (const parts of [item.content, item.output]) {
      if (!Array.isArray(parts)) continue;
      for (const [place, part] of parts.entries()) {
        if (isRecord(part))
          note(part.file_id, `${path}/${parts === item.output ? 'output' : 'content'}/${place}/file_id`);
      }
    }
  }
  return found;
}

/** Some clients give their tools among the items of the conversation. */
function additionalTools(input: ResponsesRequest['input']): readonly ResponsesTool[] {
  if (typeof input === 'string') return [];
  return input.flatMap(({ type, tools }) => (type === 'additional_tools' ? (tools ?? []) : []));
}

/** Returns known fields whose value has no effect here. */
function withoutEffect(request: ResponsesRequest): readonly string[] {
  const { truncation } = request as { truncation?: unknown };
  const includes = (request.include ?? []).filter(
    (name) => name !== 'reasoning.encrypted_content' && name !== LOGPROBS,
  );
  return [
    ...(request.store === true ? ['store'] : []),
    ...(isPresent(truncation) && truncation !== 'disabled' ? ['truncation'] : []),
    ...includes.map((name) => `include.${name}`),
  ];
}

const LOGPROBS = 'message.output_text.logprobs';

function logprobs({ include, top_logprobs: most }: ResponsesRequest): Pick<ChatRequest, 'logprobs' | 'top_logprobs'> {
  if (include?.includes(LOGPROBS) !== true && !isPresent(most)) return {};
  return { logprobs: true, ...(isPresent(most) && { top_logprobs: most }) };
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
  const { name, schema, strict, description } = format as typeof format & { description?: unknown };
  return {
    response_format: {
      type: 'json_schema',
      json_schema: {
        ...(name !== undefined && { name }),
        ...(typeof description === 'string' && { description }),
        ...(schema !== undefined && { schema }),
        ...(isPresent(strict) && { strict }),
      },
    },
  };
}

interface DecodedInput {
  readonly messages: ChatMessage[];
  /** Items that only mean something to OpenAI's own servers. */
  readonly dropped: readonly string[];
}

/** Items that refer to content stored elsewhere. */
const STORED_ITEMS = new Set(['item_reference', 'compaction', 'compaction_summary', 'context_compaction']);

/** The items of a request as messages: an assistant's reasoning, text and calls are one message in chat completions. */
function decodeInput(
  input: ResponsesRequest['input'],
  instructions: string,
  tools: ToolTranslation,
  steps: Steps,
): DecodedInput {
  const conversation = createConversation();
  const dropped: string[] = [];
  if (instructions !== '') conversation.instruct(instructions);

  function decodeItem(item: InputItem, path: string, before: InputItem | undefined): void {
    steps.take(1 + countOf(item.content) + countOf(item.output) + countOf(item.summary));
    switch (item.type ?? 'message') {
      case 'message':
        decodeMessage(item, path, before?.role === 'assistant');
        return;
      case 'reasoning':
        conversation.reason(reasoningText(item), packedProof(item));
        return;
      case 'function_call':
        conversation.call(callId(item, path), chatName(item, path), requiredText(item.arguments, `${path}/arguments`));
        return;
      case 'custom_tool_call': {
        const text = requiredText(item.input, `${path}/input`);
        conversation.call(callId(item, path), chatName(item, path), customArguments(text));
        return;
      }
      case 'function_call_output':
      case 'custom_tool_call_output':
        conversation.result(callId(item, path), outputParts(item.output, `${path}/output`));
        return;
      case 'additional_tools':
        return;
      default:
        if (STORED_ITEMS.has(item.type ?? '')) {
          throw new AppError('NOTHING_STORED', { field: `an item of type ${item.type}`, issues: [{ path }] });
        }
        dropped.push(`input.${item.type}`);
    }
  }

  function decodeMessage({ role = 'user', content }: InputItem, path: string, afterAnother: boolean): void {
    const parts = typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? []);
    if (parts.some((part) => countOf((part as { annotations?: unknown }).annotations) > 0))
      dropped.push('input.annotations');
    const isUser = role !== 'assistant' && role !== 'system' && role !== 'developer';
    for (const { type, text, refusal } of isUser ? [] : (parts as readonly InputPart[])) {
      if (text === undefined && refusal === undefined) dropped.push(`input.content.${type}`);
    }
    if (role === 'assistant')
      conversation.say((afterAnother ? '\n\n' : '') + parts.map((part) => plainText(part) ?? '').join(''));
    else if (role === 'system' || role === 'developer')
      conversation.instruct(parts.map(plainText).filter(isPresent).join('\n\n'));
    else conversation.ask(parts.map((part, index) => decodePart(part, `${path}/content/${index}`)));
  }

  function chatName({ namespace, name }: InputItem, path: string): string {
    return tools.chatName(namespace ?? undefined, requiredText(name, `${path}/name`));
  }

  if (typeof input === 'string') conversation.ask([{ type: 'text', text: input }]);
  else for (const [index, item] of input.entries()) decodeItem(item, `/input/${index}`, input[index - 1]);
  return { messages: conversation.messages('/input'), dropped };
}

function decodePart(part: InputPart, path: string): ContentPart {
  const { type } = part;
  if (type === 'input_image' || type === 'input_file') return decodeAttachment(part, path);
  if (type === 'input_audio' && part.input_audio !== undefined) return { type, input_audio: part.input_audio };
  return { type: 'text', text: requiredText(part.text ?? part.refusal, `${path}/text`) };
}

function decodeAttachment(part: InputPart, path: string): ContentPart {
  const { image_url: imageUrl, file_id: fileId, filename, detail } = part;
  if (part.type === 'input_image' && typeof imageUrl === 'string') {
    return { type: 'image_url', image_url: { url: imageUrl, ...(typeof detail === 'string' && { detail }) } };
  }
  if (typeof fileId === 'string') return { type: 'file', file: { file_id: fileId } };
  const data = requiredText(
    part.file_data ?? part.file_url,
    `${path}/${part.type === 'input_image' ? 'image_url' : 'file_data'}`,
  );
  return { type: 'file', file: { file_data: data, ...(typeof filename === 'string' && { filename }) } };
}

/** What a tool gave back: text, or parts of text, images and files. */
function outputParts(output: unknown, path: string): readonly ContentPart[] {
  if (!Array.isArray(output)) return [{ type: 'text', text: typeof output === 'string' ? output : jsonText(output) }];
  return output.map((part: unknown, index) => {
    if (!isRecord(part) || typeof part.type !== 'string') return { type: 'text', text: jsonText(part) };
    return part.type === 'input_image' || part.type === 'input_file'
      ? decodeAttachment(part as InputPart, `${path}/${index}`)
      : { type: 'text', text: typeof part.text === 'string' ? part.text : jsonText(part) };
  });
}

function countOf(value: unknown): number {
  return Array.isArray(value) ? value.length : 0;
}

function jsonText(value: unknown): string {
  return JSON.stringify(value) ?? '';
}

function plainText({ text, refusal }: Pick<InputPart, 'text' | 'refusal'>): string | undefined {
  return text ?? refusal;
}

/** Returns the packed proof. Proofs of OpenAI itself are packed here, so that they are not sent to another maker. */
function packedProof(item: InputItem): string {
  const { encrypted_content: proof = '' } = item;
  return proof.includes(':') ? proof : packReasoning(reasoningText(item).length, proof);
}

/**
 * The request with OpenAI's own proofs, where the caller holds proofs that we packed for a translated answer. Undefined when there
 * are none, which is usual. Reasoning of other makers is left out.
 */
export function withOwnReasoning(request: ResponsesRequest): ResponsesRequest | undefined {
  const { input } = request;
  if (typeof input === 'string' || !input.some(isPacked)) return undefined;
  const steps = createSteps();
  const unpack = (item: InputItem) => reasoningItems(reasoningText(item), item.encrypted_content ?? '', steps);
  return { ...request, input: input.flatMap((item): readonly InputItem[] => (isPacked(item) ? unpack(item) : [item])) };
}

function isPacked({ type, encrypted_content: proof }: InputItem): boolean {
  return type === 'reasoning' && proof?.includes(':') === true;
}

/** Returns the text of reasoning: the summary, or `content` for other makers' reasoning. */
function reasoningText({ summary, content }: InputItem): string {
  const parts = summary !== undefined && summary !== null && summary.length > 0 ? summary : content;
  return Array.isArray(parts) ? parts.map(({ text }) => text ?? '').join('') : '';
}

function callId(item: InputItem, path: string): string {
  return requiredText(item.call_id, `${path}/call_id`);
}
