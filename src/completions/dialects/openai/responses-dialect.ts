import type { ChatChunk, ChunkDelta, ToolCall } from '../../contract/chat.ts';
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
} from '../answer.ts';
import { type Annotation, readFlatAnnotation } from '../citations.ts';
import { packProof } from '../conversation.ts';
import type { DecodedAnswer, Dialect, DialectContext, StreamEvent, StreamStep } from '../dialect.ts';
import { brokenAnswer, failureInBody, failureInEvent, failureInObject, isFailureObject, noObject } from '../failure.ts';
import { asCount, asList, asObject, asText, asWords, type JsonObject, parseEvent } from '../json-value.ts';
import { readResponsesUsage } from './openai-answer.ts';
import { encodeResponsesRequest } from './responses-request.ts';

/** OpenAI's Responses API as an upstream, for models that chat completions do not serve. */
export const responsesDialect: Dialect<ResponsesStreamState> = {
  name: 'responses',
  framing: 'sse',
  encodeRequest: encodeResponsesRequest,
  decodeResponse: decodeResponsesAnswer,
  decodeFailure: failureInBody,
  startStream: (context) => ({
    head: headOf(context),
    calls: new Map(),
    begun: 0,
    reasoned: 0,
    parts: 0,
    written: 0,
    part: 0,
  }),
  decodeEvent: decodeResponsesEvent,
};

const CUT_SHORT: ReadonlyMap<unknown, string> = new Map([
  ['max_output_tokens', 'length'],
  ['content_filter', 'content_filter'],
]);
const BETWEEN_PARTS = '\n\n';

function finishReason(response: JsonObject, calls: number): string {
  const { reason } = asObject(response.incomplete_details) ?? {};
  return CUT_SHORT.get(reason) ?? (calls > 0 ? 'tool_calls' : 'stop');
}

/** What proves reasoning to OpenAI, with the length of its summary: a conversation may have several of them. */
export function packReasoning(summaryLength: number, encrypted: string): string {
  return encrypted === '' ? '' : packProof('openai', `s${summaryLength}`, encrypted);
}

export function failureOfResponse(response: JsonObject) {
  return asObject(response.error) === undefined
    ? brokenAnswer(`The model API ended its response with status ${asWords(response.status) ?? 'failed'}.`)
    : failureInObject(response);
}

function decodeResponsesAnswer(body: unknown, context: DialectContext): DecodedAnswer {
  const response = asObject(body);
  if (response === undefined) return { failure: noObject() };
  if (isFailureObject(response, Array.isArray(response.output)) || response.status === 'failed') {
    return { failure: failureOfResponse(response), usage: readResponsesUsage(response.usage, response.output) };
  }
  if (!Array.isArray(response.output)) return { failure: brokenAnswer('The response of the model API has no output.') };
  const own = headOf(context);
  const head = { ...own, id: asWords(response.id) ?? own.id, model: asWords(response.model) ?? own.model };
  let text = '';
  let reasoning = '';
  let signature = '';
  let refusal: string | undefined;
  const calls: ToolCall[] = [];
  const annotations: Annotation[] = [];
  const images: Image[] = [];
  const tokens: unknown[] = [];
  for (const value of response.output) {
    const item = asObject(value) ?? {};
    if (item.type === 'message') {
      for (const part of asList(item.content)) {
        const { text: said, refusal: refused, annotations: named, logprobs } = asObject(part) ?? {};
        tokens.push(...asList(logprobs));
        for (const each of asList(named)) {
          const annotation = readFlatAnnotation(each, text.length);
          if (annotation !== undefined) annotations.push(annotation);
        }
        text += asText(said) ?? '';
        if (typeof refused === 'string') refusal = (refusal ?? '') + refused;
      }
    } else if (item.type === 'reasoning') {
      const summary = summaryOf(item);
      reasoning += summary;
      signature += packReasoning(summary.length, asText(item.encrypted_content) ?? '');
    } else if (item.type === 'image_generation_call') images.push(...imageOf(item));
    else calls.push(...callOf(item, head, calls.length));
  }
  const reason = finishReason(response, calls.length);
  const choice = choiceOf({ text, reasoning, signature, refusal, calls, finishReason: reason, annotations });
  if (images.length > 0) Object.assign(choice.message, { images });
  if (tokens.length > 0) choice.logprobs = { content: tokens, refusal: null };
  return completionOf(head, [choice], readResponsesUsage(response.usage, response.output));
}

