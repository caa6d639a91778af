import type { Usage } from '../contract/chat.ts';
import type { CompletionsSettings } from '../settings.ts';
import type { Catalogue } from './catalogue.ts';
import { DEMO_MODEL } from './demo-models.ts';
import type { ModelPrices, TokenKinds, TokenPrices } from './model-api.ts';

/**
 * What one token of each kind costs, in pico-USD (10^-12 USD). Whole numbers: a price of the table has at most six
 * decimal places for a million tokens, so that money is multiplied and added without a rounding error.
 */
export type Rates = Required<TokenPrices>;

/** `known` is false where no price was found: such a model counts as free, and its calls are flagged. */
export interface Price {
  readonly known: boolean;
  /** A search of the web has a price. */
  readonly knowsSearch: boolean;
  readonly rates: Rates;
  /** For calls that the upstream served as a batch. */
  readonly batch?: Rates;
  /** Rates for calls whose prompt has more tokens than `above`, the largest first. */
  readonly tiers?: readonly { readonly above: number; readonly rates: Rates }[];
}

export type PriceOf = (api: string, upstreamModel: string) => Price;

/** The tokens of one call. The kinds are parts of `prompt` and of `completion`, and do not overlap. */
export interface TokenCounts extends Partial<TokenKinds>, UnitCounts {
  readonly prompt: number;
  readonly completion: number;
  readonly batch?: boolean;
  /** How many times the price a token costs, because of what the request asked for. Absent: once. */
  readonly factor?: number;
}

/** Fields of a request that make its tokens dearer, with the factor of each. */
export type DearerFields = Readonly<Record<string, number>>;

/** What one call made or read besides tokens: images, seconds of a recording that was heard, characters that were spoken, searches of the web. */
export interface UnitCounts {
  readonly images?: number;
  readonly seconds?: number;
  readonly characters?: number;
  readonly searches?: number;
  /** Uses of tools whose fees are not known. */
  readonly otherTools?: number;
}

const PICO_PER_USD = 1e12;
const NANO_PER_USD = 1e9;
const PICO_PER_NANO = 1000;
const FREE: Price = { known: true, knowsSearch: true, rates: ratesOf({ input: 0, output: 0 }) };
const UNKNOWN: Price = { known: false, knowsSearch: false, rates: FREE.rates };
const PROMPT_KINDS = ['cacheRead', 'cacheWrite1h', 'cacheWrite', 'audioInput', 'imageInput'] as const;
const COMPLETION_KINDS = ['audioOutput', 'reasoning'] as const;

/** Prices as configured, else as in the table. */
export function createPrices(
  configured: Readonly<Record<string, ConfiguredPrices>>,
  { modelsOf }: Pick<Catalogue, 'modelsOf'>,
): PriceOf {
  const own = new Map(Object.entries(configured).map(([name, prices]) => [name, configuredPrice(prices)]));
  const kept = new WeakMap<ModelPrices, Price>();
  return (api, upstreamModel) => {
    const price = own.get(`${api}/${upstreamModel}`);
    if (price !== undefined) return price;
    if (DEMO_MODEL.startsWith(`${api}/`)) return FREE;
    const prices = modelsOf(api).get(upstreamModel)?.prices;
    if (prices === undefined) return UNKNOWN;
    const known = kept.get(prices) ?? priceFrom(prices);
    kept.set(prices, known);
    return known;
  };
}

/** A price from USD per token. Kinds that are not given cost what the rest of the prompt or of the answer costs. */
export function priceFrom({ batch, tiers = [], ...base }: ModelPrices): Price {
  return {
    known: true,
    knowsSearch: base.perSearch !== undefined,
    rates: ratesOf(base),
    ...(batch !== undefined && { batch: ratesOf(batch) }),
    ...(tiers.length > 0 && {
      tiers: [...tiers]
        .sort((a, b) => b.above - a.above)
        .map(({ above, ...rates }) => ({ above, rates: ratesOf({ ...base, ...rates }) })),
    }),
  };
}

