import type { ChunkDelta } from '../../contract/chat.ts';
import {
  type AnswerHead,
  callId,
  deltaChunk,
  failedStep,
  headOf,
  lastStep,
  silentStep,
  stepOf,
  usageChunk,
} from '../answer.ts';
import type { DialectContext, StreamEvent, StreamStep } from '../dialect.ts';
import { failureInEvent, failureInObject, isFailureObject, noObject } from '../failure.ts';
import { asObject, asText, asWords, type JsonObject } from '../json-value.ts';
import { parseEvent } from '../parse-event.ts';
import { cohereFinish, cohereUsage } from './cohere-answer.ts';

export interface CohereStreamState {
  readonly head: AnswerHead;
  calls: number;
  /** Whether the call that is open got any arguments. Calls come one after the other. */
  hasArguments: boolean;
}

export function startCohereStream(context: DialectContext): CohereStreamState {
  return { head: headOf(context), calls: 0, hasArguments: true };
}

type Step = StreamStep<CohereStreamState>;

export function decodeCohereEvent(state: CohereStreamState, { event, data }: StreamEvent): Step {
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
