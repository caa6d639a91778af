import type { ChatChunk, ChunkDelta, ToolCall, Usage } from '../../contract/chat.ts';
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
import { readGrounding } from '../citations.ts';
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
import {
  encodeGoogleRequest,
  type GoogleHost,
  packCallSignature,
  packTextSignature,
  signedCall,
} from './google-request.ts';
import { addPartialArguments, createPartialArguments, type PartialArguments } from './partial-arguments.ts';

function createGoogleDialect(name: GoogleHost): Dialect<GoogleStreamState> {
  return {
    name,
    framing: 'sse',
    encodeRequest: (request, context) => encodeGoogleRequest(name, request, context),
    decodeResponse: decodeGoogleAnswer,
    decodeFailure: failureInBody,
    startStream: startGoogleStream,
    decodeEvent: decodeGoogleEvent,
    endStream: endGoogleStream,
  };
}

export const googleDialect = createGoogleDialect('google');

/** The same bodies with other paths and other authentication (`authorise-upstream.ts`). */
export const vertexDialect = createGoogleDialect('google-vertex');

const MAX_CANDIDATES = 128;
/** How many characters of a response are kept, to find the places of its sources. */
const MAX_PLACED = 128 * 1024;

interface CandidateState {
  calls: number;
  isEmpty: boolean;
  /** The last event that gave a finish reason: some give one with every event. */
  finish: JsonObject | undefined;
  /** The call whose arguments are still coming. */
  open: PartialArguments | undefined;
  text: string;
  /** The last event that named sources: they come again, with more, as the answer grows. */
  grounded: JsonObject | undefined;
}

interface GoogleStreamState {
  readonly head: AnswerHead;
  readonly candidates: Map<number, CandidateState>;
  /** The latest usage, which comes with every event and grows. */
  usage: JsonObject | undefined;
  searches: number;
}

function startGoogleStream(context: DialectContext): GoogleStreamState {
  return { head: headOf(context), candidates: new Map(), usage: undefined, searches: 0 };
}

type Step = StreamStep<GoogleStreamState>;
type ToolDelta = NonNullable<ChunkDelta['tool_calls']>[number];

/** Decodes an event, which holds a piece of every candidate in the form of a complete response. There is no end marker. */
function decodeGoogleEvent(state: GoogleStreamState, { event, data }: StreamEvent): Step {
  if (data === '') return silentStep(state);
  if (data === '[DONE]') return { ...endGoogleStream(state), done: true };
  const body = parseEvent(data);
  if (event === 'error') return failedStep(state, failureInEvent(data, body));
  if (body === undefined) return failedStep(state, noObject());
  if (isFailureObject(body, isGoogleAnswer(body))) return failedStep(state, failureInObject(body));
  state.head.id = asWords(body.responseId) ?? state.head.id;
  state.head.model = asWords(body.modelVersion) ?? state.head.model;
  state.usage = asObject(body.usageMetadata) ?? state.usage;
  state.searches = Math.max(state.searches, googleSearches(body));
  const refusal = promptRefusal(body);
  if (refusal !== undefined) {
    const said = [deltaChunk(state.head, { role: 'assistant', refusal }), deltaChunk(state.head, {}, 'content_filter')];
    return lastStep(state, [...said, ...usageChunks(state)]);
  }
  const chunks: ChatChunk[] = [];
  for (const value of asList(body.candidates)) {
    const candidate = asObject(value);
    if (candidate === undefined) continue;
    const failure = decodeCandidate(state, candidate, chunks);
    if (failure !== undefined) return { state, chunks: [...chunks, ...usageChunks(state)], failure };
  }
  return chunks.length === 0 ? silentStep(state) : stepOf(state, chunks);
}