/** What a call costs, in nano-USD, rounded once. The largest safe integer stands for everything above it. */
export function costOf(price: Price, tokens: TokenCounts): number {
  const rates = ratesFor(price, tokens);
  let nano = 0;
  let pico = 0;
  const add = (count: number, rate: number) => {
    const whole = Math.floor(rate / PICO_PER_NANO);
    nano += count * whole;
    pico += count * (rate - whole * PICO_PER_NANO);
  };
  let prompt = tokens.prompt;
  for (const kind of PROMPT_KINDS) {
    const count = Math.min(tokens[kind] ?? 0, prompt);
    prompt -= count;
    add(count, rates[kind]);
  }
  add(prompt, rates.input);
  let completion = tokens.completion;
  for (const kind of COMPLETION_KINDS) {
    const count = Math.min(tokens[kind] ?? 0, completion);
    completion -= count;
    add(count, rates[kind]);
  }
  add(completion, rates.output);
  const { factor = 1 } = tokens;
  if (factor !== 1) [nano, pico] = [0, (nano * PICO_PER_NANO + pico) * factor];
  add(tokens.images ?? 0, rates.perImage);
  add(tokens.seconds ?? 0, rates.perSecond);
  add(tokens.characters ?? 0, rates.perCharacter);
  add(tokens.searches ?? 0, rates.perSearch);
  return Math.min(nano + Math.round(pico / PICO_PER_NANO), Number.MAX_SAFE_INTEGER);
}

/** What one target used, for an answer or for a try that failed. */
export interface UsedAt {
  readonly api: string;
  readonly upstreamModel: string;
  readonly usage: Usage | undefined;
  /** How many times the price a token cost. Absent: once. */
  readonly priceFactor?: number;
}

/** Prices what one target used. `isKnown` is false where something of it has no known price. */
export function priceUsage(priceOf: PriceOf, { api, upstreamModel, usage, priceFactor: factor }: UsedAt) {
  const tokens = countTokens(usage);
  const price = priceOf(api, upstreamModel);
  const { prompt, completion, images = 0, seconds = 0, characters = 0, searches = 0, otherTools = 0 } = tokens;
  const used = prompt + completion + images + seconds + characters + searches + otherTools;
  const costNano = costOf(price, factor === undefined ? tokens : { ...tokens, factor });
  return { tokens, costNano, isKnown: used === 0 || knowsCost(price, tokens) };
}

/** Whether `costOf` has all that a call costs. Without the fee of a tool that ran, it is too low. */
export function knowsCost({ known, knowsSearch }: Price, { searches = 0, otherTools = 0 }: TokenCounts): boolean {
  return known && otherTools === 0 && (searches === 0 || knowsSearch);
}

function ratesFor({ rates, batch, tiers }: Price, { prompt, batch: isBatch }: TokenCounts): Rates {
  if (isBatch === true && batch !== undefined) return batch;
  return tiers?.find(({ above }) => prompt > above)?.rates ?? rates;
}

/** Whether a model is known to cost nothing, whatever kind of token it uses. */
export function isFree({ known, rates, batch = rates, tiers = [] }: Price): boolean {
  const all = [rates, batch, ...tiers.map((tier) => tier.rates)];
  return known && all.every((each) => Object.values(each).every((rate) => rate === 0));
}

export function nanoOfUsd(usd: number): number {
  return Math.min(Math.round(usd * NANO_PER_USD), Number.MAX_SAFE_INTEGER);
}

/** Nano-USD as the nearest number of USD, which JSON then writes with at most nine decimal places. */
export function usdOfNano(nano: number | bigint): number {
  return Number(nano) / NANO_PER_USD;
}

