import type { ChatChunk } from '../../contract/chat.ts';
import { deltaChunk, failedStep, lastStep, silentStep, stepOf, usageChunk } from '../answer.ts';
import {
  addArguments,
  addHiddenThinking,
  addSignature,
  addText,
  addThinking,
  type BlockStream,
  closeAll,
  closeBlock,
  createBlockStream,
  isOverfull,
  startTool,
} from '../block-stream.ts';
import type { DialectContext, StreamEvent, StreamStep } from '../dialect.ts';
import { brokenAnswer, failureInEvent, failureInObject, isFailureObject, noObject } from '../failure.ts';
import { asCount, asObject, asText, asWords, type JsonObject } from '../json-value.ts';
import { parseEvent } from '../parse-event.ts';
import { claudeUsage, finishReason } from './anthropic-answer.ts';

export interface AnthropicStreamState {
  readonly stream: BlockStream;
  readonly usage: JsonObject;
  finished: boolean;
}

export function startAnthropicStream(context: DialectContext): AnthropicStreamState {
  return { stream: createBlockStream(context), usage: {}, finished: false };
}

type Step = StreamStep<AnthropicStreamState>;

export function decodeAnthropicEvent(state: AnthropicStreamState, { event, data }: StreamEvent): Step {
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
