import { type Static, Type } from 'typebox';
import { Compile, type Validator } from 'typebox/schema';
import { AppError } from '../../platform/errors/app-error.ts';
import { findIssues, firstIssue } from '../../platform/json/describe-issues.ts';
import { type TakenFacts, THINKING_STYLES } from '../dialects/dialect.ts';
import { knownModels, MODELS_DATE } from './known-models.ts';
import type { KnownModel, ModelPrices, TokenPrices } from './model-api.ts';

/** What is known of models: the built-in table, and over it what an update says. */
export interface Catalogue {
  /** The known models of an API, by the upstream's own name. */
  modelsOf(api: string): ReadonlyMap<string, KnownModel>;
  /** The day of its facts. */
  date(): string;
  /** Grows with each update, for those who keep something that they have read here. */
  revision(): number;
  /** Puts an update in the place of the one before. */
  use(update: CatalogueUpdate): void;
}

/** Models that were read from a file or an address, by API. */
export interface CatalogueUpdate {
  readonly date: string;
  readonly models: ReadonlyMap<string, readonly KnownModel[]>;
}

export function createCatalogue(): Catalogue {
  let update: CatalogueUpdate | undefined;
  let merged = new Map<string, ReadonlyMap<string, KnownModel>>();
  let revision = 0;
  return {
    modelsOf(api) {
      const given = update?.models.get(api);
      if (given === undefined) return knownModels(api);
      const known = merged.get(api) ?? merge(knownModels(api), given);
      merged.set(api, known);
      return known;
    },
    date: () => update?.date ?? MODELS_DATE,
    revision: () => revision,
    use(next) {
      update = next;
      merged = new Map();
      revision += 1;
    },
  };
}

/** A model that the update lacks stays: its calls would otherwise count as free. */
function merge(
  builtIn: ReadonlyMap<string, KnownModel>,
  given: readonly KnownModel[],
): ReadonlyMap<string, KnownModel> {
  const models = new Map(builtIn);
  for (const model of given) {
    const known = builtIn.get(model.id);
    const prices = mergePrices(known?.prices, model.prices);
    models.set(model.id, { ...known, ...model, ...(prices !== undefined && { prices }) });
  }
  return models;
}

/** Prices that only the built-in table has hold as long as a token of the prompt costs what it did. */
function mergePrices(known: ModelPrices | undefined, given: ModelPrices | undefined): ModelPrices | undefined {
  if (known === undefined || given === undefined) return given ?? known;
  return known.input === given.input && known.output === given.output ? { ...known, ...given } : given;
}

const MAX_PER_MILLION = 1_000_000;
const MAX_TOKENS = 1_000_000_000;
const Price = Type.Optional(Type.Number({ minimum: 0, maximum: MAX_PER_MILLION }));
const Cost = Type.Object({
  input: Type.Number({ minimum: 0, maximum: MAX_PER_MILLION }),
  output: Type.Number({ minimum: 0, maximum: MAX_PER_MILLION }),
  reasoning: Price,
  cache_read: Price,
  cache_write: Price,
  cache_write_1h: Price,
  input_audio: Price,
  output_audio: Price,
  input_image: Price,
  per_image: Price,
  per_second: Price,
  per_character: Price,
  per_search: Price,
});
const Tokens = Type.Optional(Type.Integer({ minimum: 0, maximum: MAX_TOKENS }));
const Flag = Type.Optional(Type.Boolean());
const Day = Type.Optional(Type.String({ pattern: '^\\d{4}(-\\d{2}){0,2}$' }));
const Modalities = Type.Optional(Type.Array(Type.String({ maxLength: 32 }), { maxItems: 16 }));

const ModelFacts = Type.Object({
  limit: Type.Optional(Type.Object({ context: Tokens, output: Tokens })),
  modalities: Type.Optional(Type.Object({ input: Modalities, output: Modalities })),
  tool_call: Flag,
  structured_output: Flag,
  reasoning: Flag,
  temperature: Flag,
  thinking: Type.Optional(
    Type.Object({
      style: Type.Union(THINKING_STYLES.map((style) => Type.Literal(style))),
      efforts: Type.Array(Type.String({ maxLength: 16 }), { maxItems: 16 }),
    }),
  ),
  takes: Type.Optional(
    Type.Object({
      sampling: Type.Optional(Type.Union([Type.Literal(0), Type.Literal(1), Type.Literal(2)])),
      max_temperature: Type.Optional(Type.Number({ minimum: 0, maximum: 2 })),
      claude: Flag,
      json_schema: Flag,
      json_with_tools: Flag,
      needs_proofs: Flag,
    }),
  ),
  release_date: Day,
  last_updated: Day,
  knowledge: Day,
  cost: Type.Optional(
    Type.Object({
      ...Cost.properties,
      batch: Type.Optional(Cost),
      context_over_200k: Type.Optional(Cost),
    }),
  ),
  provider: Type.Optional(
    Type.Object({
      shape: Type.Optional(Type.String({ maxLength: 32 })),
      npm: Type.Optional(Type.String({ maxLength: 128 })),
    }),
  ),
});
type ModelFacts = Static<typeof ModelFacts>;

