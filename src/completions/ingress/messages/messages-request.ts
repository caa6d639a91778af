import { createHash } from 'node:crypto';
import type { ChatRequest, ChatTool, ContentPart } from '../../contract/chat.ts';
import type {
  CountTokensRequest,
  InputMessage,
  MessagesBlock,
  MessagesRequest,
  MessagesTool,
} from '../../contract/messages.ts';
import { packHiddenThinking, packThinking, readProofs } from '../../dialects/anthropic/anthropic-messages.ts';
import { isForeignCitation } from '../../dialects/citations.ts';
import { cacheControl } from '../../dialects/conversation.ts';
import { createSteps, type Reference, type Steps } from '../../dialects/dialect.ts';
import type { DecodedRequest } from '../../operations/chat-pipeline.ts';
import {
  type ConversationBuilder,
  createConversation,
  droppedNames,
  effortOfBudget,
  invalidField,
  isPresent,
  isRecord,
  requiredText,
  streamFields,
  unknownFields,
  unknownMembers,
} from '../decoded-request.ts';

/** Translated below. Everything else is Anthropic's own: dropped and named. */
const KNOWN: ReadonlySet<string> = new Set([
  ...['model', 'messages', 'system', 'max_tokens', 'stream', 'temperature', 'top_p', 'top_k', 'stop_sequences'],
  ...['tools', 'tool_choice', 'thinking', 'output_config', 'metadata'],
]);
const SAME = ['temperature', 'top_p', 'top_k'] as const;
const TOOL_MEMBERS = ['type', 'name', 'description', 'input_schema', 'strict', 'cache_control'];

/** As many as chat completions have. */
const MAX_STOPS = 4;
/** OpenAI refuses longer ids; a digest still distinguishes users, and reveals less about them. */
const MAX_USER_LENGTH = 64;

/** A request of the Messages API as a chat completion. */
export function decodeMessagesRequest(request: MessagesRequest): DecodedRequest {
  const prompt = decodePrompt(request);
  const stops = request.stop_sequences ?? [];
  if (stops.length > MAX_STOPS) throw invalidField('/stop_sequences', `has more than ${MAX_STOPS} items`);
  const given: Readonly<Record<string, unknown>> = request;
  const user = request.metadata?.user_id ?? undefined;
  const chat: ChatRequest = {
    ...prompt.chat,
    ...streamFields(request),
    max_completion_tokens: request.max_tokens,
    ...Object.fromEntries(SAME.flatMap((name) => (isPresent(given[name]) ? [[name, given[name]]] : []))),
    ...(stops.length > 0 && { stop: stops }),
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
  const tools = (request.tools ?? []).flatMap((tool, index) => decodeTool(tool, `/tools/${index}`, dropped));
  const { tool_choice: choice } = request;
  for (const name of unknownMembers('output_config', request.output_config, ['effort', 'format'])) dropped.add(name);
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
      nameLost(block, dropped);
    }
    return;
  }
  // Results come first: chat completions want them right after the calls.
  for (const [index, block] of blocks.entries()) {
    if (block.type !== 'tool_result') continue;
    const callId = requiredText(block.tool_use_id, `${at(index)}/tool_use_id`);
    const parts = decodeResult(block.content, `${at(index)}/content`);
    conversation.result(callId, parts, { cache: cacheControl(block), failed: block.is_error === true });
  }
  const parts = blocks.flatMap((block, index) => {
    if (block.type === 'tool_result') return [];
    nameLost(block, dropped);
    const decoded = decodePart(block, at(index));
    if (decoded === undefined) dropped.add(`messages.${block.type}`);
    return decoded ?? [];
  });
  if (role === 'system') {
    const texts = parts.flatMap(({ text }) => text ?? []);
    for (const { type, text } of parts) if (text === undefined) dropped.add(`messages.content.${type}`);
    if (texts.length > 0) conversation.instruct(texts.join('\n\n'));
  } else if (parts.length > 0) conversation.ask(parts);
}

