import type { ChunkDelta, ToolCall, Usage } from '../../contract/chat.ts';
import {
  type AnswerHead,
  callId,
  choiceOf,
  completionOf,
  deltaChunk,
  failedStep,
  headOf,
  lastStep,
  silentStep,
  stepOf,
  usageChunk,
  usageOf,
} from '../answer.ts';
import type { DecodedAnswer, Dialect, DialectContext, StreamEvent, StreamStep, UpstreamFailure } from '../dialect.ts';
import {
  brokenAnswer,
  failureInBody,
  failureInEvent,
  failureInObject,
  isFailureObject,
  noObject,
  upstreamFailure,
} from '../failure.ts';
import { asCount, asList, asObject, asText, asWords, type JsonObject, parseEvent } from '../json-value.ts';
import { encodeCohereRequest } from './cohere-request.ts';

export const cohereDialect: Dialect<CohereStreamState> = {
  name: 'cohere',
  framing: 'sse',
  encodeRequest: encodeCohereRequest,
  decodeResponse: decodeCohereAnswer,
  decodeFailure: failureInBody,
  startStream: startCohereStream,
  decodeEvent: decodeCohereEvent,
};

const FINISH_REASONS: ReadonlyMap<unknown, string> = new Map([
  ['COMPLETE', 'stop'],
  ['STOP_SEQUENCE', 'stop'],
  ['MAX_TOKENS', 'length'],
  ['TOOL_CALL', 'tool_calls'],
  ['ERROR_TOXIC', 'content_filter'],
]);

function cohereFinish(reason: unknown, calls: number, message: string | undefined): string | UpstreamFailure {
  if (reason === 'TIMEOUT') return upstreamFailure({ status: 504, message: message ?? 'The model took too long.' });
  const known = FINISH_REASONS.get(reason);
  if (known === undefined && typeof reason === 'string' && reason.startsWith('ERROR')) {
    return upstreamFailure({ status: 502, message: message ?? 'The model API failed while the model was answering.' });
  }
  return known ?? (calls > 0 ? 'tool_calls' : 'stop');
}

/** `tokens` is what went through the model; what is billed may be less. */
function cohereUsage(value: unknown): Usage | undefined {
  const usage = asObject(value);
  const tokens = asObject(usage?.tokens) ?? asObject(usage?.billed_units);
  if (usage === undefined || tokens === undefined) return undefined;
  return usageOf({
    prompt: asCount(tokens.input_tokens),
    completion: asCount(tokens.output_tokens),
    cached: asCount(usage.cached_tokens),
  });
}

function decodeCohereAnswer(body: unknown, context: DialectContext): DecodedAnswer {
  const answer = asObject(body);
  if (answer === undefined)
    return { failure: brokenAnswer('The model API answered with something else than a JSON object.') };
  const message = asObject(answer.message);
  if (message === undefined) {
    return {
      failure: isFailureObject(answer, false)
        ? failureInObject(answer)
        : brokenAnswer('The answer of the model API has no message.'),
    };
  }
  const own = headOf(context);
  const head = { ...own, id: asWords(answer.id) ?? own.id };
  const calls = asList(message.tool_calls).flatMap((value, index) => readCall(value, index, head.id));
  const finishReason = cohereFinish(answer.finish_reason, calls.length, undefined);
  if (typeof finishReason !== 'string') return { failure: finishReason };
  let text = asText(message.content) ?? '';
  let reasoning = asText(message.tool_plan) ?? '';
  for (const value of asList(message.content)) {
    const piece = asObject(value);
    text += asText(piece?.text) ?? '';
    reasoning += asText(piece?.thinking) ?? '';
  }
  const choice = choiceOf({ text, reasoning, signature: '', calls, finishReason });
  return completionOf(head, [choice], cohereUsage(answer.usage));
}