function summaryOf({ summary, content }: JsonObject): string {
  const parts = asList(summary).length > 0 ? asList(summary) : asList(content);
  return parts.map((part) => asText(asObject(part)?.text) ?? '').join(BETWEEN_PARTS);
}

/** A call, of a function or of a tool of free text; every other item is work of OpenAI's own tools. */
function callOf(item: JsonObject, head: AnswerHead, number: number): readonly ToolCall[] {
  const id = asWords(item.call_id) ?? callId(head.id, number);
  const name = asText(item.name) ?? '';
  if (item.type === 'function_call') {
    return [{ id, type: 'function', function: { name, arguments: asText(item.arguments) ?? '' } }];
  }
  if (item.type !== 'custom_tool_call') return [];
  // Only a caller of chat completions can have asked for it, and reads it so.
  return [{ id, type: 'custom', custom: { name, input: asText(item.input) ?? '' } } as unknown as ToolCall];
}

interface Image {
  readonly type: 'image_url';
  readonly image_url: { readonly url: string };
}

function imageOf({ result, output_format: format }: JsonObject): readonly Image[] {
  if (typeof result !== 'string' || result === '') return [];
  return [{ type: 'image_url', image_url: { url: `data:image/${asWords(format) ?? 'png'};base64,${result}` } }];
}

interface OpenCall {
  readonly index: number;
  readonly custom: boolean;
  hasArguments: boolean;
}

interface ResponsesStreamState {
  readonly head: AnswerHead;
  /** By their place in the output. */
  readonly calls: Map<number, OpenCall>;
  begun: number;
  /** How much of the summary of the open reasoning has come, and in how many parts. */
  reasoned: number;
  parts: number;
  /** How much text has come, and how much of it before the part that is open. */
  written: number;
  part: number;
}

type Step = StreamStep<ResponsesStreamState>;

const MAX_OPEN_CALLS = 256;

function decodeResponsesEvent(state: ResponsesStreamState, { event, data }: StreamEvent): Step {
  if (data === '' || data === '[DONE]') return silentStep(state);
  const body = parseEvent(data);
  if (event === 'error') return failedStep(state, failureInEvent(data, body));
  if (body === undefined) return failedStep(state, noObject());
  if (isFailureObject(body, body.type !== undefined)) return failedStep(state, failureInObject(body));
  const { head } = state;
  const place = asCount(body.output_index);
  switch (body.type) {
    case 'response.created': {
      const { id, model } = asObject(body.response) ?? {};
      head.id = asWords(id) ?? head.id;
      head.model = asWords(model) ?? head.model;
      return said(state, { role: 'assistant', content: '' });
    }
    case 'response.content_part.added':
      state.part = state.written;
      return silentStep(state);
    case 'response.output_text.annotation.added': {
      const annotation = readFlatAnnotation(body.annotation, state.part);
      return annotation === undefined ? silentStep(state) : said(state, { annotations: [annotation] });
    }
    case 'response.output_text.delta':
      return written(state, body);
    case 'response.refusal.delta':
      return grown(state, body.delta, (refusal) => ({ refusal }));
    case 'response.reasoning_summary_part.added':
      state.parts += 1;
      return state.parts > 1 ? reasoned(state, BETWEEN_PARTS) : silentStep(state);
    case 'response.reasoning_summary_text.delta':
    case 'response.reasoning_text.delta':
      return reasoned(state, body.delta);
    case 'response.output_item.added':
      return openItem(state, place, asObject(body.item) ?? {});
    case 'response.function_call_arguments.delta':
    case 'response.custom_tool_call_input.delta':
      return argued(state, place, body.delta);
    case 'response.output_item.done':
      return closeItem(state, place, asObject(body.item) ?? {});
    case 'response.completed':
    case 'response.incomplete':
      return finish(state, asObject(body.response) ?? {});
    case 'response.failed':
    case 'response.cancelled':
      return fail(state, asObject(body.response) ?? {});
    default:
      return silentStep(state);
  }
}

