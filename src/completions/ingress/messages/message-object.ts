import { AppError } from '../../../platform/errors/app-error.ts';
import { parseJson } from '../../../platform/json/parse-json.ts';
import type { Usage } from '../../contract/chat.ts';
import type { MessageObject, MessagesUsage } from '../../contract/messages.ts';
import type { AnswerBlock, AnswerReader } from '../answer-blocks.ts';
import { isRecord } from '../decoded-request.ts';

const STOP_REASONS: ReadonlyMap<string, string> = new Map([
  ['stop', 'end_turn'],
  ['length', 'max_tokens'],
  ['tool_calls', 'tool_use'],
  ['function_call', 'tool_use'],
  ['content_filter', 'refusal'],
]);

/** The message of an answer that came whole. */
export function messageObject(id: string, answer: AnswerReader): MessageObject {
  return {
    id,
    type: 'message',
    role: 'assistant',
    model: answer.model,
    content: answer.blocks.map((block) => contentBlock(block, answer.finishReason === 'length')),
    stop_reason: stopReason(answer),
    stop_sequence: null,
    usage: messagesUsage(answer.usage),
  };
}

/** Which stop sequence it was, chat completions do not tell: both ways of ending are `end_turn`. */
export function stopReason({ finishReason = '', blocks }: Pick<AnswerReader, 'finishReason' | 'blocks'>): string {
  if (blocks.some(({ kind }) => kind === 'refusal')) return 'refusal';
  return STOP_REASONS.get(finishReason) ?? 'end_turn';
}

/** Here the prompt's tokens are counted apart from those that were read from a cache or written into one. */
export function messagesUsage(usage: Usage | undefined): MessagesUsage {
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  const written = usage?.prompt_tokens_details?.cache_creation_tokens ?? 0;
  return {
    input_tokens: Math.max(0, (usage?.prompt_tokens ?? 0) - cached - written),
    output_tokens: usage?.completion_tokens ?? 0,
    cache_creation_input_tokens: written,
    cache_read_input_tokens: cached,
    ...(usage?.estimated === true && { estimated: true }),
  };
}

function contentBlock(block: AnswerBlock, cutShort: boolean): MessageObject['content'][number] {
  switch (block.kind) {
    case 'reasoning':
      return { type: 'thinking', thinking: block.text, signature: block.signature } as { type: string };
    case 'tool':
      return { type: 'tool_use', id: block.id, name: block.name, input: toolInput(block, cutShort) } as {
        type: string;
      };
    default:
      return { type: 'text', text: block.text } as { type: string };
  }
}

/** A call whose arguments are no object cannot be said here. One that ran out of tokens has none that count. */
function toolInput({ name, text }: AnswerBlock, cutShort: boolean): object {
  if (text.trim() === '') return {};
  try {
    const value = parseJson(text);
    if (isRecord(value)) return value;
  } catch {
    if (cutShort) return {};
  }
  throw new AppError('UPSTREAM_ERROR', {
    reason: `it called "${name.slice(0, 64)}" with arguments that are no JSON object`,
  });
}
