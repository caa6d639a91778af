import type { ChatChunk, ChatCompletion, ChunkDelta, ToolCall, Usage } from '../contract/chat.ts';
import type { DecodedAnswer, DialectContext, StreamStep, UpstreamFailure } from './dialect.ts';

/** What every chunk of one answer repeats. */
export interface AnswerHead {
  id: string;
  created: number;
  model: string;
}

export const NO_CHUNKS: readonly ChatChunk[] = Object.freeze([]);

export function headOf({ id, created, model }: DialectContext): AnswerHead {
  return { id, created, model };
}

export function deltaChunk(
  { id, created, model }: AnswerHead,
  delta: ChunkDelta,
  finishReason: string | null = null,
  index = 0,
): ChatChunk {
  return {
    id,
    object: 'chat.completion.chunk',
    created,
    model,
    choices: [{ index, delta, finish_reason: finishReason }],
  };
}

export function usageChunk({ id, created, model }: AnswerHead, usage: Usage): ChatChunk {
  return { id, object: 'chat.completion.chunk', created, model, choices: [], usage };
}

export interface TokenCounts {
  readonly prompt: number;
  readonly completion: number;
  /** Of the prompt, read from a cache. */
  readonly cached?: number;
  /** Of the prompt, written into a cache. */
  readonly cacheWritten?: number;
  /** Of those, written into a cache that lasts an hour. */
  readonly cacheWritten1h?: number;
  /** Of the prompt, neither read from a cache nor written into one. */
  readonly audio?: number;
  readonly image?: number;
  /** Of the completion, spent on reasoning. */
  readonly reasoning?: number;
}

export function usageOf(counts: TokenCounts): Usage {
  const { prompt, completion, cached = 0, cacheWritten = 0, audio = 0, image = 0, reasoning = 0 } = counts;
  const cacheWritten1h = Math.min(counts.cacheWritten1h ?? 0, cacheWritten);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    ...(cached + cacheWritten + audio + image > 0 && {
      prompt_tokens_details: {
        cached_tokens: cached,
        ...(cacheWritten > 0 && { cache_creation_tokens: cacheWritten }),
        ...(cacheWritten1h > 0 && { cache_creation_1h_tokens: cacheWritten1h }),
        ...(audio > 0 && { audio_tokens: audio }),
        ...(image > 0 && { image_tokens: image }),
      },
    }),
    ...(reasoning > 0 && { completion_tokens_details: { reasoning_tokens: reasoning } }),
  };
}

export interface AnswerParts {
  readonly text: string;
  readonly reasoning: string;
  readonly signature: string;
  readonly refusal?: string | undefined;
  readonly calls: readonly ToolCall[];
  readonly finishReason: string;
}

/** A message of an answer; its content is null when there are only calls, as OpenAI has it. */
export function choiceOf(
  { text, reasoning, signature, refusal, calls, finishReason }: AnswerParts,
  index = 0,
): ChatCompletion['choices'][number] {
  return {
    index,
    message: {
      role: 'assistant',
      content: text === '' && (calls.length > 0 || refusal !== undefined) ? null : text,
      ...(reasoning !== '' && { reasoning_content: reasoning }),
      ...(signature !== '' && { reasoning_signature: signature }),
      ...(refusal !== undefined && { refusal }),
      ...(calls.length > 0 && { tool_calls: [...calls] }),
    },
    finish_reason: finishReason,
  };
}

export function completionOf(
  { id, created, model }: AnswerHead,
  choices: ChatCompletion['choices'],
  usage: Usage | undefined,
): DecodedAnswer {
  return {
    completion: {
      id,
      object: 'chat.completion',
      created,
      model,
      choices,
      ...(usage !== undefined && { usage }),
    },
  };
}

export function stepOf<State>(state: State, chunks: readonly ChatChunk[]): StreamStep<State> {
  return { state, chunks };
}

/** An event that means nothing to the caller. */
export function silentStep<State>(state: State): StreamStep<State> {
  return { state, chunks: NO_CHUNKS };
}

export function failedStep<State>(state: State, failure: UpstreamFailure): StreamStep<State> {
  return { state, chunks: NO_CHUNKS, failure };
}

export function lastStep<State>(state: State, chunks: readonly ChatChunk[] = NO_CHUNKS): StreamStep<State> {
  return { state, chunks, done: true };
}

/** The part of an id that tells it apart, for the ids that we make of it. */
export function callId(answerId: string, number: number): string {
  const dash = answerId.indexOf('-');
  return `call_${dash === -1 ? answerId : answerId.slice(dash + 1)}_${number}`;
}