function said(state: ResponsesStreamState, delta: ChunkDelta): Step {
  return stepOf(state, [deltaChunk(state.head, delta)]);
}

function grown(state: ResponsesStreamState, text: unknown, deltaOf: (text: string) => ChunkDelta): Step {
  return typeof text === 'string' && text !== '' ? said(state, deltaOf(text)) : silentStep(state);
}

function written(state: ResponsesStreamState, { delta, logprobs }: JsonObject): Step {
  if (typeof delta !== 'string' || delta === '') return silentStep(state);
  state.written += delta.length;
  const chunk = deltaChunk(state.head, { content: delta });
  const tokens = asList(logprobs);
  if (tokens.length === 0) return stepOf(state, [chunk]);
  const choices = chunk.choices.map((choice) => ({ ...choice, logprobs: { content: tokens, refusal: null } }));
  return stepOf(state, [{ ...chunk, choices }]);
}

function reasoned(state: ResponsesStreamState, text: unknown): Step {
  state.reasoned += typeof text === 'string' ? text.length : 0;
  return grown(state, text, (reasoning_content) => ({ reasoning_content }));
}

function openItem(state: ResponsesStreamState, place: number, item: JsonObject): Step {
  if (item.type === 'reasoning') {
    state.reasoned = 0;
    state.parts = 0;
  }
  const [call] = callOf(item, state.head, state.begun);
  if (call === undefined) return silentStep(state);
  if (state.calls.size >= MAX_OPEN_CALLS) {
    return failedStep(state, brokenAnswer('The stream of the model API opens calls without end.'));
  }
  const custom = item.type === 'custom_tool_call';
  const index = state.begun;
  state.begun += 1;
  state.calls.set(place, { index, custom, hasArguments: false });
  return said(state, callDelta({ index, ...emptied(call) }));
}

/** The arguments come in pieces after it. */
function emptied(call: ToolCall): object {
  const { custom } = call as ToolCall & { custom?: { name: string } };
  return custom === undefined
    ? { ...call, function: { name: call.function.name, arguments: '' } }
    : { ...call, custom: { name: custom.name, input: '' } };
}

function callDelta(call: object): ChunkDelta {
  return { tool_calls: [call] as NonNullable<ChunkDelta['tool_calls']> };
}

function argued(state: ResponsesStreamState, place: number, text: unknown): Step {
  const call = state.calls.get(place);
  if (call === undefined) return silentStep(state);
  const { index, custom } = call;
  return grown(state, text, (piece) => {
    call.hasArguments = true;
    return callDelta({ index, ...(custom ? { custom: { input: piece } } : { function: { arguments: piece } }) });
  });
}

/** What can only be said once an item is complete: the proof of reasoning, and arguments that did not come in pieces. */
function closeItem(state: ResponsesStreamState, place: number, item: JsonObject): Step {
  if (item.type === 'reasoning') {
    const signature = packReasoning(state.reasoned, asText(item.encrypted_content) ?? '');
    return grown(state, signature, (reasoning_signature) => ({ reasoning_signature }));
  }
  const images = item.type === 'image_generation_call' ? imageOf(item) : [];
  if (images.length > 0) return said(state, { images });
  const call = state.calls.get(place);
  if (call === undefined || call.hasArguments) {
    state.calls.delete(place);
    return silentStep(state);
  }
  const step = argued(state, place, call.custom ? item.input : item.arguments);
  state.calls.delete(place);
  return step;
}

/** A response that failed may have used tokens. */
function fail(state: ResponsesStreamState, response: JsonObject): Step {
  const usage = readResponsesUsage(response.usage, response.output);
  const step = failedStep(state, failureOfResponse(response));
  return usage === undefined ? step : { ...step, chunks: [usageChunk(state.head, usage)] };
}

function finish(state: ResponsesStreamState, response: JsonObject): Step {
  const usage = readResponsesUsage(response.usage, response.output);
  const last: ChatChunk = deltaChunk(state.head, {}, finishReason(response, state.begun));
  return lastStep(state, [last, ...(usage === undefined ? [] : [usageChunk(state.head, usage)])]);
}
