import { AppError } from '../../platform/errors/app-error.ts';
import type { ChatChunk, ChatCompletion, ChatRequest, Usage } from '../contract/chat.ts';

export type DialectName = 'openai' | 'azure' | 'anthropic' | 'google' | 'google-vertex' | 'bedrock' | 'cohere';

/** An API of OpenAI's or Azure's dialect may serve a model at its Responses API alone, and Vertex serves Claude as Anthropic does. */
export type CodecName = DialectName | 'responses' | 'vertex-claude';

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
  /** The API has OpenAI's own Responses API, and so all of OpenAI's fields (`responses` of the API). */
  readonly servesResponses?: boolean | undefined;
  /** The request came in another API's form, so a field that this API does not know was not meant for it. */
  readonly translated?: boolean | undefined;
  /** The most that the model can write, where it is known: a dialect that must name a limit takes it. */
  readonly maxOutputTokens?: number | undefined;
  /** What the catalogue says of the model. It wins over what the name of the model lets one expect. */
  readonly facts?: ModelFacts | undefined;
}

/** Abilities of a model, as its row of the catalogue has them; absent: not known. */
export interface ModelFacts extends TakenFacts {
  readonly reasoning?: boolean;
  /** The caller may choose the temperature. */
  readonly temperature?: boolean;
  readonly thinking?: ThinkingFacts;
}

/** What the API of a model takes for it, where APIs of one kind differ from model to model. */
export interface TakenFacts {
  /** It follows a schema by itself. */
  readonly structuredOutput?: boolean;
  /** How many of temperature and top_p it takes together. */
  readonly sampling?: 0 | 1 | 2;
  readonly maxTemperature?: number;
  /** It is asked in Claude's way, also inside of another API. */
  readonly isClaude?: boolean;
  /** JSON Schema as it is, besides Gemini's own kind of schema. */
  readonly jsonSchema?: boolean;
  /** Both functions and an answer in JSON. */
  readonly jsonWithTools?: boolean;
  /** It refuses a turn whose first call lacks its proof. */
  readonly needsProofs?: boolean;
  /** The limit of an answer for an API that must get one, where neither the caller nor the row has one. */
  readonly defaultMaxTokens?: number;
}

/**
 * How a model is asked to think: with a number of tokens (`budget`), with Claude's effort (`adaptive`), with Gemini's level, with OpenAI's
 * field (`effort`), or with Nova's configuration (`config`).
 */
export const THINKING_STYLES = ['budget', 'adaptive', 'level', 'effort', 'config'] as const;

export interface ThinkingFacts {
  readonly style: (typeof THINKING_STYLES)[number];
  /** The efforts that it knows. `none`: it can be asked not to think. */
  readonly efforts: readonly string[];
}

const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'];

/** The least effort that a model knows and that is not below the wanted one, else its highest. Undefined for a word that nobody knows. */
export function nearestEffort({ efforts }: ThinkingFacts, wanted: string): string | undefined {
  const least = EFFORTS.indexOf(wanted);
  if (least === -1) return undefined;
  const known = EFFORTS.filter((effort) => efforts.includes(effort));
  return known.find((effort) => EFFORTS.indexOf(effort) >= least) ?? known.at(-1);
}

const UP_TO_HIGH = ['low', 'medium', 'high'];
const UP_TO_MAX = [...UP_TO_HIGH, 'xhigh', 'max'];

interface NamedModel {
  readonly words: readonly string[];
  readonly since: number;
}

/**
 * THE TABLE of names, for models whose row of the catalogue does not say how they think, or that have none. The first line counts whose
 * words are all in the name and whose version the model has reached: 406 for `claude-opus-4-6`, 300 for `gemini-3-pro-preview`.
 */
