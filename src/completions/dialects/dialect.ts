import type { ChatChunk, ChatCompletion, ChatRequest } from '../contract/chat.ts';

export type DialectName = 'openai' | 'azure' | 'anthropic' | 'google' | 'google-vertex' | 'bedrock' | 'cohere';

/** What a dialect must know of the API and the model that it talks to; plain data. */
export interface DialectContext {
  /** The upstream's own name of the model. */
  readonly model: string;
  readonly stream: boolean;
  /** Made by us, for answers of upstreams that give none. */
  readonly id: string;
  /** Epoch seconds, for the same. */
  readonly created: number;
  /** The API's own base URL: Azure's two forms of path depend on it. */
  readonly baseUrl?: string | undefined;
  /** `refuses` and `noStreamOptions` of the API (`apis/model-api.ts`). */
  readonly refuses?: readonly string[] | undefined;
  readonly noStreamOptions?: boolean | undefined;
  /** The request came in another API's form, so a field that this API does not know was not meant for it. */
  readonly translated?: boolean | undefined;
  /** The most that the model can write, where it is known: a dialect that must name a limit takes it. */
  readonly maxOutputTokens?: number | undefined;
}

/** A request as the upstream takes it; authentication comes on top (`authorise-upstream.ts`). */
export interface UpstreamRequest {
  /** What follows the base URL, with a query where the dialect needs one: `/messages`. Joined by `upstream-url.ts`. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;
  /** Fields of the caller that the upstream cannot take (contract/completions 2). */
  readonly dropped: readonly string[];
}

/** One event of a stream: of server-sent events, or a decoded frame of another framing. */
export interface StreamEvent {
  readonly event: string | undefined;
  readonly data: string;
}

/** What an upstream said when it refused or failed, in one shape for all. */
export interface UpstreamFailure {
  readonly message: string;
  /** Of our own words where one fits (`failure.ts`): `context_length_exceeded`, `rate_limit_exceeded`, ... */
  readonly code: string;
  readonly param: string | null;
  /** The HTTP status, or the one it amounts to when it came inside an answer that began with 200. */
  readonly status: number;
}

/** A whole answer is a completion, or a failure that the upstream wrapped into a 200. */
export type DecodedAnswer =
  | { readonly completion: ChatCompletion; readonly failure?: undefined }
  | { readonly completion?: undefined; readonly failure: UpstreamFailure };

/** What one event of a stream means: chunks to send on, a failure inside a stream that began well, or the end. */
export interface StreamStep<State> {
  readonly state: State;
  readonly chunks: readonly ChatChunk[];
  readonly failure?: UpstreamFailure;
  /**
   * The upstream said that nothing more will come. With or without it, an answer is complete only when its choices
   * have their finish reasons (contract/completions 4): Gemini has no end marker at all.
   */
  readonly done?: boolean;
}

/**
 * A wire format: a pure codec between OpenAI's chat completion and what an upstream speaks. No function throws,
 * whatever an upstream sends; only `encodeRequest` does, REQUEST_TOO_COMPLEX (`steps.ts`). `decodeEvent` may change the state it was given: go on with the one it returns.
 * Usage comes as a chunk of its own, without choices, whether the caller asked for it or not.
 */
export interface Dialect<State = unknown> {
  readonly name: DialectName;
  /** `sse`: server-sent events; `event-stream`: the binary framing of AWS. */
  readonly framing: 'sse' | 'event-stream';
  encodeRequest(request: ChatRequest, context: DialectContext): UpstreamRequest;
  decodeResponse(body: unknown, context: DialectContext): DecodedAnswer;
  /** The body of an answer that is not 2xx: parsed JSON, or text. */
  decodeFailure(status: number, body: unknown): UpstreamFailure;
  startStream(context: DialectContext): State;
  decodeEvent(state: State, event: StreamEvent): StreamStep<State>;
  /** The upstream closed the connection: what a dialect without an end marker can only say now. */
  endStream?(state: State): StreamStep<State>;
}
