import type { Static } from 'typebox';
import type { RequestHead } from '../../../platform/http/surface.ts';
import type { StreamEvent } from '../../../platform/sse/sse-writer.ts';
import type { Usage } from '../../contract/chat.ts';
import type { GeminiError, GeminiUsage, GenerateContentResponse } from '../../contract/gemini.ts';
import { groundingOf } from '../../dialects/citations.ts';
import { readImage } from '../../dialects/conversation.ts';
import { createEventReader } from '../../relay/event-splitter.ts';
import {
  type AnswerBlock,
  type AnswerReader,
  type BlockStep,
  callInput,
  createAnswerReader,
} from '../answer-blocks.ts';
import { encodeEvents, type StreamEncoder, type StreamFormat } from '../ingress-call.ts';
import { packProof } from './gemini-content.ts';

const FINISH_REASONS: ReadonlyMap<string, string> = new Map([
  ['stop', 'STOP'],
  ['tool_calls', 'STOP'],
  ['function_call', 'STOP'],
  ['length', 'MAX_TOKENS'],
  ['content_filter', 'SAFETY'],
]);

export interface GeminiHead {
  readonly id: string;
  /** As the caller named it; the answer's own name of its model comes first. */
  readonly model: string;
  /** Whether the caller wants thoughts (`thinkingConfig.includeThoughts`). Proofs are always sent. */
  readonly includeThoughts: boolean;
}

type Part = Readonly<Record<string, unknown>>;

/** A complete translated response. */
export function geminiResponse(head: GeminiHead, answer: AnswerReader): GenerateContentResponse {
  const parts = createParts(head);
  const cutShort = answer.finishReason === 'length';
  const all = answer.blocks.flatMap((block) => [...parts.grown(block, block.text), ...parts.closed(block, cutShort)]);
  return lastResponse(head, answer, [...all, ...parts.rest()]);
}

/** Converts blocks to parts, and keeps the proofs of thoughts for the part that contains them. */
function createParts({ includeThoughts }: GeminiHead) {
  let proof = { thoughts: '', signature: '' };
  let calls = 0;

  function takeProof(): string {
    const packed = packProof(proof);
    proof = { thoughts: '', signature: '' };
    return packed;
  }

  return {
    grown({ kind }: AnswerBlock, text: string): readonly Part[] {
      if (kind === 'tool' || kind === 'refusal' || text === '') return [];
      if (kind === 'image') return imagePart(text);
      if (kind !== 'reasoning') return [{ text }];
      proof.thoughts += text;
      return includeThoughts ? [{ text, thought: true }] : [];
    },
    closed(block: AnswerBlock, cutShort: boolean): readonly Part[] {
      if (block.kind === 'reasoning') proof.signature += block.signature;
      if (block.kind !== 'tool') return [];
      const { id, name } = block;
      const functionCall = { id, name, args: callInput(block, cutShort) };
      calls += 1;
      // Clients keep what a call carries. The first one always has a proof: Gemini refuses calls without one.
      const isSigned = calls === 1 || proof.signature !== '';
      return [isSigned ? { functionCall, thoughtSignature: takeProof() } : { functionCall }];
    },
    /** A proof that no call carries goes with an empty text, as Gemini does it. */
    rest: (): readonly Part[] => (proof.signature === '' ? [] : [{ text: '', thoughtSignature: takeProof() }]),
  };
}

/** Returns the part of an image: its data, or a link. */
function imagePart(url: string): readonly Part[] {
  const image = readImage(url);
  if (image.kind === 'data') return [{ inlineData: { mimeType: image.mediaType, data: image.base64 } }];
  return image.kind === 'link' ? [{ fileData: { mimeType: image.mediaType, fileUri: url } }] : [];
}

function response(
  head: GeminiHead,
  answer: Pick<AnswerReader, 'model'>,
  parts: readonly Part[],
  end: Readonly<Record<string, unknown>> = {},
): GenerateContentResponse {
  return {
    candidates: [{ content: { role: 'model', parts: [...parts] }, ...end, index: 0 }],
    modelVersion: answer.model === '' ? head.model : answer.model,
    responseId: head.id,
  };
}