/** Returns the finish reasons at the end of the stream, because only then the last one is known. */
function endGoogleStream(state: GoogleStreamState): Step {
  const chunks: ChatChunk[] = [];
  for (const [index, own] of state.candidates) {
    if (own.finish === undefined) continue;
    const closing = closeCall(own);
    if (closing !== undefined) chunks.push(deltaChunk(state.head, closing, null, index));
    const annotations = own.grounded === undefined ? [] : readGrounding(own.grounded, own.text);
    if (annotations.length > 0) chunks.push(deltaChunk(state.head, { annotations }, null, index));
    const reason = readFinish(own.finish, own.calls, own.isEmpty);
    if (typeof reason !== 'string') return { state, chunks: [...chunks, ...usageChunks(state)], failure: reason };
    chunks.push(deltaChunk(state.head, {}, reason, index));
  }
  return stepOf(state, [...chunks, ...usageChunks(state)]);
}

function usageChunks({ head, usage, searches }: GoogleStreamState): readonly ChatChunk[] {
  return usage === undefined ? [] : [usageChunk(head, googleUsage(usage, searches))];
}

/** Adds the chunks of one candidate. Returns its failure, if any. */
function decodeCandidate(
  state: GoogleStreamState,
  candidate: JsonObject,
  chunks: ChatChunk[],
): UpstreamFailure | undefined {
  const index = Math.min(asCount(candidate.index), MAX_CANDIDATES);
  let own = state.candidates.get(index);
  const isFirst = own === undefined;
  own ??= { calls: 0, isEmpty: true, finish: undefined, open: undefined, text: '', grounded: undefined };
  state.candidates.set(index, own);
  const joined = joinArguments(own, candidate);
  if (joined === undefined) return brokenAnswer('The model API streams arguments of a call that make no sense.');
  const { text, reasoning, signature, calls, images } = readParts(joined.candidate, state.head.id, own.calls);
  const delta: ChunkDelta = isFirst ? { role: 'assistant' } : {};
  if (text !== '') delta.content = text;
  if (reasoning !== '') delta.reasoning_content = reasoning;
  if (signature !== '') delta.reasoning_signature = signature;
  const firstCall = own.calls;
  const closed = new Map(joined.closed.map(({ index: number, function: part }) => [number, part?.arguments]));
  const pieces: ToolDelta[] = joined.closed.filter(({ index: number }) => number < firstCall);
  for (const [position, call] of calls.entries()) {
    const number = firstCall + position;
    const { name, arguments: whole } = call.function;
    const text = own.open?.call === number ? '' : (closed.get(number) ?? whole);
    pieces.push({ index: number, ...call, function: { name, arguments: text } });
  }
  if (pieces.length > 0) delta.tool_calls = pieces;
  if (images.length > 0) delta.images = images;
  own.calls += calls.length;
  if (text !== '' || calls.length > 0 || images.length > 0) own.isEmpty = false;
  if (isFirst || text !== '' || reasoning !== '' || signature !== '' || pieces.length > 0 || images.length > 0) {
    chunks.push(deltaChunk(state.head, delta, null, index));
  }
  if (own.text.length < MAX_PLACED) own.text += text;
  if (candidate.groundingMetadata !== undefined || candidate.citationMetadata !== undefined) {
    own.grounded = { ...own.grounded, ...candidate };
  }
  if (asWords(candidate.finishReason) !== undefined) own.finish = candidate;
  return undefined;
}

interface JoinedArguments {
  /** The candidate without the pieces of arguments: what is left of its calls are whole calls and beginnings. */
  readonly candidate: JsonObject;
  /** Arguments of calls that are complete now. */
  readonly closed: readonly ToolDelta[];
}

/**
 * Arguments may come in pieces: a call with its name and `willContinue`, then calls without a name that each have a few
 * members of the arguments. Undefined for pieces that cannot be put together.
 */
function joinArguments(own: CandidateState, candidate: JsonObject): JoinedArguments | undefined {
  const content = asObject(candidate.content);
  const parts = asList(content?.parts);
  if (own.open === undefined && !parts.some(isStreamedCall)) return { candidate, closed: [] };
  const kept: unknown[] = [];
  const closed: ToolDelta[] = [];
  let calls = own.calls;
  const close = (): void => {
    for (const piece of closeCall(own)?.tool_calls ?? []) closed.push(piece);
  };
  for (const part of parts) {
    const called = asObject(asObject(part)?.functionCall);
    if (called === undefined) {
      kept.push(part);
      continue;
    }
    if (asWords(called.name) !== undefined) {
      close();
      kept.push(part);
      if (called.willContinue === true || called.partialArgs !== undefined) own.open = createPartialArguments(calls);
      calls += 1;
    }
    if (own.open === undefined) continue;
    if (!addPartialArguments(own.open, asList(called.partialArgs))) return undefined;
    if (called.willContinue !== true) close();
  }
  return { candidate: { ...candidate, content: { ...content, parts: kept } }, closed };
}

