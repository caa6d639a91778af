import type { StreamEvent } from '../../platform/sse/sse-writer.ts';
import type { ChatChunk } from '../contract/chat.ts';

/** What went wrong after an answer had begun, as callers are told. */
export interface StreamFailure {
  readonly status: number;
  /** In lower case: `upstream_error`. */
  readonly code: string;
  readonly message: string;
}

/** Turns the chunks of one streamed answer into the events of another dialect. */
export interface StreamEncoder {
  begin(): readonly StreamEvent[];
  read(chunk: ChatChunk): readonly StreamEvent[];
  /** After the last chunk. */
  finish(): readonly StreamEvent[];
  /** Instead of `finish`: the dialect's own way to say that the answer is not whole. */
  fail(failure: StreamFailure): readonly StreamEvent[];
}

/** An event whose name is in its data as well, as both dialects have it. */
export function namedEvent(type: string, data: object): StreamEvent {
  return { event: type, data: JSON.stringify({ type, ...data }) };
}
