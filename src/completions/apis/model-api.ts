import type { ApiCredentials } from '../dialects/authorise-upstream.ts';
import type { DialectName, TakenFacts, ThinkingFacts } from '../dialects/dialect.ts';

/** One model API: data, never code. Nine in ten speak OpenAI's dialect and differ by address and key alone. */
export interface ModelApi {
  readonly id: string;
  readonly name: string;
  readonly dialect: DialectName;
  /** Everything before the path of the operation; `{NAME}` stands for a variable such as AWS_REGION. */
  readonly baseUrl: string;
  /** Environment variables that may hold the key, the first one found counts. Empty: it needs none. */
  readonly keyVariables: readonly string[];
  /** Environment variables that hold another address, as the vendor's library reads them, and what it adds to it. */
  readonly addressVariables?: readonly { readonly name: string; readonly suffix: string }[];
  /** A server on this machine or network, usable without a key. */
  readonly local?: true;
  /** Sent with every request. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Fields of OpenAI's request that this API refuses. */
  readonly refuses?: readonly string[];
  /** It does not support `stream_options`, so its streams may come without usage. */
  readonly noStreamOptions?: true;
}

/** An API that can be called: its base URL is complete, and it has what it needs to be let in. */
export interface UsableApi extends ModelApi {
  readonly credentials: ApiCredentials;
  /** Named in the settings or by a variable of the environment, rather than found in the table alone. */
  readonly configured: boolean;
  /** The variable or setting that its key came from; undefined: there is no key. */
  readonly keyFrom?: string | undefined;
  /** The keys to share calls among; absent for an API with one key or none, which `credentials` has. */
  readonly pool?: readonly PoolKey[];
  /** It serves `/responses`, so that requests of `/v1/responses` pass to it as they are. */
  readonly responses: boolean;
}

/** One of several keys of an API. */
export interface PoolKey {
  readonly name: string;
  readonly weight: number;
  /** For all models together. 0: no limit. */
  readonly requestsPerMinute: number;
  readonly tokensPerMinute: number;
  /** The API with this key. */
  readonly api: UsableApi;
}

/** An API that can be called now, with the key of this name where it has several; undefined when there is none. */
export type FindApi = (id: string, key?: string) => UsableApi | undefined;

/** What is known of one model: sizes and prices where a source had them. */
export interface KnownModel extends TakenFacts {
  readonly api: string;
  readonly id: string;
  readonly contextWindow?: number;
  readonly maxOutputTokens?: number;
  readonly prices?: ModelPrices;
  readonly inputModalities?: readonly string[];
  readonly outputModalities?: readonly string[];
  /** Whether it calls tools, reasons, and lets the caller choose the temperature. */
  readonly tools?: boolean;
  readonly reasoning?: boolean;
  readonly temperature?: boolean;
  readonly thinking?: ThinkingFacts;
  /** Days (`2030-01-31`), months or years: when it came out, was changed last, and until when it knows the world. */
  readonly released?: string;
  readonly updated?: string;
  readonly knowledge?: string;
  /** The operation that serves it, where chat completions do not. */
  readonly operation?: ModelOperation;
}

/** `responses`: OpenAI's `/responses`; `rawPredict`: the Messages API of Claude, inside of Vertex. */
export type ModelOperation = 'responses' | 'rawPredict';

/** USD per token. A kind of token without its own price costs what the rest of the prompt or of the answer costs. */
export interface ModelPrices extends TokenPrices {
  readonly batch?: TokenPrices;
  /** For calls whose prompt has more than so many tokens. */
  readonly tiers?: readonly (Partial<TokenPrices> & { readonly above: number })[];
}

/** A figure for each kind of token that may count on its own. */
export interface TokenKinds {
  readonly cacheRead: number;
  /** For five minutes, or where the cache has one lifetime only. */
  readonly cacheWrite: number;
  readonly cacheWrite1h: number;
  readonly audioInput: number;
  readonly imageInput: number;
  readonly audioOutput: number;
  readonly reasoning: number;
}

/** A figure for each thing other than tokens that some models are paid by. */
export interface UnitKinds {
  readonly perImage: number;
  readonly perSecond: number;
  readonly perCharacter: number;
  /** A search of the web that the API makes for the model. */
  readonly perSearch: number;
}

export interface TokenPrices extends Partial<TokenKinds>, Partial<UnitKinds> {
  readonly input: number;
  readonly output: number;
}
