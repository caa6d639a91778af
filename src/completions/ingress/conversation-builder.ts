import type { ChatMessage, ContentPart } from '../contract/chat.ts';
import { cacheControl } from '../dialects/content.ts';
import { invalidField } from './decoded-request.ts';

/** Builds the messages of a chat completion out of the finer pieces of other dialects. */
export interface ConversationBuilder {
  /** `cache`: the marker of Anthropic's cache that the piece has. */
  instruct(text: string, cache?: object): void;
  ask(parts: readonly ContentPart[]): void;
  reason(text: string, signature: string): void;
  say(text: string, cache?: object): void;
  call(id: string, name: string, argumentsText: string, cache?: object): void;
  result(callId: string, parts: readonly ContentPart[], cache?: object): void;
  /** Refuses a conversation in which nothing is said; `path` is where it should have been. */
  messages(path: string): ChatMessage[];
}

type AssistantMessage = ChatMessage & { content: string | null };

const SEE_BELOW = 'The result is attached below.';

/**
 * Chat completions want an assistant's reasoning, text and calls in one message, the results of its calls right after
 * it, and only text in results: images that a tool gave follow in a message of the user's.
 */
export function createConversation(): ConversationBuilder {
  const messages: ChatMessage[] = [];
  let assistant: AssistantMessage | undefined;
  let attachments: ContentPart[] = [];

  function endResults(): void {
    if (attachments.length === 0) return;
    const content = attachments;
    attachments = [];
    messages.push({ role: 'user', content });
  }

  function speaking(): AssistantMessage {
    endResults();
    if (assistant === undefined) {
      assistant = { role: 'assistant', content: null };
      messages.push(assistant);
    }
    return assistant;
  }

  function others(message: ChatMessage): void {
    assistant = undefined;
    endResults();
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
    result(callId, parts, cache) {
      assistant = undefined;
      const texts = parts.filter(isPlainText);
      const rest = parts.filter((part) => !isPlainText(part));
      const content = texts.length === 0 && rest.length > 0 ? SEE_BELOW : joined(texts);
      const mark = cache ?? texts.map(cacheControl).find((each) => each !== undefined);
      messages.push({ role: 'tool', tool_call_id: callId, content, ...marker(mark) });
      for (const part of rest) attachments.push(part);
    },
    messages(path) {
      endResults();
      if (messages.length === 0) throw invalidField(path, 'must have a message with something in it');
      return messages;
    },
  };
}

function isPlainText({ type, text }: ContentPart): boolean {
  return type === 'text' && text !== undefined;
}

function marker(cache: object | undefined): object {
  return cache === undefined ? {} : { cache_control: cache };
}

function joined(parts: readonly ContentPart[]): string {
  return parts.map(({ text }) => text ?? '').join('\n\n');
}
