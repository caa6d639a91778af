import type { ChatChunk, ToolCall, Usage } from '../../contract/chat.ts';
import {
  ANSWER_TOOL,
  addArguments,
  addCitation,
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
  NO_CHUNKS,
  silentStep,
  startTool,
  stepOf,
  usageChunk,
  usageOf,
} from '../answer.ts';
import { packHiddenThinking, packThinking } from '../anthropic/anthropic-messages.ts';
import { type Annotation, citedAt, readBedrockCitation } from '../citations.ts';
import type { DecodedAnswer, Dialect, DialectContext, StreamEvent, StreamStep, UpstreamFailure } from '../dialect.ts';
import {
  brokenAnswer,
  failureInBody,
  failureInObject,
  isFailureObject,
  noObject,
  upstreamFailure,
} from '../failure.ts';
import { asCount, asList, asObject, asText, asWords, type JsonObject, parseEvent } from '../json-value.ts';
import { encodeBedrockRequest } from './bedrock-request.ts';

export const bedrockDialect: Dialect<BedrockStreamState> = {
  name: 'bedrock',
  framing: 'event-stream',
  encodeRequest: encodeBedrockRequest,
  decodeResponse: decodeBedrockAnswer,
  decodeFailure: failureInBody,
  startStream: startBedrockStream,
  decodeEvent: decodeBedrockEvent,
};

const FINISH_REASONS: ReadonlyMap<unknown, string> = new Map([
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  ['tool_use', 'tool_calls'],
  ['max_tokens', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['guardrail_intervened', 'content_filter'],
  ['content_filtered', 'content_filter'],
]);

/** Returns the finish reason, or a failure for a malformed call. */
function converseFinish(stopReason: unknown, calls: number): string | UpstreamFailure {
  if (stopReason === 'malformed_tool_use' || stopReason === 'malformed_model_output') {
    return upstreamFailure({
      status: 502,
      message: `The model made a call or an answer that is malformed (${stopReason}).`,
    });
  }
  const reason = FINISH_REASONS.get(stopReason) ?? (calls > 0 ? 'tool_calls' : 'stop');
  return reason === 'tool_calls' && calls === 0 ? 'stop' : reason;
}

/** Converts usage. Converse's input tokens do not include cache reads and writes. */
export function converseUsage(usage: JsonObject): Usage {
  const cached = asCount(usage.cacheReadInputTokens);
  const cacheWritten = asCount(usage.cacheWriteInputTokens);
  return usageOf({
    prompt: asCount(usage.inputTokens) + cached + cacheWritten,
    completion: asCount(usage.outputTokens),
    cached,
    cacheWritten,
    cacheWritten1h: asList(usage.cacheDetails)
      .map((value) => asObject(value))
      .reduce((sum, detail) => sum + (detail?.ttl === '1h' ? asCount(detail.inputTokens) : 0), 0),
  });
}

function decodeBedrockAnswer(body: unknown, context: DialectContext): DecodedAnswer {
  const answer = asObject(body);
  if (answer === undefined) return { failure: brokenAnswer() };
  const message = asObject(asObject(answer.output)?.message);
  if (message === undefined) {
    return {
      failure: isFailureObject(answer, false)
        ? failureInObject(answer)
        : brokenAnswer('The answer of the model API has no message.'),
    };
  }
  const read = readBlocks(asList(message.content), context.id);
  const finishReason = converseFinish(answer.stopReason, read.calls.length);
  const figures = asObject(answer.usage);
  const usage = figures === undefined ? undefined : converseUsage(figures);
  if (typeof finishReason !== 'string') return { failure: finishReason, usage };
  return completionOf(headOf(context), [choiceOf({ ...read, finishReason })], usage);
}

function readBlocks(blocks: readonly unknown[], answerId: string) {
  let text = '';
  let reasoning = '';
  let signature = '';
  const calls: ToolCall[] = [];
  const annotations: Annotation[] = [];
  for (const value of blocks) {
    const block = asObject(value) ?? {};
    const thought = asObject(block.reasoningContent);
    const called = asObject(block.toolUse);
    if (typeof block.text === 'string') text += block.text;
    else if (thought !== undefined) {
      const known = asObject(thought.reasoningText);
      const thinking = asText(known?.text) ?? '';
      reasoning += thinking;
      signature += packThinking(thinking.length, text.length, asText(known?.signature) ?? '');
      signature += packHiddenThinking(text.length, asText(thought.redactedContent) ?? '');
    } else if (called !== undefined) {
      const name = asText(called.name) ?? '';
      const input = JSON.stringify(called.input ?? {});
      const id = asWords(called.toolUseId) ?? callId(answerId, calls.length);
      if (name === ANSWER_TOOL) text += input;
      else calls.push({ id, type: 'function', function: { name, arguments: input } });
    } else {
      const { content, citations } = asObject(block.citationsContent) ?? {};
      const start = text.length;
      for (const cited of asList(content)) text += asText(asObject(cited)?.text) ?? '';
      for (const each of asList(citations).map(readBedrockCitation)) {
        if (each !== undefined) annotations.push(citedAt(each, start, text.length));
      }
    }
  }
  return { text, reasoning, signature, calls, annotations };
}

interface BedrockStreamState extends BlockStream {
  /** The reason for stopping has come. */
  stopped: boolean;
  /** The figures have come. They are the last event, but some put the reason for stopping behind them. */
  measured: boolean;
}

function startBedrockStream(context: DialectContext): BedrockStreamState {
  return { ...createBlockStream(context), stopped: false, measured: false };
}

type Step = StreamStep<BedrockStreamState>;

/** Events as the frame reader gives them: their kind is a header, their data JSON. */
function decodeBedrockEvent(state: BedrockStreamState, { event = '', data }: StreamEvent): Step {
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
  if (delta.citation !== undefined) return addCitation(state, readBedrockCitation(delta.citation));
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
