import type { ChatChunk, Usage } from '../contract/chat.ts';
import { loadFrameReader } from '../dialects/bedrock/frame-reader.ts';
import type { Dialect, DialectContext, StreamEvent, StreamStep } from '../dialects/dialect.ts';
import { endedEarly } from '../dialects/failure.ts';
import type { EventFraming } from './event-splitter.ts';
import { createSseFraming } from './event-splitter.ts';
import type { Reading, StreamReader } from './open-stream.ts';
import { estimatedUsage, tokensOfCharacters } from './token-usage.ts';

export interface ChunkReaderOptions {
  readonly dialect: Dialect;
  readonly context: DialectContext;
  /** Turns bytes, however chunked, into events. */
  readonly framing: EventFraming;
  readonly choices: number;
  readonly promptTokens: number;
}

/**
 * Reads a stream of any dialect as chunks. The last one has the usage, without choices, whether the caller asked for it
 * or not; where the upstream gave none it is counted.
 */
export function createChunkReader(options: ChunkReaderOptions): StreamReader<readonly ChatChunk[]> {
  const { dialect, context, framing, choices, promptTokens } = options;
  const begun = new Set<number>();
  const finished = new Set<number>();
  let state = dialect.startStream(context);
  let usage: Usage | undefined;
  let characters = 0;

  function read(events: readonly StreamEvent[]): Reading<readonly ChatChunk[]> {
    const chunks: ChatChunk[] = [];
    for (const event of events) {
      const ended = take(dialect.decodeEvent(state, event), chunks);
      if (ended !== undefined) return ended;
    }
    return { piece: chunks.length === 0 ? undefined : chunks, hasEvent: chunks.length > 0, done: false };
  }

  /** Adds the chunks of one step; what it returns ends the stream. */
  function take(step: StreamStep<unknown>, chunks: ChatChunk[]): Reading<readonly ChatChunk[]> | undefined {
    state = step.state;
    for (const chunk of step.chunks) if (note(chunk)) chunks.push(chunk);
    const { done = false } = step;
    const failure = step.failure ?? (done && !isComplete() ? endedEarly() : undefined);
    if (!done && failure === undefined) return undefined;
    if (failure === undefined) chunks.push(usageChunk());
    return { piece: chunks, hasEvent: true, failure, done: failure === undefined };
  }

  /** Whether each choice that was begun has its finish reason, and there is at least one. */
  function isComplete(): boolean {
    for (const index of begun) if (!finished.has(index)) return false;
    return finished.size > 0;
  }

  /** False for a chunk of usage alone: it is kept for the end. */
  function note(chunk: ChatChunk): boolean {
    if (chunk.usage !== undefined && chunk.usage !== null) usage = chunk.usage;
    for (const { index, delta, finish_reason: reason } of chunk.choices) {
      begun.add(index);
      if (reason !== null && reason !== undefined && reason !== '') finished.add(index);
      characters += (delta.content?.length ?? 0) + (delta.reasoning_content?.length ?? 0);
      for (const call of delta.tool_calls ?? []) characters += call.function?.arguments?.length ?? 0;
    }
    return chunk.choices.length > 0;
  }

  function measure() {
    if (usage !== undefined) return { usage, estimated: usage.estimated === true };
    return { usage: estimatedUsage(promptTokens, tokensOfCharacters(characters)), estimated: true };
  }

  function usageChunk(): ChatChunk {
    const { id, created, model } = context;
    return { id, object: 'chat.completion.chunk', created, model, choices: [], usage: measure().usage };
  }

  return {
    feed: (chunk) => read(framing.feed(chunk)),
    end() {
      const last = read(framing.end());
      if (last.done || last.failure !== undefined) return last;
      const chunks = [...(last.piece ?? [])];
      const ended = dialect.endStream === undefined ? undefined : take(dialect.endStream(state), chunks);
      if (ended !== undefined) return ended;
      if (finished.size < choices || !isComplete()) return { ...last, piece: chunks };
      return { piece: [...chunks, usageChunk()], hasEvent: true, done: true };
    },
    usage: measure,
  };
}

/** The codec of AWS's framing is loaded with its first use. */
export async function createFraming(framing: Dialect['framing'], maxEventBytes?: number): Promise<EventFraming> {
  return framing === 'sse' ? createSseFraming(maxEventBytes) : (await loadFrameReader())();
}
