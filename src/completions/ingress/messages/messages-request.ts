import { createHash } from 'node:crypto';
import type { ChatRequest, ChatTool } from '../../contract/chat.ts';
import type {
  CountTokensRequest,
  InputMessage,
  MessagesBlock,
  MessagesRequest,
  MessagesTool,
} from '../../contract/messages.ts';
import { packHiddenThinking, packThinking } from '../../dialects/anthropic/anthropic-messages.ts';
import { cacheControl } from '../../dialects/content.ts';
import { createSteps } from '../../dialects/dialect.ts';
import {
  type ConversationBuilder,
  createConversation,
  type DecodedRequest,
  droppedNames,
  isPresent,
  requiredText,
  streamFields,
  unknownFields,
} from '../decoded-request.ts';
import { decodePart, decodeResult } from './messages-content.ts';

/** Translated below. Everything else is Anthropic's own: dropped and named. */
const KNOWN: ReadonlySet<string> = new Set([
  ...['model', 'messages', 'system', 'max_tokens', 'stream', 'temperature', 'top_p', 'top_k', 'stop_sequences'],
  ...['tools', 'tool_choice', 'thinking', 'output_config', 'metadata'],
]);
const SAME = ['temperature', 'top_p', 'top_k'] as const;

/** OpenAI refuses longer ids; a digest still distinguishes users, and reveals less about them. */
const MAX_USER_LENGTH = 64;

/** A request of the Messages API as a chat completion. */
export function decodeMessagesRequest(request: MessagesRequest): DecodedRequest {
  const prompt = decodePrompt(request);
  const given: Readonly<Record<string, unknown>> = request;
  const user = request.metadata?.user_id ?? undefined;
  const chat: ChatRequest = {
    ...prompt.chat,
    ...streamFields(request),
    max_completion_tokens: request.max_tokens,
    ...Object.fromEntries(SAME.flatMap((name) => (isPresent(given[name]) ? [[name, given[name]]] : []))),
    ...(isPresent(request.stop_sequences) && request.stop_sequences.length > 0 && { stop: request.stop_sequences }),
    ...(user !== undefined && { user: user.length > MAX_USER_LENGTH ? digest(user) : user }),
  };
  return { chat, dropped: prompt.dropped };
}

/** The part of a request that is read by the model: all that counting tokens needs. */
export function decodePrompt(request: CountTokensRequest): DecodedRequest {
  const conversation = createConversation();
  const dropped = new Set<string>(unknownFields(request, KNOWN));
  const steps = createSteps();
  steps.take((Array.isArray(request.system) ? request.system.length : 0) + (request.tools?.length ?? 0));
  decodeSystem(request.system, conversation);
  for (const [index, message] of request.messages.entries()) {
    steps.take(1 + (typeof message.content === 'string' ? 0 : countBlocks(message.content)));
    decodeMessage(message, `/messages/${index}`, conversation, dropped);
  }
  const tools = (request.tools ?? []).flatMap((tool) => decodeTool(tool, dropped));
  const { tool_choice: choice } = request;
  const chat: ChatRequest = {
    model: request.model,
    messages: conversation.messages('/messages'),
    ...(tools.length > 0 && {
      tools,
      ...(isPresent(choice) && { tool_choice: decodeToolChoice(choice) }),
      ...(choice?.disable_parallel_tool_use === true && { parallel_tool_calls: false }),
    }),
    ...reasoningEffort(request),
    ...answerFormat(request.output_config?.format?.schema),
  };
  return { chat, dropped: droppedNames(dropped) };
}

function decodeSystem(system: CountTokensRequest['system'], conversation: ConversationBuilder): void {
  const blocks = typeof system === 'string' ? [{ type: 'text', text: system }] : (system ?? []);
  for (const [index, block] of blocks.entries()) {
    const text = requiredText(block.text, `/system/${index}/text`);
    if (text !== '') conversation.instruct(text, cacheControl(block));
  }
}

/** Blocks, and the blocks in results. */
function countBlocks(blocks: readonly MessagesBlock[]): number {
  let count = blocks.length;
  for (const { content } of blocks) if (Array.isArray(content)) count += content.length;
  return count;
}