const NAMED: readonly (NamedModel & {
  readonly thinking: ThinkingFacts;
  /** Only where the row says that the model thinks, and not how. */
  readonly ifItThinks?: true;
})[] = [
  { words: ['claude', 'mythos'], since: 0, thinking: { style: 'adaptive', efforts: UP_TO_MAX } },
  { words: ['claude', 'fable'], since: 0, thinking: { style: 'adaptive', efforts: UP_TO_MAX } },
  { words: ['claude'], since: 407, thinking: { style: 'adaptive', efforts: ['none', ...UP_TO_MAX] } },
  { words: ['claude'], since: 406, thinking: { style: 'adaptive', efforts: ['none', ...UP_TO_HIGH, 'max'] } },
  { words: ['claude'], since: 307, thinking: { style: 'budget', efforts: ['none'] } },
  { words: ['gemini-3-pro'], since: 300, thinking: { style: 'level', efforts: ['low', 'high'] } },
  { words: ['gemini', 'flash-lite'], since: 300, thinking: { style: 'level', efforts: ['minimal', ...UP_TO_HIGH] } },
  { words: ['gemini', 'flash'], since: 307, thinking: { style: 'level', efforts: UP_TO_HIGH } },
  { words: ['gemini', 'flash'], since: 300, thinking: { style: 'level', efforts: ['minimal', ...UP_TO_HIGH] } },
  { words: ['gemini'], since: 300, thinking: { style: 'level', efforts: UP_TO_HIGH } },
  { words: ['gemini', 'pro'], since: 205, thinking: { style: 'budget', efforts: [] } },
  { words: ['gemini'], since: 205, thinking: { style: 'budget', efforts: ['none'] } },
  // A name without a version, as `gemini-flash-latest`: newer ones take a budget as well.
  { words: ['gemini'], since: 0, thinking: { style: 'budget', efforts: ['none'] }, ifItThinks: true },
  { words: ['command', 'reasoning'], since: 0, thinking: { style: 'budget', efforts: ['none'] } },
  { words: ['gpt-oss'], since: 0, thinking: { style: 'effort', efforts: UP_TO_HIGH } },
  { words: ['nova-2'], since: 0, thinking: { style: 'config', efforts: UP_TO_HIGH } },
];

/** How a model thinks: as its row says, else as its name lets one expect. Undefined: not that anybody knows. */
export function thinkingOf({ model, facts }: Pick<DialectContext, 'model' | 'facts'>): ThinkingFacts | undefined {
  if (facts?.reasoning === false) return undefined;
  if (facts?.thinking !== undefined) return facts.thinking;
  return NAMED.find((line) => isNamed(model, line) && (line.ifItThinks !== true || facts?.reasoning === true))
    ?.thinking;
}

function isNamed(model: string, { words, since }: NamedModel): boolean {
  return words.every((word) => model.includes(word)) && versionOf(model, words[0] ?? '') >= since;
}

const CLAUDE = { isClaude: true, maxTemperature: 1, defaultMaxTokens: 32_000 } as const;

/** The same for what the API of a model takes: each fact that its row does not have. */
const NAMED_TAKES: readonly (NamedModel & { readonly takes: TakenFacts })[] = [
  { words: ['claude'], since: 407, takes: { ...CLAUDE, sampling: 0, structuredOutput: true } },
  { words: ['claude'], since: 405, takes: { ...CLAUDE, sampling: 1, structuredOutput: true } },
  { words: ['claude', 'opus'], since: 401, takes: { ...CLAUDE, sampling: 1, structuredOutput: true } },
  { words: ['claude'], since: 401, takes: { ...CLAUDE, sampling: 1, structuredOutput: false } },
  { words: ['claude'], since: 307, takes: { ...CLAUDE, sampling: 2, structuredOutput: false } },
  {
    words: ['claude'],
    since: 305,
    takes: { ...CLAUDE, sampling: 2, structuredOutput: false, defaultMaxTokens: 8192 },
  },
  { words: ['claude'], since: 0, takes: { ...CLAUDE, sampling: 2, structuredOutput: false, defaultMaxTokens: 4096 } },
  { words: ['gemini'], since: 300, takes: { jsonSchema: true, jsonWithTools: true, needsProofs: true } },
  { words: ['gemini'], since: 205, takes: { jsonSchema: true } },
  { words: ['gemini'], since: 1, takes: {} },
  { words: ['gemini'], since: 0, takes: { jsonSchema: true } },
  { words: ['amazon.nova'], since: 0, takes: { structuredOutput: false, maxTemperature: 1 } },
  { words: ['amazon.'], since: 0, takes: { maxTemperature: 1 } },
];
const NOTHING: TakenFacts = {};

/** What the API of a model takes: as its row says, else as its name lets one expect. */
export function takenBy({ model, facts }: Pick<DialectContext, 'model' | 'facts'>): TakenFacts {
  const named = NAMED_TAKES.find((line) => isNamed(model, line))?.takes ?? NOTHING;
  return facts === undefined ? named : { ...named, ...facts };
}

/** Names of OpenAI's models that count what they think as output and refuse the old name of the limit. */
const COUNTS_REASONING = /^(?:o[1-9]|gpt-(?:[5-9]|[1-9]\d))/;

