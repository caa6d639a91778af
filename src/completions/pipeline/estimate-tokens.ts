import type { ChatRequest, Usage } from '../contract/chat.ts';
import { asFunctionCall } from '../dialects/conversation.ts';

/**
 * Figures where an upstream gives none, and for reservations before it is asked: four characters are a token, a
 * message costs four more, and an image, a recording or a file a thousand. Documented in docs/completions.md.
 */
const CHARACTERS_PER_TOKEN = 4;
const TOKENS_PER_MESSAGE = 4;
const TOKENS_PER_ATTACHMENT = 1000;
/** What an answer may cost when the caller sets no limit. */
const USUAL_ANSWER_TOKENS = 1024;

export function estimatePromptTokens({ messages, tools, functions }: ChatRequest): number {
  let characters = 0;
  let tokens = messages.length * TOKENS_PER_MESSAGE;
  for (const { content, tool_calls: calls } of messages) {
    if (typeof content === 'string') characters += content.length;
    else if (Array.isArray(content)) {
      for (const part of content) {
        if (part.text === undefined) tokens += TOKENS_PER_ATTACHMENT;
        else characters += part.text.length;
      }
    }
    for (const call of calls ?? []) {
      const called = asFunctionCall(call).function;
      characters += called.name.length + called.arguments.length;
    }
  }
  const definitions = tools ?? functions;
  if (definitions !== undefined && definitions !== null) characters += JSON.stringify(definitions).length;
  return tokens + tokensOfCharacters(characters);
}

/** The most that the answer may take, by the caller's own limit. */
export function expectedAnswerTokens({ max_completion_tokens: most, max_tokens: older, n }: ChatRequest): number {
  return (most ?? older ?? USUAL_ANSWER_TOKENS) * (n ?? 1);
}

export function tokensOfCharacters(characters: number): number {
  return Math.ceil(characters / CHARACTERS_PER_TOKEN);
}

export function estimatedUsage(promptTokens: number, completionTokens: number): Usage {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    estimated: true,
  };
}
