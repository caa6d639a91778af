import { AppError, errorCode } from '../../../platform/errors/app-error.ts';
import { type PromptContent, textOfPart } from '../prompt-content.ts';
import type {
  AssistantMessage,
  CompleteChat,
  ConversationMessage,
  RequestedToolCall,
  UserPart,
} from './complete-chat.ts';
import { emptyAnswer, readAnswer } from './read-answer.ts';
import { SUMMARY_PROMPT } from './system-prompt.ts';
import { type Confine, withFile } from './tools/confinement.ts';

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

type ToolMessage = Extract<ConversationMessage, { role: 'tool' }>;

const INTERRUPTED =
  'Interrupted: the call was cut off before its result was known. It may or may not have taken effect.';
const OMITTED = '[this output was left out to save space; run the tool again if it is needed]';
/** Outputs shorter than this are not worth leaving out. */
const SHORT_OUTPUT = 200;
/** The last steps are what the model works on: they stay as they are. */
const STEPS_KEPT_WHOLE = 4;

/**
 * Makes a stored conversation fit to be continued, whatever moment it was cut off at: each tool call is followed by
 * exactly one result, and no result stands without its call. Models refuse anything else.
 */
export function repairConversation(messages: readonly ConversationMessage[]): ConversationMessage[] {
  const repaired: ConversationMessage[] = [];
  for (let at = 0; at < messages.length; at += 1) {
    const message = messages[at];
    if (message === undefined || message.role === 'tool') continue;
    repaired.push(message);
    if (message.role !== 'assistant') continue;
    const results = new Map<string, ToolMessage>();
    for (let next = messages[at + 1]; next?.role === 'tool'; next = messages[at + 1]) {
      results.set(next.tool_call_id, next);
      at += 1;
    }
    for (const { id } of message.tool_calls ?? []) repaired.push(results.get(id) ?? resultOf(id, INTERRUPTED));
  }
  return repaired;
}

export function resultOf(toolCallId: string, content: string): ToolMessage {
  return { role: 'tool', tool_call_id: toolCallId, content };
}

/**
 * The part of a conversation that is sent to the model, at most `maxCharacters` long if that can be had: first the
 * oldest tool outputs are left out, then the oldest steps whole. What the user asked last, and the last few steps,
 * always stay.
 */
export function fitConversation(
  messages: readonly ConversationMessage[],
  maxCharacters: number,
): readonly ConversationMessage[] {
  let excess = sizeOfMessages(messages) - maxCharacters;
  if (excess <= 0) return messages;
  const steps = toSteps(messages);
  const lastAsked = steps.findLastIndex(([first]) => first?.role === 'user');
  const isKept = (index: number) => index === lastAsked || index >= steps.length - STEPS_KEPT_WHOLE;
  const shortened = steps.map((step, index) =>
    isKept(index)
      ? step
      : step.map((message) => {
          if (excess <= 0 || message.role !== 'tool' || message.content.length <= SHORT_OUTPUT) return message;
          excess -= message.content.length - OMITTED.length;
          return { ...message, content: OMITTED };
        }),
  );
  return shortened
    .filter((step, index) => {
      if (excess <= 0 || isKept(index)) return true;
      excess -= sizeOfMessages(step);
      return false;
    })
    .flat();
}

/** A step is what the user said, or an answer with the results of its tool calls: a unit that can be left out. */
export function toSteps(messages: readonly ConversationMessage[]): ConversationMessage[][] {
  const steps: ConversationMessage[][] = [];
  for (const message of messages) {
    if (message.role === 'tool') steps.at(-1)?.push(message);
    else steps.push([message]);
  }
  return steps;
}

export function sizeOfMessages(messages: readonly ConversationMessage[]): number {
  return messages.reduce((sum, message) => sum + sizeOf(message), 0);
}

/** An image counts as a page of text. */
const IMAGE_CHARACTERS = 4000;

function sizeOf(message: ConversationMessage): number {
  const called = message.role === 'assistant' ? sizeOfCalls(message) : 0;
  const { content } = message;
  if (!Array.isArray(content)) return (content?.length ?? 0) + called;
  return content.reduce((sum, part) => sum + (part.type === 'text' ? part.text.length : IMAGE_CHARACTERS), 0);
}

function sizeOfCalls({ tool_calls: calls = [], reasoning_content: reasoning = '' }: AssistantMessage): number {
  return calls.reduce((sum, call: RequestedToolCall) => sum + call.function.arguments.length, reasoning.length);
}

/** Marks the address of an image whose data is in a file of the session: `trestle-file:image/png:/path`. */
const FILE_MARK = 'trestle-file:';
/** Of the images that are sent with one request; older ones are left out. */
const MAX_SENT_BYTES = 20 * 1024 * 1024;

/** A prompt as the conversation keeps it: with the paths of its images instead of their data. */
export function promptMessage({ text, parts }: PromptContent): ConversationMessage {
  if (parts.length === 0) return { role: 'user', content: text };
  const content = parts.map(
    (part): UserPart =>
      part.kind === 'text'
        ? { type: 'text', text: textOfPart(part) }
        : { type: 'image_url', image_url: { url: `${FILE_MARK}${part.contentType}:${part.path}` } },
  );
  return { role: 'user', content: [{ type: 'text', text }, ...content] };
}

export interface ImageReading {
  readonly confine: Confine;
  /** The folder of the files of the session; undefined: there are none. */
  readonly folder: string | undefined;
  /** Whether the model takes images. */
  readonly isShown: boolean;
}

/** The messages with the data of their images, the newest first as far as there is room for them. */
export async function withImages(
  messages: readonly ConversationMessage[],
  reading: ImageReading,
): Promise<readonly ConversationMessage[]> {
  if (!messages.some(hasImage)) return messages;
  let room = MAX_SENT_BYTES;
  const shown: ConversationMessage[] = [];
  for (const message of messages.toReversed()) {
    if (!hasImage(message)) {
      shown.unshift(message);
      continue;
    }
    const content: UserPart[] = [];
    for (const part of message.content) {
      const bytes = part.type === 'text' || !reading.isShown ? undefined : await readImage(part, reading, room);
      room -= bytes?.data.length ?? 0;
      if (part.type === 'text') content.push(part);
      else if (bytes === undefined) content.push({ type: 'text', text: '[an image that is not shown any more]' });
      else content.push({ type: 'image_url', image_url: { url: `data:${bytes.type};base64,${bytes.data}` } });
    }
    shown.unshift({ role: 'user', content });
  }
  return shown;
}

type WithParts = { role: 'user'; content: UserPart[] };

function hasImage(message: ConversationMessage): message is WithParts {
  return Array.isArray(message.content) && message.content.some(({ type }) => type === 'image_url');
}

/** Undefined for a file that is gone, or too large. */
async function readImage(
  { image_url: { url } }: Extract<UserPart, { type: 'image_url' }>,
  { confine, folder }: ImageReading,
  room: number,
): Promise<{ readonly type: string; readonly data: string } | undefined> {
  const [type = '', path = ''] = url.slice(FILE_MARK.length).split(/:(.*)/s, 2);
  if (!url.startsWith(FILE_MARK) || folder === undefined) return undefined;
  try {
    // Confined, because the agent may have put a link in its place.
    return await withFile(confine(folder), path, async ({ handle, size }) =>
      size > room ? undefined : { type, data: (await handle.readFile()).toString('base64') },
    );
  } catch (error) {
    if (error instanceof AppError || errorCode(error) !== '') return undefined;
    throw error;
  }
}
