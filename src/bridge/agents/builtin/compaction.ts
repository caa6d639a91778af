import { errorCode } from '../../../platform/errors/app-error.ts';
import type { CompleteChat, ConversationMessage } from './complete-chat.ts';
import { fitConversation, sizeOfMessages, toSteps } from './conversation.ts';
import { emptyAnswer, readAnswer } from './read-answer.ts';
import { SUMMARY_PROMPT } from './system-prompt.ts';

/**
 * A row of a stored conversation: what was said before it is replaced by a text, but for the last `kept` messages. The
 * conversation itself only grows, so a copy that ends before this row has everything.
 */
export interface SummaryRow {
  readonly role: 'summary';
  readonly content: string;
  readonly kept: number;
}

export type StoredMessage = ConversationMessage | SummaryRow;

/** Part of `contextCharacters`: above it the conversation is summarised. */
const FULL = 0.75;
/** Part of `contextCharacters` that a summary must be able to save, so that it is worth a request. */
const WORTH = 0.25;
const STEPS_KEPT = 4;
const MAX_SUMMARY = 32 * 1024;
const MAX_REQUEST = 16 * 1024;

/** A stored conversation as the model gets it: the last summary takes the place of what it is about. */
export function withSummary(stored: readonly StoredMessage[]): readonly ConversationMessage[] {
  const at = stored.findLastIndex(({ role }) => role === 'summary');
  const row = stored[at];
  if (row?.role !== 'summary') return stored.filter((message) => message.role !== 'summary');
  const kept = stored.slice(Math.max(0, at - row.kept), at);
  const rest = [...kept, ...stored.slice(at + 1)].filter((message) => message.role !== 'summary');
  return [toMessage(row), ...rest];
}

interface Compacting {
  readonly complete: (messages: ConversationMessage[]) => ReturnType<CompleteChat>;
  readonly contextCharacters: number;
  readonly signal: AbortSignal;
}

export interface Compacted {
  readonly messages: readonly ConversationMessage[];
  /** To be stored. */
  readonly row: SummaryRow;
  readonly answer: ReturnType<typeof emptyAnswer>;
}

/** Whether a conversation is so long that it should be summarised, and a summary would help. */
export function needsSummary(messages: readonly ConversationMessage[], contextCharacters: number): boolean {
  if (sizeOfMessages(messages) <= contextCharacters * FULL) return false;
  return sizeOfMessages(splitOff(messages).old) > contextCharacters * WORTH;
}

/** Has the model write a summary of all but the last steps. Undefined: the model gave none, and nothing changes. */
export async function summarise(
  messages: readonly ConversationMessage[],
  { complete, contextCharacters, signal }: Compacting,
): Promise<Compacted | undefined> {
  const { old, recent } = splitOff(messages);
  const transcript = fitConversation(old, contextCharacters * FULL)
    .map(asText)
    .join('\n\n');
  const answer = emptyAnswer();
  const request: ConversationMessage[] = [
    { role: 'system', content: SUMMARY_PROMPT },
    { role: 'user', content: transcript },
  ];
  try {
    await readAnswer(complete(request), answer, () => undefined);
  } catch (error) {
    // The turn goes on with what fits; a fault of ours, or a stop, ends it as elsewhere.
    if (signal.aborted || errorCode(error) === '') throw error;
    return undefined;
  }
  if (answer.text.trim() === '') return undefined;
  const asked = textOf(old.findLast(({ role }) => role === 'user')).slice(0, MAX_REQUEST);
  const isAskedBefore = !recent.some(({ role }) => role === 'user') && asked !== '';
  const content = [
    answer.text.trim().slice(0, MAX_SUMMARY),
    ...(isAskedBefore ? [`The last request of the user, word for word:\n${asked}`] : []),
  ].join('\n\n');
  const row: SummaryRow = { role: 'summary', content, kept: recent.length };
  return { messages: [toMessage(row), ...recent], row, answer };
}

function toMessage({ content }: SummaryRow): ConversationMessage {
  return { role: 'user', content: `[Summary of the conversation up to here]\n${content}` };
}

function splitOff(messages: readonly ConversationMessage[]) {
  const steps = toSteps(messages);
  return { old: steps.slice(0, -STEPS_KEPT).flat(), recent: steps.slice(-STEPS_KEPT).flat() };
}

/** As text, because some models refuse tool calls in a request that offers no tools. */
function asText(message: ConversationMessage): string {
  const said = textOf(message);
  if (message.role === 'tool') return `Result of a tool:\n${said}`;
  if (message.role !== 'assistant') return `User:\n${said}`;
  const calls = (message.tool_calls ?? []).map((call) => `Calls ${call.function.name} ${call.function.arguments}`);
  return ['Agent:', said, ...calls].filter((part) => part !== '').join('\n');
}

function textOf(message: ConversationMessage | undefined): string {
  const content = message?.content ?? '';
  if (typeof content === 'string') return content;
  return content.map((part) => (part.type === 'text' ? part.text : '[an image]')).join('\n');
}