/** Whether a model of OpenAI's counts what it thinks: its row says so, else its name. */
export function countsReasoning({ model, facts, servesResponses }: DialectContext): boolean {
  return (servesResponses === true ? facts?.reasoning : undefined) ?? COUNTS_REASONING.test(model);
}

/** `claude-3-haiku-20240307` is 300; a Claude without a number is of a newer kind, any other model of an older one. */
function versionOf(model: string, family: string): number {
  const words = model.slice(model.indexOf(family.split('-', 1)[0] ?? '')).split(/[^a-z0-9]/);
  const first = words.findIndex((word) => /^\d{1,2}$/.test(word));
  if (first === -1) return family === 'claude' ? 500 : 0;
  const minor = words[first + 1] ?? '';
  return Number(words[first]) * 100 + (/^\d{1,2}$/.test(minor) ? Number(minor) : 0);
}

/** A request as the upstream takes it; authentication comes on top (`authorise-upstream.ts`). */
export interface UpstreamRequest {
  /** What follows the base URL, with a query where the dialect needs one: `/messages`. Joined by `upstreamUrl`. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;
  /** Fields of the caller that the upstream cannot take. */
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
  | { readonly completion: ChatCompletion; readonly failure?: undefined; readonly usage?: undefined }
  | {
      readonly completion?: undefined;
      readonly failure: UpstreamFailure;
      /** What the model used for an answer that is none, such as a malformed call. */
      readonly usage?: Usage | undefined;
    };

/** What one event of a stream means: chunks to send on, a failure inside a stream that began well, or the end. */
export interface StreamStep<State> {
  readonly state: State;
  readonly chunks: readonly ChatChunk[];
  readonly failure?: UpstreamFailure;
  /**
   * The upstream said that nothing more will come. With or without it, an answer is complete only when its choices
   * have their finish reasons: Gemini has no end marker at all.
   */
  readonly done?: boolean;
}

/**
 * A wire format: a pure codec between OpenAI's chat completion and what an upstream speaks. No function throws,
 * whatever an upstream sends; only `encodeRequest` throws REQUEST_TOO_COMPLEX (`createSteps`). `decodeEvent` may change the
 * state that it was given: continue with the state that it returns.
 * Usage comes as a chunk of its own, without choices, whether the caller asked for it or not.
 */
export interface Dialect<State = unknown> {
  readonly name: CodecName;
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

/** Counts the work of one translation that a caller drives, and refuses the request when it grows past a limit. */
export interface Steps {
  /** Takes one step, or as many as given. Throws REQUEST_TOO_COMPLEX past the limit. */
  take(count?: number): void;
}

/**
 * One step is a message, a content part, a call, a proof of reasoning, a tool or a node of a schema. The largest real
 * requests (a thousand messages, a hundred tools) take less than half of this, and all of it takes well under 100 ms.
 */
export const MAX_STEPS = 50_000;

const PARTS = 'parts (messages, content parts, calls, tools, schema nodes)';

export function createSteps(limit: number = MAX_STEPS): Steps {
  let left = limit;
  return {
    take(count = 1) {
      left -= count;
      if (left < 0) throw new AppError('REQUEST_TOO_COMPLEX', { limit, parts: PARTS });
    },
  };
}

/** Base URL and path of an operation, each with or without a query; a slash too many or too few does not matter. */
export function upstreamUrl(baseUrl: string, path: string): string {
  const [base = '', baseQuery = ''] = splitAt(baseUrl, '?');
  const [pathname = '', pathQuery = ''] = splitAt(path, '?');
  const query = [baseQuery, pathQuery].filter((part) => part !== '').join('&');
  let end = base.length;
  while (end > 0 && base[end - 1] === '/') end -= 1;
  const separator = pathname.startsWith('/') || pathname === '' ? '' : '/';
  return `${base.slice(0, end)}${separator}${pathname}${query === '' ? '' : `?${query}`}`;
}

function splitAt(text: string, mark: string): readonly string[] {
  const at = text.indexOf(mark);
  return at === -1 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

/** One segment of a path. Half a surrogate pair, which no URL can hold, becomes a replacement character. */
export function pathSegment(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}

/** Something stored at a model API that a request names. */
export interface Reference {
  readonly id: string;
  /** Where the request names it, as a JSON pointer: `/previous_response_id`. */
  readonly path: string;
}
