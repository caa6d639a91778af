import { parseJson } from '../../platform/json/parse-json.ts';
import type { ChatMessage, ToolCall } from '../contract/chat.ts';
import { type ContentItem, readContent, type TextItem, textItems } from './content.ts';
import { asObject, type JsonObject } from './json-value.ts';
import type { Steps } from './steps.ts';

export type TurnItem =
  | ContentItem
  | { readonly kind: 'reasoning'; readonly text: string; readonly signature: string }
  | { readonly kind: 'call'; readonly call: ToolCall }
  | {
      readonly kind: 'result';
      readonly callId: string;
      /** Of the function that was called; empty when no such call is in the conversation. */
      readonly name: string;
      readonly content: readonly ContentItem[];
    };

export interface Turn {
  readonly role: 'user' | 'assistant';
  readonly items: TurnItem[];
}

/**
 * OpenAI's messages as the other APIs want them: instructions apart, turns that alternate, and the results of calls
 * inside the user's turn.
 */
export interface Conversation {
  readonly system: readonly TextItem[];
  readonly turns: readonly Turn[];
  /** Names of the functions that were called so far. */
  readonly calledNames: ReadonlySet<string>;
}

export function readConversation(messages: readonly ChatMessage[], steps: Steps): Conversation {
  const system: TextItem[] = [];
  const turns: Turn[] = [];
  const names = new Map<string, string>();
  const add = (role: Turn['role'], items: readonly TurnItem[]): void => {
    if (items.length === 0) return;
    const last = turns.at(-1);
    if (last?.role === role) for (const item of items) last.items.push(item);
    else turns.push({ role, items: [...items] });
  };
  for (const message of messages) {
    steps.take(1 + (Array.isArray(message.content) ? message.content.length : 0) + (message.tool_calls?.length ?? 0));
    if (message.role === 'system' || message.role === 'developer') {
      for (const item of withCache(textItems(message.content), message)) system.push(item);
    } else if (message.role === 'assistant') {
      for (const { id, function: called } of message.tool_calls ?? []) names.set(id, called.name);
      add('assistant', assistantItems(message));
    } else if (message.role === 'tool') {
      const callId = message.tool_call_id ?? '';
      const name = names.get(callId) ?? message.name ?? '';
      add('user', [{ kind: 'result', callId, name, content: readContent(message.content) }]);
    } else {
      add('user', withCache(readContent(message.content), message));
    }
  }
  return { ...letUserBegin(system, turns), calledNames: new Set(names.values()) };
}

/**
 * The other APIs refuse a conversation in which nobody speaks, or in which the model speaks first: instructions alone
 * become the user's question, and a full stop goes before the model's first turn.
 */
function letUserBegin(system: readonly TextItem[], turns: readonly Turn[]): Pick<Conversation, 'system' | 'turns'> {
  const [first] = turns;
  if (first === undefined) return { system: [], turns: [{ role: 'user', items: [...system] }] };
  if (first.role === 'user') return { system, turns };
  return { system, turns: [{ role: 'user', items: [{ kind: 'text', text: '.' }] }, ...turns] };
}

/** A marker of the cache beside the content holds for all of it: it goes to the last piece. */
function withCache<Item extends ContentItem>(items: readonly Item[], message: ChatMessage): readonly Item[] {
  const cache = asObject((message as JsonObject).cache_control);
  const last = items.at(-1);
  if (cache === undefined || last === undefined || last.kind === 'unknown') return items;
  return [...items.slice(0, -1), { ...last, cache }];
}

/** Members of a message, other than those of tools, that no other API has. */
const ONLY_OPENAI = ['name', 'refusal', 'audio'] as const;

/** Adds the members of messages that another API cannot take to what is dropped: `messages.name`. */
export function nameLostMembers(messages: readonly ChatMessage[], dropped: Set<string>): void {
  for (const message of messages) {
    if (message.role === 'tool' || message.role === 'function') continue;
    const given: JsonObject = message;
    for (const name of ONLY_OPENAI) {
      if (given[name] !== undefined && given[name] !== null && given[name] !== '') dropped.add(`messages.${name}`);
    }
  }
}

function assistantItems(message: ChatMessage): readonly TurnItem[] {
  const reasoning = message.reasoning_content ?? '';
  const signature = message.reasoning_signature ?? '';
  return [
    ...(reasoning === '' && signature === ''
      ? []
      : [{ kind: 'reasoning', text: reasoning, signature } satisfies TurnItem]),
    ...withCache(readContent(message.content), message),
    ...(message.tool_calls ?? []).map((call): TurnItem => ({ kind: 'call', call })),
  ];
}

/** Arguments as an object, which the other APIs insist on. What a model garbled is kept as text. */
export function callArguments({ function: { arguments: text } }: ToolCall): JsonObject {
  if (text.trim() === '') return {};
  try {
    const value = parseJson(text);
    return asObject(value) ?? { arguments: value };
  } catch {
    return { arguments: text };
  }
}
