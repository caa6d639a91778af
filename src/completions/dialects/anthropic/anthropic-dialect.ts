import type { ChatChunk, ToolCall, Usage } from '../../contract/chat.ts';
import {
  addArguments,
  addHiddenThinking,
  addSignature,
  addText,
  addThinking,
  type BlockStream,
  callId,
  choiceOf,
  closeAll,
  closeBlock,
  completionOf,
  createBlockStream,
  deltaChunk,
  failedStep,
  headOf,
  isOverfull,
  lastStep,
  silentStep,
  startTool,
  stepOf,
  usageChunk,
  usageOf,
} from '../answer.ts';
import type { DecodedAnswer, Dialect, DialectContext, StreamEvent, StreamStep } from '../dialect.ts';
import { brokenAnswer, failureInBody, failureInEvent, failureInObject, isFailureObject, noObject } from '../failure.ts';
import { asCount, asObject, asText, asWords, type JsonObject, parseEvent } from '../json-value.ts';
import { ANSWER_TOOL } from '../structured-answer.ts';
import { packHiddenThinking, packThinking } from './anthropic-messages.ts';
import { encodeAnthropicRequest } from './anthropic-request.ts';

export const anthropicDialect: Dialect<AnthropicStreamState> = {
  name: 'anthropic',
  framing: 'sse',
  encodeRequest: encodeAnthropicRequest,
  decodeResponse: decodeAnthropicAnswer,
  decodeFailure: failureInBody,
  startStream: startAnthropicStream,
  decodeEvent: decodeAnthropicEvent,
};

