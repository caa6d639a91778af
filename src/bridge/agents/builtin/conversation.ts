import type { AssistantMessage, ConversationMessage, RequestedToolCall } from './complete-chat.ts';

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