/** Returns the last response. The text of a refusal becomes the message of the finish reason. */
function lastResponse(head: GeminiHead, answer: AnswerReader, parts: readonly Part[]): GenerateContentResponse {
  const refusals = answer.blocks.filter(({ kind }) => kind === 'refusal').map(({ text }) => text);
  const finishReason = FINISH_REASONS.get(answer.finishReason ?? '') ?? 'OTHER';
  const end = refusals.length === 0 ? { finishReason } : { finishReason: 'SAFETY', finishMessage: refusals.join('') };
  const usage = answer.usage === undefined ? {} : { usageMetadata: geminiUsage(answer.usage) };
  const all = { ...end, ...sourcesOf(answer), ...logprobsOf(answer) };
  return { ...response(head, answer, parts.length === 0 ? [{ text: '' }] : parts, all), ...usage };
}

/** Places of sources are counted in the text of the whole answer. */
function sourcesOf({ blocks }: AnswerReader): { readonly groundingMetadata?: object } {
  const texts = blocks.filter(({ kind }) => kind === 'text');
  const grounding = groundingOf(
    texts.flatMap(({ annotations }) => annotations),
    texts.map(({ text }) => text).join(''),
  );
  return grounding === undefined ? {} : { groundingMetadata: grounding };
}

interface TokenChance {
  readonly token?: unknown;
  readonly logprob?: unknown;
  readonly top_logprobs?: unknown;
}

function logprobsOf({ blocks }: AnswerReader): { readonly logprobsResult?: object } {
  const tokens: readonly TokenChance[] = blocks.flatMap(({ logprobs }) => logprobs);
  if (tokens.length === 0) return {};
  const chance = ({ token, logprob }: TokenChance) => ({ token, logProbability: logprob });
  const others = tokens.map(({ top_logprobs: top }) => ({
    candidates: Array.isArray(top) ? top.map((each: TokenChance | null) => chance(each ?? {})) : [],
  }));
  const hasOthers = others.some(({ candidates }) => candidates.length > 0);
  return { logprobsResult: { chosenCandidates: tokens.map(chance), ...(hasOthers && { topCandidates: others }) } };
}

/** Here the tokens of thoughts are counted apart from those of the answer. */
function geminiUsage(usage: Usage): GeminiUsage {
  const { prompt_tokens: prompt, completion_tokens: completion } = usage;
  const thoughts = Math.min(completion, usage.completion_tokens_details?.reasoning_tokens ?? 0);
  const {
    cached_tokens: cached = 0,
    audio_tokens: audio = 0,
    image_tokens: image = 0,
  } = usage.prompt_tokens_details ?? {};
  return {
    promptTokenCount: prompt,
    candidatesTokenCount: completion - thoughts,
    totalTokenCount: prompt + completion,
    ...(thoughts > 0 && { thoughtsTokenCount: thoughts }),
    ...(cached > 0 && { cachedContentTokenCount: cached }),
    ...(audio + image > 0 && {
      promptTokensDetails: [
        { modality: 'TEXT', tokenCount: Math.max(0, prompt - audio - image) },
        ...(audio > 0 ? [{ modality: 'AUDIO', tokenCount: audio }] : []),
        ...(image > 0 ? [{ modality: 'IMAGE', tokenCount: image }] : []),
      ],
    }),
    ...(usage.estimated === true && { estimated: true }),
  };
}