function isStreamedCall(part: unknown): boolean {
  const called = asObject(asObject(part)?.functionCall);
  return called !== undefined && (called.willContinue === true || called.partialArgs !== undefined);
}

function closeCall(own: CandidateState): ChunkDelta | undefined {
  const { open } = own;
  if (open === undefined) return undefined;
  own.open = undefined;
  return { tool_calls: [{ index: open.call, function: { arguments: JSON.stringify(open.value) } }] };
}

const BLOCKED: ReadonlySet<unknown> = new Set([
  ...['SAFETY', 'RECITATION', 'LANGUAGE', 'BLOCKLIST', 'PROHIBITED_CONTENT', 'SPII', 'MODEL_ARMOR'],
  ...['IMAGE_SAFETY', 'IMAGE_PROHIBITED_CONTENT', 'IMAGE_RECITATION'],
]);

/** Finish reasons for a malformed call, which is a failure and not an answer. */
const MALFORMED: ReadonlySet<unknown> = new Set([
  ...['MALFORMED_FUNCTION_CALL', 'UNEXPECTED_TOOL_CALL', 'TOO_MANY_TOOL_CALLS', 'MALFORMED_RESPONSE'],
  'MISSING_THOUGHT_SIGNATURE',
]);

interface Image {
  readonly type: 'image_url';
  readonly image_url: { readonly url: string };
}

/** The contents of the parts of one candidate. Calls are numbered from `firstCall`. */
interface ReadParts {
  text: string;
  reasoning: string;
  signature: string;
  readonly calls: (ToolCall & { extra_content?: unknown })[];
  readonly images: Image[];
}

function readParts(candidate: JsonObject, answerId: string, firstCall: number): ReadParts {
  const read: ReadParts = { text: '', reasoning: '', signature: '', calls: [], images: [] };
  for (const value of asList(asObject(candidate.content)?.parts)) {
    const part = asObject(value);
    if (part === undefined) continue;
    const signature = asWords(part.thoughtSignature);
    const called = asObject(part.functionCall);
    if (called !== undefined) {
      const number = firstCall + read.calls.length;
      if (signature !== undefined) read.signature += packCallSignature(number, signature);
      read.calls.push({
        id: asWords(called.id) ?? callId(answerId, number),
        type: 'function',
        function: { name: asText(called.name) ?? '', arguments: JSON.stringify(called.args ?? {}) },
        ...(signature !== undefined && signedCall(signature)),
      });
      continue;
    }
    const text = asText(part.text) ?? '';
    if (part.thought === true) read.reasoning += text;
    else read.text += text;
    if (signature !== undefined) read.signature += packTextSignature(signature);
    const data = asObject(part.inlineData);
    if (data !== undefined) {
      const url = `data:${asText(data.mimeType) ?? 'image/png'};base64,${asText(data.data) ?? ''}`;
      read.images.push({ type: 'image_url', image_url: { url } });
    }
  }
  return read;
}

/** Returns our finish reason, or a failure. `isEmpty`: the response has no text and no call so far. */
function readFinish(candidate: JsonObject, calls: number, isEmpty: boolean): string | UpstreamFailure {
  const { finishReason: reason } = candidate;
  const said = asWords(candidate.finishMessage);
  if (MALFORMED.has(reason)) {
    const what = `The model made a call that is malformed (${reason})`;
    return upstreamFailure({ status: 502, message: said === undefined ? `${what}.` : `${what}: ${said}` });
  }
  if (reason === 'MAX_TOKENS') return 'length';
  if (BLOCKED.has(reason)) return 'content_filter';
  if (reason !== 'STOP' && isEmpty)
    return upstreamFailure({ status: 502, message: said ?? 'The model gave no answer.' });
  return calls > 0 ? 'tool_calls' : 'stop';
}

