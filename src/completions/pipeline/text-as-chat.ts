import { AppError } from '../../platform/errors/app-error.ts';
import type { ChatChunk, ChatCompletion, ChatRequest } from '../contract/chat.ts';
import type { TextCompletion, TextRequest } from '../contract/operations.ts';

/** A plain completion in terms of chat, for upstreams that know nothing else, and back (contract/completions 1). */
export interface TextAsChat {
  readonly request: ChatRequest;
  /** What a chat has no place for. */
  readonly dropped: readonly string[];
}

const TEXT_ONLY = ['suffix', 'echo', 'best_of', 'logprobs'] as const;

export function textAsChat(text: TextRequest): TextAsChat {
  const { prompt, suffix, echo, best_of, logprobs, ...rest } = text;
  const content = Array.isArray(prompt) && prompt.length === 1 ? prompt[0] : prompt;
  if (typeof content !== 'string') {
    throw new AppError('OPERATION_NOT_SUPPORTED', { operation: 'completions of several prompts or of token numbers' });
  }
  const dropped = TEXT_ONLY.filter((name) => text[name] !== undefined && text[name] !== null && text[name] !== false);
  return { request: { ...rest, messages: [{ role: 'user', content }] }, dropped };
}

export function completionAsText({ id, created, model, choices, usage }: ChatCompletion): TextCompletion {
  return {
    id: textId(id),
    object: 'text_completion',
    created,
    model,
    choices: choices.map(({ index, message, finish_reason: reason }) => ({
      index,
      text: message.content ?? '',
      logprobs: null,
      finish_reason: reason,
    })),
    ...(usage !== undefined && { usage }),
  };
}

/** Undefined for a chunk that says nothing in a text: a role, reasoning. */
export function chunkAsText({ id, created, model, choices, usage }: ChatChunk): object | undefined {
  const texts = choices.flatMap(({ index, delta, finish_reason: reason }) =>
    reason === null && (delta.content ?? '') === ''
      ? []
      : [{ index, text: delta.content ?? '', logprobs: null, finish_reason: reason }],
  );
  if (texts.length === 0 && choices.length > 0) return undefined;
  const head = { id: textId(id), object: 'text_completion', created, model };
  return { ...head, choices: texts, ...(usage !== undefined && usage !== null && { usage }) };
}

function textId(id: string): string {
  return id.replace(/^chatcmpl-/, 'cmpl-');
}
