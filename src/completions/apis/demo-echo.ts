import type { ChatRequest, Usage } from '../contract/chat.ts';

export const DEMO_MODEL = 'demo/echo';

export interface EchoAnswer {
  /** The answer in the pieces in which it is streamed; joined they are the whole text. */
  readonly pieces: readonly string[];
  readonly usage: Usage;
}

/** The model that every machine has: it answers with the last thing the user said. One word is one token. */
export function echo(request: ChatRequest): EchoAnswer {
  const texts = request.messages.map(messageText);
  const lastFromUser = request.messages.findLastIndex((message) => message.role === 'user');
  const pieces = splitWords(texts[lastFromUser] ?? texts.at(-1) ?? '');
  const promptTokens = texts.reduce((count, text) => count + splitWords(text).length, 0);
  return {
    pieces,
    usage: {
      prompt_tokens: promptTokens,
      completion_tokens: pieces.length,
      total_tokens: promptTokens + pieces.length,
    },
  };
}

function messageText({ content }: ChatRequest['messages'][number]): string {
  if (typeof content === 'string') return content;
  return (content ?? []).map((part) => part.text ?? '').join('');
}

/** Words with the white space before them, so that nothing is lost when they are joined again. */
function splitWords(text: string): readonly string[] {
  return text.match(/\s*\S+|\s+$/g) ?? [];
}
