import { AppError } from '../../../platform/errors/app-error.ts';
import type { MakeId } from '../../../platform/ids/sortable-id.ts';
import type { AgentEvent } from '../agent-provider.ts';
import type {
  AssistantMessage,
  CompletionChunk,
  CompletionDelta,
  CompletionUsage,
  RequestedToolCall,
  ToolCallDelta,
} from './complete-chat.ts';

/** An answer as it grows: what has come is there also when the stream breaks off. */
export interface Answer {
  text: string;
  reasoning: string;
  reasoningSignature: string;
  refusal: string;
  finishReason: string;
  usage: CompletionUsage | undefined;
  readonly toolCalls: { id: string; name: string; arguments: string }[];
}

const MAX_TEXT = 1024 * 1024;
const MAX_ARGUMENTS = 1024 * 1024;
const MAX_TOOL_CALLS = 64;
const USABLE_ID = /^[\w.:-]{1,128}$/;

export function emptyAnswer(): Answer {
  return {
    text: '',
    reasoning: '',
    reasoningSignature: '',
    refusal: '',
    finishReason: '',
    usage: undefined,
    toolCalls: [],
  };
}

/** Reads a streamed answer into `answer` and reports text and thinking as they come. Too long an answer: MODEL_FAILED. */
export async function readAnswer(
  chunks: AsyncIterable<CompletionChunk>,
  answer: Answer,
  report: Report,
): Promise<void> {
  const places = new Map<number, number>();
  for await (const { choices, usage } of chunks) {
    if (usage !== undefined && usage !== null) answer.usage = usage;
    const [choice] = choices;
    if (choice === undefined) continue;
    const room = addDelta(answer, choice.delta, places, report);
    if (room !== undefined) await room;
    if (typeof choice.finish_reason === 'string') answer.finishReason = choice.finish_reason;
  }
}

/** As `AgentTurn.report`. */
type Report = (event: AgentEvent) => Promise<void> | undefined;

function addDelta(
  answer: Answer,
  delta: CompletionDelta,
  places: Map<number, number>,
  report: Report,
): Promise<void> | undefined {
  let room: Promise<void> | undefined;
  const { reasoning_content: thinking, content: text, refusal } = delta;
  if (thinking) {
    answer.reasoning = grown(answer.reasoning, thinking, MAX_TEXT, 'reasoning');
    room = report({ kind: 'thinking', text: thinking });
  }
  if (delta.reasoning_signature) {
    answer.reasoningSignature = grown(answer.reasoningSignature, delta.reasoning_signature, MAX_TEXT, 'signature');
  }
  if (text) {
    answer.text = grown(answer.text, text, MAX_TEXT, 'text');
    room = report({ kind: 'text', text });
  }
  if (refusal) {
    answer.refusal = grown(answer.refusal, refusal, MAX_TEXT, 'refusal');
    room = report({ kind: 'text', text: refusal });
  }
  for (const call of delta.tool_calls ?? []) addToolCall(answer, call, places);
  return room;
}

/** Pieces belong together by their index; some models give none and send each call in one piece, with an id. */
function addToolCall(answer: Answer, call: ToolCallDelta, places: Map<number, number>): void {
  const { toolCalls } = answer;
  const known = call.index === undefined ? undefined : places.get(call.index);
  const startsNew =
    known === undefined && (call.index !== undefined || call.id !== undefined || toolCalls.length === 0);
  const place = startsNew ? toolCalls.length : (known ?? toolCalls.length - 1);
  if (place >= MAX_TOOL_CALLS) throw tooMuch(`more than ${MAX_TOOL_CALLS} tool calls in one answer`);
  if (startsNew && call.index !== undefined) places.set(call.index, place);
  const grownCall = toolCalls[place] ?? { id: '', name: '', arguments: '' };
  toolCalls[place] = grownCall;
  grownCall.id ||= call.id ?? '';
  grownCall.name = grown(grownCall.name, call.function?.name ?? '', 256, 'name of a tool');
  grownCall.arguments = grown(grownCall.arguments, call.function?.arguments ?? '', MAX_ARGUMENTS, 'tool call');
}

function grown(before: string, piece: string, limit: number, what: string): string {
  if (before.length + piece.length > limit) throw tooMuch(`a ${what} of more than ${limit} characters`);
  return before + piece;
}

function tooMuch(reason: string): AppError {
  return new AppError('MODEL_FAILED', { reason: `it sent ${reason}` });
}

/** The answer as the conversation keeps it; undefined when there is nothing in it. Tool calls get ids that differ. */
export function toMessage(answer: Answer, makeId: MakeId): AssistantMessage | undefined {
  const content = answer.text + answer.refusal;
  const ids = new Set<string>();
  const toolCalls = answer.toolCalls.map(({ id, name, arguments: text }): RequestedToolCall => {
    const usable = USABLE_ID.test(id) && !ids.has(id) ? id : makeId('call_');
    ids.add(usable);
    return { id: usable, type: 'function', function: { name, arguments: text } };
  });
  if (content === '' && toolCalls.length === 0) return undefined;
  const message: AssistantMessage = { role: 'assistant', content: content === '' ? null : content };
  if (toolCalls.length > 0) message.tool_calls = toolCalls;
  if (answer.reasoningSignature !== '') {
    message.reasoning_content = answer.reasoning;
    message.reasoning_signature = answer.reasoningSignature;
  }
  return message;
}