/** The responses of `streamGenerateContent` for one streamed answer. */
export function createGeminiStream(head: GeminiHead): StreamEncoder {
  const answer = createAnswerReader(`call_${head.id}_`, true);
  const parts = createParts(head);
  const partsOf = (step: BlockStep): readonly Part[] => {
    if (step.step === 'grow') return parts.grown(step.block, step.text);
    return step.step === 'close' ? parts.closed(step.block, answer.finishReason === 'length') : [];
  };
  return {
    begin: () => [],
    read(chunk) {
      const said = answer.read(chunk).flatMap(partsOf);
      return said.length === 0 ? [] : [eventOf(response(head, answer, said))];
    },
    finish() {
      if (answer.finishReason === undefined) {
        return [errorEvent({ status: 502, code: 'upstream_error', message: 'The model API gave no reason to stop.' })];
      }
      const said = answer.finish().flatMap(partsOf);
      return [eventOf(lastResponse(head, answer, [...said, ...parts.rest()]))];
    },
    fail: (failure) => [errorEvent(failure)],
  };
}

function eventOf(body: object): StreamEvent {
  return { data: JSON.stringify(body) };
}

function errorEvent(failure: FailureFacts): StreamEvent {
  return eventOf(geminiErrorBody(failure));
}

/**
 * Server-sent events, as `alt=sse` asks for. Silence is broken by line feeds, because Google's clients take a comment for JSON. An error
 * comes twice: as an event, for clients that read events, and as plain JSON, in which Google sends it and its clients look for it.
 */
export const geminiEvents: StreamFormat = {
  contentType: 'text/event-stream; charset=utf-8',
  keepAlive: '\n',
  events: encodeEvents,
  bytes: (piece) => piece,
  end: () => '',
  failure: (events) => [encodeEvents(events), events.map(({ data }) => data).join('')],
};

/** One JSON array of responses, as clients get it that do not ask for events. */
export function createGeminiArray(): StreamFormat {
  const readEvents = createEventReader();
  let begun = false;
  const items = (events: readonly { readonly data: string }[]): string => {
    let text = '';
    for (const { data } of events) {
      text += `${begun ? ',\r\n' : '['}${data}`;
      begun = true;
    }
    return text;
  };
  return {
    contentType: 'application/json; charset=utf-8',
    keepAlive: '\n',
    events: items,
    bytes: (piece) => items(readEvents(piece.toString('utf8'))),
    end: () => (begun ? ']' : '[]'),
    failure: (events) => [`${items(events)}]`],
  };
}

const GEMINI_PATH = '/v1beta';

/**
 * Whether a request is one of Google's API: its errors have Google's shape. Google's libraries from 2026 on ask for `v1`, where
 * OpenAI's API has paths of models too, which nobody posts to.
 */
export function speaksGemini({ method, path }: Pick<RequestHead, 'method' | 'path'>): boolean {
  if (path === GEMINI_PATH || path.startsWith(`${GEMINI_PATH}/`)) return true;
  return method === 'POST' && path.startsWith('/v1/models/');
}

const STATUSES: ReadonlyMap<number, string> = new Map([
  [401, 'UNAUTHENTICATED'],
  [402, 'RESOURCE_EXHAUSTED'],
  [403, 'PERMISSION_DENIED'],
  [404, 'NOT_FOUND'],
  [405, 'UNIMPLEMENTED'],
  [408, 'DEADLINE_EXCEEDED'],
  [409, 'ABORTED'],
  [429, 'RESOURCE_EXHAUSTED'],
  [499, 'CANCELLED'],
  [501, 'UNIMPLEMENTED'],
  [503, 'UNAVAILABLE'],
  [504, 'DEADLINE_EXCEEDED'],
]);

interface FailureFacts {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>>;
}

/** An error as clients of Google's APIs read it; the status is the same as everywhere, and `reason` is our code. */
export function geminiErrorBody({ status, code, message, details = {} }: FailureFacts): Static<typeof GeminiError> {
  const { retryAfterSeconds: seconds } = details;
  const retry = { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: `${String(seconds)}s` };
  return {
    error: {
      code: status,
      message,
      status: STATUSES.get(status) ?? (status >= 500 ? 'INTERNAL' : 'INVALID_ARGUMENT'),
      details: [
        { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: code.toUpperCase(), domain: 'trestle' },
        ...(typeof seconds === 'number' ? [retry] : []),
      ],
    },
  };
}
