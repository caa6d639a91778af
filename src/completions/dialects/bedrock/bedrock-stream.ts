import type { ChatChunk } from '../../contract/chat.ts';
import { deltaChunk, failedStep, lastStep, NO_CHUNKS, silentStep, stepOf, usageChunk } from '../answer.ts';
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
import { brokenAnswer, failureInObject, isFailureObject, noObject, upstreamFailure } from '../failure.ts';
import { asCount, asObject, asText, asWords, type JsonObject } from '../json-value.ts';
import { parseEvent } from '../parse-event.ts';
import { converseFinish, converseUsage } from './bedrock-answer.ts';

export interface BedrockStreamState extends BlockStream {
  /** The reason for stopping has come. */
  stopped: boolean;
  /** The figures have come. They are the last event, but some put the reason for stopping behind them. */
  measured: boolean;
}

export function startBedrockStream(context: DialectContext): BedrockStreamState {
  return { ...createBlockStream(context), stopped: false, measured: false };
}

type Step = StreamStep<BedrockStreamState>;

/** Events as the frame reader gives them: their kind is a header, their data JSON. */
export function decodeBedrockEvent(state: BedrockStreamState, { event = '', data }: StreamEvent): Step {
  const body = parseEvent(data);
  const [kind, word] = event.split(':', 2);
  if (kind === 'exception' || kind === 'error') {
    return failedStep(state, upstreamFailure({ word, message: asWords(body?.message) ?? asWords(body?.Message) }));
  }
  if (body === undefined) return failedStep(state, noObject());
  if (isOverfull(state))
    return failedStep(state, brokenAnswer('The stream of the model API opens blocks without end.'));
  const index = asCount(body.contentBlockIndex);
  switch (event) {
    case 'contentBlockDelta':
      return stepOf(state, addDelta(state, index, asObject(body.delta) ?? {}));
    case 'contentBlockStart': {
      const called = asObject(asObject(body.start)?.toolUse);
      if (called === undefined) return silentStep(state);
      const call = { id: asWords(called.toolUseId), name: asText(called.name) ?? '' };
      return stepOf(state, startTool(state, index, call));
    }
    case 'contentBlockStop':
      return stepOf(state, closeBlock(state, index));
    case 'messageStart':
      return stepOf(state, [deltaChunk(state.head, { role: 'assistant', content: '' })]);
    case 'messageStop':
      return stop(state, body.stopReason);
    case 'metadata': {
      const usage = asObject(body.usage);
      const chunks = usage === undefined ? NO_CHUNKS : [usageChunk(state.head, converseUsage(usage))];
      state.measured = true;
      return state.stopped ? lastStep(state, chunks) : stepOf(state, chunks);
    }
    default:
      return isFailureObject(body, false) ? failedStep(state, failureInObject(body)) : silentStep(state);
  }
}

function addDelta(state: BedrockStreamState, index: number, delta: JsonObject): readonly ChatChunk[] {
  if (typeof delta.text === 'string') return addText(state, delta.text);
  const called = asObject(delta.toolUse);
  if (called !== undefined) return addArguments(state, index, called.input);
  const thought = asObject(delta.reasoningContent);
  if (thought === undefined) return NO_CHUNKS;
  if (thought.signature !== undefined) addSignature(state, index, thought.signature);
  if (thought.redactedContent !== undefined) return addHiddenThinking(state, thought.redactedContent);
  return addThinking(state, index, thought.text);
}

function stop(state: BedrockStreamState, stopReason: unknown): Step {
  if (asWords(stopReason) === undefined) return silentStep(state);
  const closing = closeAll(state);
  const finish = converseFinish(stopReason, state.calls);
  if (typeof finish !== 'string') return { state, chunks: closing, failure: finish };
  state.stopped = true;
  const chunks = [...closing, deltaChunk(state.head, {}, finish)];
  return state.measured ? lastStep(state, chunks) : stepOf(state, chunks);
}