/** The form of `https://models.dev/api.json`, with prices of a million tokens, and of one image, second, character or search (`per_...`); what we do not know is left out. */
const CatalogueFile = Type.Record(
  Type.String({ pattern: '^[^\\s/]{1,64}$' }),
  Type.Object({ models: Type.Record(Type.String({ pattern: '^[^\\s\\u0000-\\u001f]{1,200}$' }), ModelFacts) }),
);

const MAX_MODELS = 50_000;
const LONG_PROMPT = 200_000;
let validator: Validator | undefined;

/** Throws INVALID_CATALOG, naming the first value that is wrong. `date` is the day on which it was read. */
export function readCatalogue(text: string, date: string): CatalogueUpdate {
  const value = parse(text);
  validator ??= Compile(CatalogueFile);
  if (!validator.Check(value)) refuse(firstIssue(findIssues(validator, value)));
  const apis = Object.entries(value as Static<typeof CatalogueFile>);
  const count = apis.reduce((all, [, { models }]) => all + Object.keys(models).length, 0);
  if (count === 0) refuse('it has no models');
  if (count > MAX_MODELS) refuse(`it has more than ${MAX_MODELS} models`);
  return {
    date,
    models: new Map(
      apis.map(([api, { models }]) => [api, Object.entries(models).map((entry) => readModel(api, entry))]),
    ),
  };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return refuse('it is not JSON');
  }
}

function refuse(reason: string): never {
  throw new AppError('INVALID_CATALOG', { reason });
}

/** How models.dev marks Claude's models on Vertex: by the library that calls them. */
const VERTEX_CLAUDE = '@ai-sdk/google-vertex/anthropic';

function readModel(api: string, [id, facts]: readonly [string, ModelFacts]): KnownModel {
  const { limit, modalities, cost, tool_call: tools, structured_output: structured, reasoning, temperature } = facts;
  const { release_date: released, last_updated: updated, knowledge } = facts;
  return {
    api,
    id,
    // A size of 0 stands for one that is not known.
    ...(limit?.context && { contextWindow: limit.context }),
    ...(limit?.output && { maxOutputTokens: limit.output }),
    ...(cost !== undefined && { prices: readPrices(cost) }),
    ...(modalities?.input !== undefined && { inputModalities: modalities.input }),
    ...(modalities?.output !== undefined && { outputModalities: modalities.output }),
    ...(tools !== undefined && { tools }),
    ...(structured !== undefined && { structuredOutput: structured }),
    ...(reasoning !== undefined && { reasoning }),
    ...(temperature !== undefined && { temperature }),
    ...(facts.thinking !== undefined && { thinking: facts.thinking }),
    ...readTaken(facts.takes ?? {}),
    ...(released !== undefined && { released }),
    ...(updated !== undefined && { updated }),
    ...(knowledge !== undefined && { knowledge }),
    ...(facts.provider?.shape === 'responses' && { operation: 'responses' as const }),
    ...(facts.provider?.npm === VERTEX_CLAUDE && { operation: 'rawPredict' as const }),
  };
}

function readTaken(takes: NonNullable<ModelFacts['takes']>): TakenFacts {
  const { sampling, max_temperature: warmest, claude, json_schema: schema } = takes;
  const { json_with_tools: both, needs_proofs: proofs } = takes;
  return {
    ...(sampling !== undefined && { sampling }),
    ...(warmest !== undefined && { maxTemperature: warmest }),
    ...(claude !== undefined && { isClaude: claude }),
    ...(schema !== undefined && { jsonSchema: schema }),
    ...(both !== undefined && { jsonWithTools: both }),
    ...(proofs !== undefined && { needsProofs: proofs }),
  };
}

function readPrices({ batch, context_over_200k: long, ...base }: NonNullable<ModelFacts['cost']>): ModelPrices {
  return {
    ...readRates(base),
    ...(batch !== undefined && { batch: readRates(batch) }),
    ...(long !== undefined && { tiers: [{ above: LONG_PROMPT, ...readRates(long) }] }),
  };
}

function readRates(cost: Static<typeof Cost>): TokenPrices {
  const own = (name: keyof TokenPrices, usd: number | undefined) =>
    usd === undefined ? {} : { [name]: perToken(usd) };
  return {
    input: perToken(cost.input),
    output: perToken(cost.output),
    ...own('reasoning', cost.reasoning),
    ...own('cacheRead', cost.cache_read),
    ...own('cacheWrite', cost.cache_write),
    ...own('cacheWrite1h', cost.cache_write_1h),
    ...own('audioInput', cost.input_audio),
    ...own('audioOutput', cost.output_audio),
    ...own('imageInput', cost.input_image),
    // Of one, not of a million.
    ...(cost.per_image !== undefined && { perImage: cost.per_image }),
    ...(cost.per_second !== undefined && { perSecond: cost.per_second }),
    ...(cost.per_character !== undefined && { perCharacter: cost.per_character }),
    ...(cost.per_search !== undefined && { perSearch: cost.per_search }),
  };
}

/** Prices have at most six decimal places for a million tokens, so that money is added without a rounding error. */
function perToken(usdPerMillion: number): number {
  return Number(`${usdPerMillion.toFixed(6)}e-6`);
}