/** Members of blocks that only Claude knows: sources that an answer quotes, and what is said of a document. */
function nameLost(block: MessagesBlock, dropped: Set<string>): void {
  const { citations, context } = block as { citations?: unknown; context?: unknown };
  const quotes = Array.isArray(citations) ? citations.length > 0 : isRecord(citations) && citations.enabled === true;
  if (quotes) dropped.add('messages.citations');
  if (block.type === 'document' && isPresent(context)) dropped.add('messages.document.context');
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

/**
 * The request with Claude's own proofs, where the caller holds proofs that we packed: in translated answers, and in answers of
 * the first release. Undefined when there are none, which is usual. Thinking and sources of other makers are left out.
 */
export function withOwnProofs(request: MessagesRequest): MessagesRequest | undefined {
  const isForeign = (block: MessagesBlock) => isPacked(block) || hasForeignCitation(block);
  if (!request.messages.some(({ content }) => typeof content !== 'string' && content.some(isForeign))) return undefined;
  const steps = createSteps();
  const messages = request.messages.map((message) =>
    typeof message.content === 'string'
      ? message
      : { ...message, content: message.content.flatMap((block) => ownBlocks(block, steps)) },
  );
  return { ...request, messages };
}

function ownBlocks(block: MessagesBlock, steps: Steps): readonly MessagesBlock[] {
  if (isPacked(block)) return unpack(block, steps);
  if (!hasForeignCitation(block)) return [block];
  const { citations, ...rest } = block as MessagesBlock & { readonly citations: readonly unknown[] };
  const own = citations.filter((each) => !isForeignCitation(each));
  // Sources that came late are in a block without text, which Claude refuses.
  return rest.text === '' ? [] : [{ ...rest, ...(own.length > 0 && { citations: own }) } as MessagesBlock];
}

function hasForeignCitation(block: MessagesBlock): boolean {
  const { citations } = block as { readonly citations?: unknown };
  return Array.isArray(citations) && citations.some(isForeignCitation);
}

/** What a request names that the API keeps: a container, uploaded skills, and files in blocks and in the results of tools. */
export function storedInMessages(request: MessagesRequest): readonly Reference[] {
  const { container } = request as { container?: unknown };
  const found: Reference[] = [];
  const note = (id: unknown, path: string) => {
    if (typeof id === 'string') found.push({ id, path });
  };
  const lookAt = (blocks: unknown, path: string): void => {
    if (!Array.isArray(blocks)) return;
    for (const [index, block] of blocks.entries()) {
      if (!isRecord(block)) continue;
      const { type, source, content, file_id: uploaded } = block;
      if (isRecord(source) && source.type === 'file') note(source.file_id, `${path}/${index}/source/file_id`);
      if (type === 'container_upload') note(uploaded, `${path}/${index}/file_id`);
      if (type === 'tool_result') lookAt(content, `${path}/${index}/content`);
    }
  };
  const { id, skills } = isRecord(container) ? container : { id: container };
  note(id, '/container');
  for (const [index, skill] of (Array.isArray(skills) ? skills : []).entries()) {
    // Those of Anthropic itself are for everybody.
    if (isRecord(skill) && skill.type === 'custom') note(skill.skill_id, `/container/skills/${index}/skill_id`);
  }
  lookAt(request.system, '/system');
  for (const [index, { content }] of request.messages.entries()) lookAt(content, `/messages/${index}/content`);
  return found;
}

function isPacked({ type, signature }: MessagesBlock): boolean {
  return type === 'thinking' && signature?.includes(':') === true;
}

function unpack({ thinking = '', signature = '' }: MessagesBlock, steps: Steps): readonly MessagesBlock[] {
  return readProofs(thinking, signature, steps).map(({ block }) =>
    block.kind === 'hidden'
      ? { type: 'redacted_thinking', data: block.data }
      : { type: 'thinking', thinking: block.thinking, signature: block.signature },
  );
}

/** Tools without a schema of their own are Anthropic's, run by its servers or known to its models only. */
function decodeTool(tool: MessagesTool, path: string, dropped: Set<string>): readonly ChatTool[] {
  const { type, name, description, input_schema: parameters, strict } = tool;
  if ((isPresent(type) && type !== 'custom') || parameters === undefined) {
    dropped.add(`tools.${type ?? name ?? 'custom'}`);
    return [];
  }
  const cache = cacheControl(tool);
  for (const lost of unknownMembers('tools', tool, TOOL_MEMBERS)) dropped.add(lost);
  return [
    {
      ...(cache !== undefined && { cache_control: cache }),
      type: 'function',
      function: {
        name: requiredText(name, `${path}/name`),
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

function reasoningEffort({
  thinking,
  output_config: output,
}: CountTokensRequest): Pick<ChatRequest, 'reasoning_effort'> {
  if (thinking?.type === 'disabled') return {};
  if (isPresent(output?.effort)) return { reasoning_effort: output.effort };
  const budget = thinking?.budget_tokens;
  return budget === undefined ? {} : effortOfBudget(budget);
}

function answerFormat(schema: object | undefined): Pick<ChatRequest, 'response_format'> {
  if (schema === undefined) return {};
  return { response_format: { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } } };
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Decodes text, images and documents, as a user or a tool may send them; undefined for any other kind of block. */
function decodePart(block: MessagesBlock, path: string): readonly ContentPart[] | undefined {
  const parts = decodeBlock(block, path);
  const cache = cacheControl(block);
  const last = parts?.at(-1);
  if (parts === undefined || last === undefined || cache === undefined) return parts;
  return [...parts.slice(0, -1), Object.assign(last, { cache_control: cache })];
}

function decodeBlock(block: MessagesBlock, path: string): readonly ContentPart[] | undefined {
  switch (block.type) {
    case 'text':
      return [{ type: 'text', text: requiredText(block.text, `${path}/text`) }];
    case 'image':
      return [decodeImage(sourceOf(block, path), `${path}/source`)];
    case 'document':
      return decodeDocument(sourceOf(block, path), block.title ?? undefined, `${path}/source`);
    case 'search_result':
      return [{ type: 'text', text: searchResult(block) }];
    default:
      return undefined;
  }
}

/** What a tool gave back: text, or blocks. What no block of ours can hold goes as its JSON. */
function decodeResult(content: unknown, path: string): readonly ContentPart[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : resultBlocks(content, path);
}

function resultBlocks(content: unknown, path: string): readonly ContentPart[] {
  if (content === undefined || content === null) return [{ type: 'text', text: '' }];
  if (!Array.isArray(content)) throw invalidField(path, 'must be a string or an array of blocks');
  return content.flatMap((block: unknown, index) => {
    if (!isRecord(block)) throw invalidField(`${path}/${index}`, 'must be an object');
    const known = typeof block.type === 'string' ? decodePart(block as MessagesBlock, `${path}/${index}`) : undefined;
    return known ?? [{ type: 'text', text: JSON.stringify(block) }];
  });
}

type Source = Readonly<Record<string, unknown>>;

function sourceOf({ source }: MessagesBlock, path: string): Source {
  if (!isRecord(source)) throw invalidField(`${path}/source`, 'must be an object');
  return source;
}

function decodeImage(source: Source, path: string): ContentPart {
  switch (source.type) {
    case 'base64':
      return { type: 'image_url', image_url: { url: dataUrl(source, path) } };
    case 'url':
      return { type: 'image_url', image_url: { url: requiredText(source.url, `${path}/url`) } };
    case 'file':
      return { type: 'file', file: { file_id: requiredText(source.file_id, `${path}/file_id`) } };
    default:
      throw invalidField(`${path}/type`, 'must be "base64", "url" or "file"');
  }
}

function decodeDocument(source: Source, title: string | undefined, path: string): readonly ContentPart[] {
  const filename = title ?? 'document.pdf';
  switch (source.type) {
    case 'base64':
      return [{ type: 'file', file: { file_data: dataUrl(source, path), filename } }];
    case 'url':
      return [{ type: 'file', file: { file_data: requiredText(source.url, `${path}/url`), filename } }];
    case 'file':
      return [{ type: 'file', file: { file_id: requiredText(source.file_id, `${path}/file_id`) } }];
    case 'text':
      return [{ type: 'text', text: titled(title, requiredText(source.data, `${path}/data`)) }];
    case 'content':
      return resultBlocks(typeof source.content === 'string' ? [textBlock(source.content)] : source.content, path);
    default:
      throw invalidField(`${path}/type`, 'must be "base64", "url", "file", "text" or "content"');
  }
}

function dataUrl(source: Source, path: string): string {
  const mediaType = requiredText(source.media_type, `${path}/media_type`);
  return `data:${mediaType};base64,${requiredText(source.data, `${path}/data`)}`;
}

function searchResult({ title, source, content }: MessagesBlock): string {
  const blocks = Array.isArray(content) ? content : [];
  const text = blocks.map((block: unknown) => (isRecord(block) && typeof block.text === 'string' ? block.text : ''));
  return titled([title, source].filter((part) => typeof part === 'string').join(', '), text.join('\n'));
}

function titled(title: string | undefined, text: string): string {
  return title === undefined || title === '' ? text : `${title}\n\n${text}`;
}

function textBlock(text: string): Readonly<Record<string, unknown>> {
  return { type: 'text', text };
}