const FINISH_REASONS: ReadonlyMap<unknown, string> = new Map([
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  ['pause_turn', 'stop'],
  ['tool_use', 'tool_calls'],
  ['max_tokens', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['refusal', 'content_filter'],
]);

/** A call of the answer tool is the answer itself, not a call. */
function finishReason(stopReason: unknown, calls: number): string {
  const reason = FINISH_REASONS.get(stopReason) ?? (calls > 0 ? 'tool_calls' : 'stop');
  return reason === 'tool_calls' && calls === 0 ? 'stop' : reason;
}

/** What was read from or written into the cache is not part of Claude's input tokens, but of OpenAI's prompt. */
function claudeUsage(usage: JsonObject): Usage {
  const cached = asCount(usage.cache_read_input_tokens);
  const cacheWritten = asCount(usage.cache_creation_input_tokens);
  return usageOf({
    prompt: asCount(usage.input_tokens) + cached + cacheWritten,
    completion: asCount(usage.output_tokens),
    cached,
    cacheWritten,
    cacheWritten1h: asCount(asObject(usage.cache_creation)?.ephemeral_1h_input_tokens),
    reasoning: asCount(asObject(usage.output_tokens_details)?.thinking_tokens),
  });
}

function decodeAnthropicAnswer(body: unknown, context: DialectContext): DecodedAnswer {
  const answer = asObject(body);
  if (answer === undefined)
    return { failure: brokenAnswer('The model API answered with something else than a JSON object.') };
  if (isFailureObject(answer, Array.isArray(answer.content))) return { failure: failureInObject(answer) };
  if (!Array.isArray(answer.content)) return { failure: brokenAnswer('The answer of the model API has no content.') };
  const read = readBlocks(answer.content, asWords(answer.id) ?? context.id);
  const own = headOf(context);
  const head = { ...own, id: asWords(answer.id) ?? own.id, model: asWords(answer.model) ?? own.model };
  const refusal = asWords(asObject(answer.stop_details)?.explanation);
  const choice = choiceOf({ ...read, refusal, finishReason: finishReason(answer.stop_reason, read.calls.length) });
  const usage = asObject(answer.usage);
  return completionOf(head, [choice], usage === undefined ? undefined : claudeUsage(usage));
}

function readBlocks(blocks: readonly unknown[], answerId: string) {
  let text = '';
  let reasoning = '';
  let signature = '';
  const calls: ToolCall[] = [];
  for (const value of blocks) {
    const block = asObject(value);
    if (block?.type === 'text') text += asText(block.text) ?? '';
    else if (block?.type === 'thinking') {
      const thinking = asText(block.thinking) ?? '';
      reasoning += thinking;
      signature += packThinking(thinking.length, text.length, asText(block.signature) ?? '');
    } else if (block?.type === 'redacted_thinking') {
      signature += packHiddenThinking(text.length, asText(block.data) ?? '');
    } else if (block?.type === 'tool_use') {
      const name = asText(block.name) ?? '';
      const input = JSON.stringify(block.input ?? {});
      if (name === ANSWER_TOOL) text += input;
      else
        calls.push({
          id: asWords(block.id) ?? callId(answerId, calls.length),
          type: 'function',
          function: { name, arguments: input },
        });
    }
  }
  return { text, reasoning, signature, calls };
}

interface AnthropicStreamState {
  readonly stream: BlockStream;
  readonly usage: JsonObject;
  finished: boolean;
}

function startAnthropicStream(context: DialectContext): AnthropicStreamState {
  return { stream: createBlockStream(context), usage: {}, finished: false };
}

type Step = StreamStep<AnthropicStreamState>;

function decodeAnthropicEvent(state: AnthropicStreamState, { event, data }: StreamEvent): Step {
  if (data === '' || data === '[DONE]') return silentStep(state);
  const body = parseEvent(data);
  if (event === 'error') return failedStep(state, failureInEvent(data, body));
  if (body === undefined) return failedStep(state, noObject());
  const { stream } = state;
  switch (body.type ?? event) {
    case 'content_block_delta':
      return stepOf(state, addDelta(stream, asCount(body.index), asObject(body.delta) ?? {}));
    case 'content_block_start':
      return startBlock(state, asCount(body.index), asObject(body.content_block) ?? {});
    case 'content_block_stop':
      return stepOf(state, closeBlock(stream, asCount(body.index)));
    case 'message_start':
      return startMessage(state, asObject(body.message) ?? {});
    case 'message_delta':
      return finishMessage(state, body);
    case 'message_stop':
      return lastStep(state);
    default:
      return isFailureObject(body, body.type !== undefined)
        ? failedStep(state, failureInObject(body))
        : silentStep(state);
  }
}

function startMessage(state: AnthropicStreamState, message: JsonObject): Step {
  const { head } = state.stream;
  head.id = asWords(message.id) ?? head.id;
  head.model = asWords(message.model) ?? head.model;
  takeUsage(state, message.usage);
  return stepOf(state, [deltaChunk(head, { role: 'assistant', content: '' })]);
}

const DETAILS = ['output_tokens_details', 'cache_creation'] as const;
const COUNTS = ['input_tokens', 'output_tokens', 'cache_read_input_tokens', 'cache_creation_input_tokens'] as const;

/** Figures grow while the answer does; each event has only some of them. */
function takeUsage(state: AnthropicStreamState, value: unknown): void {
  const usage = asObject(value);
  if (usage === undefined) return;
  for (const name of COUNTS) if (asCount(usage[name]) > 0) state.usage[name] = usage[name];
  for (const name of DETAILS) if (asObject(usage[name]) !== undefined) state.usage[name] = usage[name];
}

function startBlock(state: AnthropicStreamState, index: number, block: JsonObject): Step {
  const { stream } = state;
  if (isOverfull(stream))
    return failedStep(state, brokenAnswer('The stream of the model API opens blocks without end.'));
  switch (block.type) {
    case 'text':
      return stepOf(state, addText(stream, block.text));
    case 'tool_use': {
      const call = { id: asWords(block.id), name: asText(block.name) ?? '', input: block.input };
      return stepOf(state, startTool(stream, index, call));
    }
    case 'thinking':
      addSignature(stream, index, block.signature);
      return stepOf(state, addThinking(stream, index, block.thinking));
    case 'redacted_thinking':
      return stepOf(state, addHiddenThinking(stream, block.data));
    default:
      return silentStep(state);
  }
}

function addDelta(stream: BlockStream, index: number, delta: JsonObject): readonly ChatChunk[] {
  switch (delta.type) {
    case 'text_delta':
      return addText(stream, delta.text);
    case 'input_json_delta':
      return addArguments(stream, index, delta.partial_json);
    case 'thinking_delta':
      return addThinking(stream, index, delta.thinking);
    case 'signature_delta':
      return addSignature(stream, index, delta.signature);
    default:
      return [];
  }
}

function finishMessage(state: AnthropicStreamState, body: JsonObject): Step {
  takeUsage(state, body.usage);
  const delta = asObject(body.delta) ?? {};
  if (asWords(delta.stop_reason) === undefined || state.finished) return silentStep(state);
  const refusal = asWords(asObject(delta.stop_details)?.explanation);
  const chunks = refusal === undefined ? [] : [deltaChunk(state.stream.head, { refusal })];
  return stepOf(state, [...chunks, ...finish(state, delta.stop_reason)]);
}

function finish(state: AnthropicStreamState, stopReason: unknown): readonly ChatChunk[] {
  state.finished = true;
  const { stream } = state;
  const closing = closeAll(stream);
  const last = deltaChunk(stream.head, {}, finishReason(stopReason, stream.calls));
  const usage = claudeUsage(state.usage);
  return [...closing, last, ...(usage.total_tokens > 0 ? [usageChunk(stream.head, usage)] : [])];
}
