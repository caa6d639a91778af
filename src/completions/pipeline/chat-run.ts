import type { ChatChunk, ChatCompletion, ChatRequest } from '../contract/chat.ts';
import type { KeyHolder } from '../keys/admission.ts';

/** One call of the chat pipeline, from wherever it comes: an ingress dialect, the built-in agent, the tool bridge. */
export interface ChatCall {
  readonly request: ChatRequest;
  readonly holder: KeyHolder;
  readonly requestId: string;
  /** Refuse what the upstream cannot take, instead of dropping it. */
  readonly strict: boolean;
  /** The longest time for the whole call, if the caller sets one. */
  readonly timeoutMs?: number | undefined;
  /** Aborts the upstream when the caller is gone. */
  readonly signal: AbortSignal;
  /** Told the headers of a call that was let in and failed, for whoever answers over HTTP. */
  onFailed?(headers: ChatAnswer['headers']): void;
}

/** `headers`: what tells the caller how its call went (contract/completions 5): x-model-api, x-attempts, ... */
export type ChatAnswer =
  | { readonly kind: 'whole'; readonly headers: Readonly<Record<string, string>>; readonly completion: ChatCompletion }
  | {
      readonly kind: 'stream';
      readonly headers: Readonly<Record<string, string>>;
      /** Throws an `AppError` where the upstream broke off. Ending the iteration early aborts the upstream. */
      readonly chunks: AsyncIterable<ChatChunk>;
    };

/** Streams when `request.stream` is true. A failure before the first chunk is thrown, after all retries and fallbacks. */
export type RunChat = (call: ChatCall) => Promise<ChatAnswer>;
