import { AppError } from '../../platform/errors/app-error.ts';
import type { ChatMessage, ChatRequest, ContentPart } from '../contract/chat.ts';
import { paramOf } from '../contract/read-request.ts';
import { cacheControl } from '../dialects/conversation.ts';

const MAX_NAME_LENGTH = 64;
const MAX_NAMES = 32;
const NOT_IN_A_NAME = /[^\w.-]/g;

/** Returns names for a header. Callers may choose them, so their number, length and characters are limited. */
export function droppedNames(names: Iterable<string>): readonly string[] {
  const clean = [...names].map((name) => name.slice(0, MAX_NAME_LENGTH).replaceAll(NOT_IN_A_NAME, '_'));
  return [...new Set(clean)].filter((name) => name !== '').slice(0, MAX_NAMES);
}

/** Returns the fields of a request that have a value and are not translated. */
export function unknownFields(request: object, known: ReadonlySet<string>): readonly string[] {
  return Object.entries(request)
    .filter(([name, value]) => !known.has(name) && isPresent(value))
    .map(([name]) => name);
}

/** Returns the members of a part of a request that have a value and are not translated: `tools.defer_loading`. */
export function unknownMembers(
  path: string,
  given: object | null | undefined,
  known: readonly string[],
): readonly string[] {
  return Object.entries(given ?? {})
    .filter(([name, value]) => !known.includes(name) && isPresent(value) && value !== false)
    .map(([name]) => `${path}.${name}`);
}

/** Asks for usage in a stream, because it is part of every other dialect's stream. */
export function streamFields({ stream }: { readonly stream?: boolean | null }): Partial<ChatRequest> {
  return stream === true ? { stream: true, stream_options: { include_usage: true } } : {};
}

/** `path` is a JSON pointer: `/input/3/call_id`. */
export function invalidField(path: string, message: string): AppError {
  const param = paramOf(path);
  return new AppError('INVALID_PARAMETER', { message: `Invalid '${param}': it ${message}.`, param });
}

export function requiredText(value: unknown, path: string): string {
  if (typeof value !== 'string') throw invalidField(path, 'must be a string');
  return value;
}

export function isPresent<T>(value: T | null | undefined): value is T {
  return value !== undefined && value !== null;
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Up to so many tokens of thinking are this much effort, for APIs that take no number of them. */
const EFFORT_OF_BUDGET = [
  { upTo: 2048, effort: 'low' },
  { upTo: 8192, effort: 'medium' },
  { upTo: Number.POSITIVE_INFINITY, effort: 'high' },
] as const;

/** How much the caller wants the model to think. Dialects of APIs with a token budget read `thinking_budget`. */
export interface ThinkingWish extends Pick<ChatRequest, 'reasoning_effort'> {
  readonly thinking_budget?: number;
}

export function effortOfBudget(budget: number): ThinkingWish {
  const row = EFFORT_OF_BUDGET.find(({ upTo }) => budget <= upTo);
  return row === undefined ? {} : { reasoning_effort: row.effort, thinking_budget: budget };
}

/** Builds the messages of a chat completion from the pieces of other dialects. */
export interface ConversationBuilder {
  /** `cache`: the marker of Anthropic's cache that the piece has. */
  instruct(text: string, cache?: object): void;
  ask(parts: readonly ContentPart[]): void;
  reason(text: string, signature: string): void;
  say(text: string, cache?: object): void;
  call(id: string, name: string, argumentsText: string, cache?: object): void;
  result(callId: string, parts: readonly ContentPart[], more?: ResultMarks): void;
  /** Refuses a conversation in which nothing is said; `path` is where it should have been. */
  messages(path: string): ChatMessage[];
}

interface ResultMarks {
  readonly cache?: object | undefined;
  /** The call failed. */
  readonly failed?: boolean;
}

type AssistantMessage = ChatMessage & { content: string | null };

/**
 * Chat completions want an assistant's reasoning, text and calls in one message, and the results of its calls right after
 * it. A result may have images and may have failed, as in the other APIs: `plainResults` fits that for chat completions.
 */
export function createConversation(): ConversationBuilder {
  const messages: ChatMessage[] = [];
  let assistant: AssistantMessage | undefined;

  function speaking(): AssistantMessage {
    if (assistant === undefined) {
      assistant = { role: 'assistant', content: null };
      messages.push(assistant);
    }
    return assistant;
  }

  function others(message: ChatMessage): void {
    assistant = undefined;
    messages.push(message);
  }

  return {
    instruct(text, cache) {
      const last = messages.at(-1);
      const part = { type: 'text', text, ...marker(cache) };
      // Many models take instructions only once, at the start.
      if (last?.role !== 'system' || messages.length > 1) {
        others({ role: 'system', content: cache === undefined ? text : [part] });
      } else if (Array.isArray(last.content)) last.content.push(part);
      else if (cache === undefined) last.content = `${String(last.content)}\n\n${text}`;
      else last.content = [{ type: 'text', text: String(last.content) }, part];
    },
    ask(parts) {
      others({
        role: 'user',
        content: parts.every((part) => isPlainText(part) && cacheControl(part) === undefined)
          ? joined(parts)
          : [...parts],
      });
    },
    reason(text, signature) {
      const message = speaking();
      if (text !== '') message.reasoning_content = (message.reasoning_content ?? '') + text;
      if (signature !== '') message.reasoning_signature = (message.reasoning_signature ?? '') + signature;
    },
    say(text, cache) {
      const message = speaking();
      Object.assign(message, marker(cache));
      // Nothing in between: proofs of reasoning count the characters of the text before them.
      message.content = (message.content ?? '') + text;
    },
    call(id, name, argumentsText, cache) {
      const message = speaking();
      message.tool_calls ??= [];
      message.tool_calls.push({
        ...marker(cache),
        id,
        type: 'function',
        function: { name, arguments: argumentsText },
      });
    },
    result(callId, parts, { cache, failed } = {}) {
      assistant = undefined;
      const mark = cache ?? parts.map(cacheControl).find((each) => each !== undefined);
      const content = parts.every(isPlainText) ? joined(parts) : parts.map(withoutMarker);
      const marks = { ...marker(mark), ...(failed === true && { is_error: true }) };
      messages.push({ role: 'tool', tool_call_id: callId, content, ...marks });
    },
    messages(path) {
      if (messages.length === 0) throw invalidField(path, 'must have a message with something in it');
      return messages;
    },
  };
}

function isPlainText({ type, text }: ContentPart): boolean {
  return type === 'text' && text !== undefined;
}

/** The marker stands on the result. */
function withoutMarker(part: ContentPart): ContentPart {
  const { cache_control: _, ...rest } = part as ContentPart & { cache_control?: unknown };
  return rest;
}

function marker(cache: object | undefined): object {
  return cache === undefined ? {} : { cache_control: cache };
}

function joined(parts: readonly ContentPart[]): string {
  return parts.map(({ text }) => text ?? '').join('\n\n');
}