function decodeMessage(
  { role, content }: InputMessage,
  path: string,
  conversation: ConversationBuilder,
  dropped: Set<string>,
): void {
  const blocks: readonly MessagesBlock[] = typeof content === 'string' ? [{ type: 'text', text: content }] : content;
  const at = (index: number) => `${path}/content/${index}`;
  if (role === 'assistant') {
    let written = 0;
    for (const [index, block] of blocks.entries()) {
      decodeAssistant(block, at(index), written, conversation, dropped);
      if (block.type === 'text') written += block.text?.length ?? 0;
    }
    return;
  }
  // Results come first: chat completions want them right after the calls.
  for (const [index, block] of blocks.entries()) {
    if (block.type !== 'tool_result') continue;
    const callId = requiredText(block.tool_use_id, `${at(index)}/tool_use_id`);
    const parts = decodeResult(block.content, block.is_error === true, `${at(index)}/content`);
    conversation.result(callId, parts, cacheControl(block));
  }
  const parts = blocks.flatMap((block, index) => {
    if (block.type === 'tool_result') return [];
    const decoded = decodePart(block, at(index));
    if (decoded === undefined) dropped.add(`messages.${block.type}`);
    return decoded ?? [];
  });
  if (role === 'system') conversation.instruct(parts.map(({ text }) => text ?? '').join('\n\n'));
  else if (parts.length > 0) conversation.ask(parts);
}

function decodeAssistant(
  block: MessagesBlock,
  path: string,
  written: number,
  conversation: ConversationBuilder,
  dropped: Set<string>,
): void {
  switch (block.type) {
    case 'text':
      conversation.say(requiredText(block.text, `${path}/text`), cacheControl(block));
      return;
    case 'thinking':
      conversation.reason(block.thinking ?? '', packedSignature(block, written));
      return;
    case 'redacted_thinking':
      conversation.reason('', packHiddenThinking(written, block.data ?? ''));
      return;
    case 'tool_use': {
      const name = requiredText(block.name, `${path}/name`);
      const id = requiredText(block.id, `${path}/id`);
      conversation.call(id, name, JSON.stringify(block.input ?? {}), cacheControl(block));
      return;
    }
    default:
      dropped.add(`messages.${block.type}`);
  }
}

/** Our own answers have packed proofs, each with its place; what Claude itself gave a client is packed here. */
function packedSignature({ thinking = '', signature = '' }: MessagesBlock, written: number): string {
  return signature.includes(':') ? signature : packThinking(thinking.length, written, signature);
}

/** Tools without a schema of their own are Anthropic's, run by its servers or known to its models only. */
function decodeTool(tool: MessagesTool, dropped: Set<string>): readonly ChatTool[] {
  const { type, name, description, input_schema: parameters, strict } = tool;
  if ((isPresent(type) && type !== 'custom') || parameters === undefined) {
    dropped.add(`tools.${type ?? name}`);
    return [];
  }
  const cache = cacheControl(tool);
  return [
    {
      ...(cache !== undefined && { cache_control: cache }),
      type: 'function',
      function: {
        name,
        ...(description !== undefined && { description }),
        parameters,
        ...(isPresent(strict) && { strict }),
      },
    },
  ];
}

function decodeToolChoice({
  type,
  name,
}: NonNullable<CountTokensRequest['tool_choice']>): NonNullable<ChatRequest['tool_choice']> {
  if (type === 'tool') return { type: 'function', function: { name: requiredText(name, '/tool_choice/name') } };
  return type === 'any' ? 'required' : type;
}

/** Up to so many tokens of thinking are this much effort. */
const EFFORT_OF_BUDGET = [
  { upTo: 2048, effort: 'low' },
  { upTo: 8192, effort: 'medium' },
  { upTo: Number.POSITIVE_INFINITY, effort: 'high' },
] as const;

function reasoningEffort({
  thinking,
  output_config: output,
}: CountTokensRequest): Pick<ChatRequest, 'reasoning_effort'> {
  if (thinking?.type === 'disabled') return {};
  if (isPresent(output?.effort)) return { reasoning_effort: output.effort };
  const budget = thinking?.budget_tokens;
  if (budget === undefined) return {};
  const row = EFFORT_OF_BUDGET.find(({ upTo }) => budget <= upTo);
  return row === undefined ? {} : { reasoning_effort: row.effort };
}

function answerFormat(schema: object | undefined): Pick<ChatRequest, 'response_format'> {
  if (schema === undefined) return {};
  return { response_format: { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } } };
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