/** Converts usage. Gemini's prompt tokens include cached ones; its candidate tokens do not include thinking. */
export function googleUsage(metadata: JsonObject, searches = 0): Usage {
  const reasoning = asCount(metadata.thoughtsTokenCount);
  return usageOf({
    prompt: asCount(metadata.promptTokenCount) + asCount(metadata.toolUsePromptTokenCount),
    completion: asCount(metadata.candidatesTokenCount) + reasoning,
    cached: asCount(metadata.cachedContentTokenCount),
    audio: tokensOf('AUDIO', metadata.promptTokensDetails) - tokensOf('AUDIO', metadata.cacheTokensDetails),
    image: tokensOf('IMAGE', metadata.promptTokensDetails) - tokensOf('IMAGE', metadata.cacheTokensDetails),
    reasoning,
    searches,
  });
}

function tokensOf(modality: string, details: unknown): number {
  return asList(details)
    .map((value) => asObject(value))
    .reduce((sum, detail) => sum + (detail?.modality === modality ? asCount(detail.tokenCount) : 0), 0);
}

/** The refusal of a prompt that was blocked before any candidate was made. */
export function promptRefusal(answer: JsonObject): string | undefined {
  const feedback = asObject(answer.promptFeedback);
  const reason = asWords(feedback?.blockReason);
  if (reason === undefined) return undefined;
  return asWords(feedback?.blockReasonMessage) ?? `The prompt was blocked (${reason}).`;
}

/** How often Google searched for an answer (grounding), with words or on a map: each is paid. */
export function googleSearches({ candidates }: JsonObject): number {
  let count = 0;
  for (const value of asList(candidates)) {
    const grounding = asObject(asObject(value)?.groundingMetadata);
    if (grounding === undefined) continue;
    const queries = asList(grounding.webSearchQueries).length;
    count += queries > 0 || asList(grounding.groundingChunks).length === 0 ? queries : 1;
  }
  return count;
}

/** Whether an object has anything that an answer of Gemini's has. */
export function isGoogleAnswer({ candidates, promptFeedback, usageMetadata }: JsonObject): boolean {
  return candidates !== undefined || promptFeedback !== undefined || usageMetadata !== undefined;
}

function decodeGoogleAnswer(body: unknown, context: DialectContext): DecodedAnswer {
  const answer = asObject(Array.isArray(body) ? body[0] : body);
  if (answer === undefined) return { failure: brokenAnswer() };
  if (isFailureObject(answer, isGoogleAnswer(answer))) return { failure: failureInObject(answer) };
  const own = headOf(context);
  const head = { ...own, id: asWords(answer.responseId) ?? own.id, model: asWords(answer.modelVersion) ?? own.model };
  const metadata = asObject(answer.usageMetadata);
  const usage = metadata === undefined ? undefined : googleUsage(metadata, googleSearches(answer));
  const refusal = promptRefusal(answer);
  if (refusal !== undefined) {
    const parts = { text: '', reasoning: '', signature: '', calls: [], refusal, finishReason: 'content_filter' };
    return completionOf(head, [choiceOf(parts)], usage);
  }
  const choices = [];
  for (const value of asList(answer.candidates)) {
    const candidate = asObject(value);
    if (candidate === undefined) continue;
    const read = readParts(candidate, head.id, 0);
    const isEmpty = read.text === '' && read.calls.length === 0 && read.images.length === 0;
    const finishReason = readFinish(candidate, read.calls.length, isEmpty);
    if (typeof finishReason !== 'string') return { failure: finishReason, usage };
    const annotations = readGrounding(candidate, read.text);
    const choice = choiceOf({ ...read, finishReason, annotations }, choices.length);
    if (read.images.length > 0) Object.assign(choice.message, { images: read.images });
    choices.push(choice);
  }
  if (choices.length === 0) return { failure: brokenAnswer('The answer of the model API has no candidates.') };
  return completionOf(head, choices, usage);
}