/** Nano-USD as decimal text in USD, never with an exponent: `0.0000015`. */
export function usdText(nano: number): string {
  const text = usdOfNano(nano).toFixed(9);
  let end = text.length;
  while (text[end - 1] === '0') end -= 1;
  return text.slice(0, text[end - 1] === '.' ? end - 1 : end);
}

/** USD per token, without the noise that a division of decimals would leave. */
export function usdOfRate(pico: number): number {
  return pico / PICO_PER_USD;
}

/**
 * Fields that a caller may send to have an answer sooner, or made in one country, for more money. Tables of prices do not have these
 * prices, and they differ from model to model: the highest one counts, so that a budget holds.
 */
const DEARER: Readonly<Record<string, ReadonlyMap<string, number>>> = {
  // OpenAI: 1.7 to 2.5 times the price.
  service_tier: new Map([['priority', 2.5]]),
  // Google and Bedrock have the same service, for up to twice the price.
  serviceTier: new Map([['priority', 2]]),
  // Claude's fast mode: twice or six times.
  speed: new Map([['fast', 6]]),
  inference_geo: new Map([['us', 1.1]]),
};

/** Returns the fields of a request that make its tokens dearer; undefined if there are none, which is usual. */
export function dearerFields(request: object): DearerFields | undefined {
  const given = request as Readonly<Record<string, unknown>>;
  let found: Record<string, number> | undefined;
  for (const name in DEARER) {
    const value = given[name];
    // Bedrock has an object with a type.
    const asked = typeof value === 'object' && value !== null && 'type' in value ? value.type : value;
    const factor = typeof asked === 'string' ? DEARER[name]?.get(asked.toLowerCase()) : undefined;
    if (factor === undefined) continue;
    found ??= {};
    found[name] = factor;
  }
  return found;
}

/** Returns how many times the price a token costs. A field that was dropped costs nothing. */
export function priceFactor(fields: DearerFields | undefined, dropped: readonly string[] = []): number {
  let factor = 1;
  for (const name in fields) if (!dropped.includes(name)) factor *= fields[name] ?? 1;
  return factor;
}

const MAX_TOKENS = 1_000_000_000;
const NO_DETAILS = {};

/**
 * The tokens that an upstream reports, by kind, under whichever names servers of OpenAI's dialect give them: details as
 * OpenAI has them, `prompt_cache_hit_tokens` (DeepSeek), `cached_tokens` (Moonshot), and Anthropic's own names.
 */
export function countTokens(usage: Usage | undefined): TokenCounts {
  if (usage === undefined) return { prompt: 0, completion: 0 };
  const raw = usage as Readonly<Record<string, unknown>>;
  const prompt = (usage.prompt_tokens_details ?? NO_DETAILS) as Readonly<Record<string, unknown>>;
  const completion = (usage.completion_tokens_details ?? NO_DETAILS) as Readonly<Record<string, unknown>>;
  const tools = (raw.server_tool_use ?? NO_DETAILS) as Readonly<Record<string, unknown>>;
  const lifetimes = (raw.cache_creation ?? NO_DETAILS) as Readonly<Record<string, unknown>>;
  const written =
    count(prompt.cache_creation_tokens) || count(prompt.cache_write_tokens) || count(raw.cache_creation_input_tokens);
  const hour = Math.min(count(prompt.cache_creation_1h_tokens) || count(lifetimes.ephemeral_1h_input_tokens), written);
  return {
    prompt: count(usage.prompt_tokens),
    completion: count(usage.completion_tokens),
    cacheRead:
      count(prompt.cached_tokens) ||
      count(raw.prompt_cache_hit_tokens) ||
      count(raw.cached_tokens) ||
      count(raw.cache_read_input_tokens),
    cacheWrite: written - hour,
    cacheWrite1h: hour,
    audioInput: count(prompt.audio_tokens),
    imageInput: count(prompt.image_tokens),
    audioOutput: count(completion.audio_tokens),
    reasoning: count(completion.reasoning_tokens),
    batch: raw.service_tier === 'batch',
    images: count(raw.images),
    seconds: count(raw.seconds),
    characters: count(raw.characters),
    searches: count(tools.web_search_requests) || otherSearches(raw),
    otherTools: count(tools.other_requests),
  };
}