function readCall(value: unknown, index: number, answerId: string): ToolCall[] {
  const call: JsonObject | undefined = asObject(value);
  const called = asObject(call?.function);
  if (call === undefined || called === undefined) return [];
  const id = asWords(call.id) ?? callId(answerId, index);
  return [
    {
      id,
      type: 'function',
      function: { name: asText(called.name) ?? '', arguments: argumentsText(called.arguments) },
    },
  ];
}

/** For a function without parameters Cohere sends nothing, or `null`. */
function argumentsText(value: unknown): string {
  const text = asWords(value);
  return text === undefined || text === 'null' ? '{}' : text;
}

interface CohereStreamState {
  readonly head: AnswerHead;
  calls: number;
  /** Whether the call that is open got any arguments. Calls come one after the other. */
  hasArguments: boolean;
}

function startCohereStream(context: DialectContext): CohereStreamState {
  return { head: headOf(context), calls: 0, hasArguments: true };
}

type Step = StreamStep<CohereStreamState>;

function decodeCohereEvent(state: CohereStreamState, { event, data }: StreamEvent): Step {
  if (data === '') return silentStep(state);
  if (data === '[DONE]') return lastStep(state);
  const body = parseEvent(data);
  if (event === 'error') return failedStep(state, failureInEvent(data, body));
  if (body === undefined) return failedStep(state, noObject());
  const delta = asObject(body.delta);
  const message = asObject(delta?.message);
  switch (body.type ?? event) {
    case 'content-start':
    case 'content-delta':
      return addContent(state, asObject(message?.content));
    case 'message-start':
      state.head.id = asWords(body.id) ?? state.head.id;
      return one(state, { role: 'assistant', content: '' });
    case 'tool-plan-delta': {
      const plan = asWords(message?.tool_plan);
      return plan === undefined ? silentStep(state) : one(state, { reasoning_content: plan });
    }
    case 'tool-call-start':
      return startCall(state, asObject(message?.tool_calls));
    case 'tool-call-delta':
      return addArguments(state, asWords(asObject(asObject(message?.tool_calls)?.function)?.arguments));
    case 'tool-call-end':
      return state.hasArguments ? silentStep(state) : addArguments(state, '{}');
    case 'message-end':
      return finish(state, delta ?? {});
    default:
      // An error has no type here, only a message.
      return isFailureObject(body, body.type !== undefined)
        ? failedStep(state, failureInObject(body))
        : silentStep(state);
  }
}

function one(state: CohereStreamState, delta: ChunkDelta): Step {
  return stepOf(state, [deltaChunk(state.head, delta)]);
}

function addContent(state: CohereStreamState, content: JsonObject | undefined): Step {
  const text = asWords(content?.text);
  if (text !== undefined) return one(state, { content: text });
  const thinking = asWords(content?.thinking);
  return thinking === undefined ? silentStep(state) : one(state, { reasoning_content: thinking });
}

function startCall(state: CohereStreamState, call: JsonObject | undefined): Step {
  const called = asObject(call?.function);
  const index = state.calls;
  const text = asText(called?.arguments) ?? '';
  state.calls += 1;
  state.hasArguments = text !== '';
  return one(state, {
    tool_calls: [
      {
        index,
        id: asWords(call?.id) ?? callId(state.head.id, index),
        type: 'function',
        function: { name: asText(called?.name) ?? '', arguments: text },
      },
    ],
  });
}

function addArguments(state: CohereStreamState, text: string | undefined): Step {
  if (text === undefined || state.calls === 0) return silentStep(state);
  state.hasArguments = true;
  return one(state, { tool_calls: [{ index: state.calls - 1, function: { arguments: text } }] });
}

function finish(state: CohereStreamState, delta: JsonObject): Step {
  if (asWords(delta.finish_reason) === undefined && asWords(delta.error) === undefined) return lastStep(state);
  const reason = cohereFinish(delta.finish_reason, state.calls, asWords(delta.error));
  if (typeof reason !== 'string') return failedStep(state, reason);
  const usage = cohereUsage(delta.usage);
  const last = deltaChunk(state.head, {}, reason);
  return lastStep(state, usage === undefined ? [last] : [last, usageChunk(state.head, usage)]);
}
