import type { ChatChunk, ChunkDelta } from '../../contract/chat.ts';
import {
  type AnswerHead,
  deltaChunk,
  failedStep,
  headOf,
  lastStep,
  silentStep,
  stepOf,
  usageChunk,
} from '../answer.ts';
import type { DialectContext, StreamEvent, StreamStep } from '../dialect.ts';
import { brokenAnswer, failureInObject } from '../failure.ts';
import { asCount, asList, asObject, asWords, type JsonObject } from '../json-value.ts';
import { parseEvent } from '../parse-event.ts';
import { googleUsage, promptRefusal, readFinish, readParts } from './google-answer.ts';

const MAX_CANDIDATES = 128;

interface CandidateState {
  calls: number;
  isEmpty: boolean;
  finished: boolean;
}

export interface GoogleStreamState {
  readonly head: AnswerHead;
  readonly candidates: Map<number, CandidateState>;
}

export function startGoogleStream(context: DialectContext): GoogleStreamState {
  return { head: headOf(context), candidates: new Map() };
}

type Step = StreamStep<GoogleStreamState>;

/** Each event is a piece of every candidate, in the form of a whole answer. There is no end marker. */
export function decodeGoogleEvent(state: GoogleStreamState, { data }: StreamEvent): Step {
  if (data === '') return silentStep(state);
  if (data === '[DONE]') return lastStep(state);
  const body = parseEvent(data);
  if (body === undefined)
    return failedStep(state, brokenAnswer('The stream of the model API holds something else than JSON objects.'));
  if (asObject(body.error) !== undefined) return failedStep(state, failureInObject(body));
  state.head.id = asWords(body.responseId) ?? state.head.id;
  state.head.model = asWords(body.modelVersion) ?? state.head.model;
  const chunks: ChatChunk[] = [];
  const refusal = promptRefusal(body);
  if (refusal !== undefined) {
    state.candidates.set(0, { calls: 0, isEmpty: true, finished: true });
    chunks.push(deltaChunk(state.head, { role: 'assistant', refusal }), deltaChunk(state.head, {}, 'content_filter'));
  }
  for (const value of asList(body.candidates)) {
    const candidate = asObject(value);
    if (candidate === undefined) continue;
    const failure = decodeCandidate(state, candidate, chunks);
    if (failure !== undefined) return { state, chunks, failure };
  }
  const metadata = asObject(body.usageMetadata);
  // Figures come with every event and grow; those with the last finish reason are whole.
  if (metadata !== undefined && isFinished(state)) chunks.push(usageChunk(state.head, googleUsage(metadata)));
  if (refusal !== undefined) return lastStep(state, chunks);
  return chunks.length === 0 ? silentStep(state) : stepOf(state, chunks);
}

function isFinished({ candidates }: GoogleStreamState): boolean {
  for (const { finished } of candidates.values()) if (!finished) return false;
  return candidates.size > 0;
}

/** Adds the chunks of one candidate; what it returns is why it failed. */
function decodeCandidate(state: GoogleStreamState, candidate: JsonObject, chunks: ChatChunk[]) {
  const index = Math.min(asCount(candidate.index), MAX_CANDIDATES);
  let own = state.candidates.get(index);
  const isFirst = own === undefined;
  own ??= { calls: 0, isEmpty: true, finished: false };
  state.candidates.set(index, own);
  const { text, reasoning, signature, calls, images } = readParts(candidate, state.head.id, own.calls);
  const delta: ChunkDelta = isFirst ? { role: 'assistant' } : {};
  if (text !== '') delta.content = text;
  if (reasoning !== '') delta.reasoning_content = reasoning;
  if (signature !== '') delta.reasoning_signature = signature;
  const firstCall = own.calls;
  if (calls.length > 0) delta.tool_calls = calls.map((call, position) => ({ index: firstCall + position, ...call }));
  if (images.length > 0) Object.assign(delta, { images });
  own.calls += calls.length;
  if (text !== '' || calls.length > 0 || images.length > 0) own.isEmpty = false;
  if (isFirst || text !== '' || reasoning !== '' || signature !== '' || calls.length > 0 || images.length > 0) {
    chunks.push(deltaChunk(state.head, delta, null, index));
  }
  if (asWords(candidate.finishReason) === undefined || own.finished) return undefined;
  const finish = readFinish(candidate, own.calls, own.isEmpty);
  if (typeof finish !== 'string') return finish;
  own.finished = true;
  chunks.push(deltaChunk(state.head, {}, finish, index));
  return undefined;
}