/** Searches under the names of other APIs: how many (Perplexity, xAI), or that there was one (Perplexity). */
function otherSearches(raw: Readonly<Record<string, unknown>>): number {
  const asked = typeof raw.search_context_size === 'string' ? 1 : 0;
  return count(raw.num_search_queries) || count(raw.num_sources_used) || asked;
}

/** OpenAI's models that search for every answer, by their names. */
const ALWAYS_SEARCHES = /-search-(?:preview|api)(?:-|$)/;

/** The usage of a chat completion with the search that its API made and does not count. `asked`: the request wanted one. */
export function withSearch(usage: Usage, model: string, asked: boolean): Usage {
  if (usage.server_tool_use !== undefined || !(asked || ALWAYS_SEARCHES.test(model))) return usage;
  return { ...usage, server_tool_use: { web_search_requests: 1 } };
}

/** Upstreams report all sorts of things. */
function count(given: unknown): number {
  if (typeof given !== 'number' || !(given > 0)) return 0;
  return Math.min(Math.round(given), MAX_TOKENS);
}

type RatePrices = Omit<ModelPrices, 'batch' | 'tiers'>;

function ratesOf({ input, output, ...prices }: RatePrices): Rates {
  const pico = (usd: number) => Math.round(usd * PICO_PER_USD);
  const cacheWrite = prices.cacheWrite ?? input;
  return {
    input: pico(input),
    output: pico(output),
    cacheRead: pico(prices.cacheRead ?? input),
    cacheWrite: pico(cacheWrite),
    cacheWrite1h: pico(prices.cacheWrite1h ?? cacheWrite),
    audioInput: pico(prices.audioInput ?? input),
    imageInput: pico(prices.imageInput ?? input),
    audioOutput: pico(prices.audioOutput ?? output),
    reasoning: pico(prices.reasoning ?? output),
    perImage: pico(prices.perImage ?? 0),
    perSecond: pico(prices.perSecond ?? 0),
    perCharacter: pico(prices.perCharacter ?? 0),
    perSearch: pico(prices.perSearch ?? 0),
  };
}

type PriceSettings = CompletionsSettings['prices'][string];
type ConfiguredPrices = Pick<PriceSettings, 'input' | 'output'> & Partial<PriceSettings>;
type ConfiguredRates = Omit<ConfiguredPrices, 'batch_input' | 'batch_output' | 'tiers'>;

/** In the settings a negative price stands for one that is not given. */
function configuredPrice(given: ConfiguredPrices): Price {
  const { batch_input: input = -1, batch_output: output = -1, tiers = [], ...own } = given;
  return priceFrom({
    ...configuredRates(own),
    ...(input >= 0 && output >= 0 && { batch: { input, output } }),
    tiers: tiers.map(({ above, ...rates }) => ({ above, ...configuredRates(rates) })),
  });
}

function configuredRates(given: ConfiguredRates): RatePrices {
  const set = (name: keyof RatePrices, usd = -1) => (usd < 0 ? {} : { [name]: usd });
  return {
    input: given.input,
    output: given.output,
    ...set('cacheRead', given.cache_read),
    ...set('cacheWrite', given.cache_write),
    ...set('cacheWrite1h', given.cache_write_1h),
    ...set('audioInput', given.audio_input),
    ...set('imageInput', given.image_input),
    ...set('audioOutput', given.audio_output),
    ...set('reasoning', given.reasoning),
    ...set('perImage', given.per_image),
    ...set('perSecond', given.per_second),
    ...set('perCharacter', given.per_character),
    ...set('perSearch', given.per_search),
  };
}
