import type { ChatChunk, ChatCompletion, ChatRequest } from '../contract/chat.ts';
import type { OpenedStream } from './open-stream.ts';
import type { MeasuredUsage } from './stream-reader.ts';

/** A chat request on its way, checked and in today's form. */
export interface ChatWork {
  readonly request: ChatRequest;
  /** As it came, when bytes may be passed on. */
  readonly bytes: Buffer | undefined;
  /** The upstream's own bytes will do as the answer. */
  readonly answerAsBytes: boolean;
  readonly strict: boolean;
  /** Parameters that we added ourselves: they are never refused, and never named as dropped. */
  readonly added?: readonly string[] | undefined;
  /** The request came in another API's form. */
  readonly translated?: boolean | undefined;
  readonly promptTokens: number;
  /** The same for every try of one call, so that an upstream can recognise a repetition. */
  readonly idempotencyId: string;
  /** For answers of upstreams that give none. */
  readonly answerId: string;
  readonly created: number;
}

/** An answer of which something is there: as the upstream's bytes where they can be passed on, else translated. */
export type OpenedChat = { readonly dropped: readonly string[] } & (
  | { readonly kind: 'bytes'; readonly body: Buffer; readonly measured: MeasuredUsage }
  | { readonly kind: 'completion'; readonly completion: ChatCompletion; readonly measured: MeasuredUsage }
  | { readonly kind: 'byte-stream'; readonly stream: OpenedStream<Buffer> }
  | { readonly kind: 'chunk-stream'; readonly stream: OpenedStream<readonly ChatChunk[]> }
);
