import { type TakenFacts, THINKING_STYLES } from '../dialects/dialect.ts';
import { hostModels } from './known-models/host-models.ts';
import { makerModels } from './known-models/maker-models.ts';
import { platformModels } from './known-models/platform-models.ts';
import type { KnownModel, ModelPrices, TokenPrices } from './model-api.ts';

/**
 * The day on which sizes and the prices of prompts and answers were taken from models.dev (MIT). The prices of caches,
 * audio and long prompts are those of models.dev too, except where a vendor's own page says otherwise: the makers' lines
 * of Anthropic (its price table; `write1h`), and of DeepSeek (its price table). A price that no source confirmed is left
 * out, so that such tokens cost as much as the rest of the prompt. OpenAI's price page has what `whisper-1` costs for a second and
 * `tts-1` for a character.
 */
export const MODELS_DATE = '2026-07-02';

const tables: Readonly<Record<string, string>> = { ...hostModels, ...makerModels, ...platformModels };
const read = new Map<string, ReadonlyMap<string, KnownModel>>();
const NONE: ReadonlyMap<string, KnownModel> = new Map();

/** The known models of an API, by the upstream's own name. An API's lines are read when it is first asked for. */
export function knownModels(api: string): ReadonlyMap<string, KnownModel> {
  const known = read.get(api);
  if (known !== undefined) return known;
  const text = Object.hasOwn(tables, api) ? tables[api] : undefined;
  if (text === undefined) return NONE;
  const models = new Map(parseModels(api, text).map((model) => [model.id, model]));
  read.set(api, models);
  return models;
}

/**
 * A line for each model: its name, the context window and the longest answer in tokens, the prices of a million tokens
 * of prompt and of answer in USD, and what it takes as input. A dash stands for what is not known. Other prices of a
 * million tokens follow by name: `read` and `write` (a cache), `write1h` (a cache that lasts an hour), `audio` and
 * `image` (input), `each_image`, `each_second`, `each_character` and `each_search` (of one, not of a million) and `over` (a tier: more prompt tokens than so many, input/output/read). `by=responses`: OpenAI serves it
 * at `/responses` alone; `by=rawPredict`: Vertex serves it in the form of the Messages API. `can=tools,reasoning`: what it can do of these two; `can=-`: neither. `thinks=level:low,high`: how
 * it is asked to think, and the efforts that it knows (`ThinkingFacts`). `takes=sampling1,schema`: what its API takes for it (`TakenFacts`).
 */
export function parseModels(api: string, text: string): readonly KnownModel[] {
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line) => {
    const [id = '', context = '-', output = '-', inputPrice = '-', outputPrice = '-', modalities = '-', ...more] =
      line.split(' ');
    const hasPrice = inputPrice !== '-' && outputPrice !== '-';
    return {
      api,
      id,
      ...(context !== '-' && { contextWindow: Number(context) }),
      ...(output !== '-' && { maxOutputTokens: Number(output) }),
      ...(hasPrice && {
        prices: {
          ...{ input: perToken(inputPrice), output: perToken(outputPrice) },
          ...(readAbilities(more).tools === true && SEARCH_FEES[api]),
          ...readPrices(more),
        },
      }),
      ...(modalities !== '-' && { inputModalities: modalities.split(',') }),
      ...(more.includes(BY_RESPONSES) && { operation: 'responses' as const }),
      ...(more.includes(BY_RAW_PREDICT) && { operation: 'rawPredict' as const }),
      ...readAbilities(more),
      ...readThinking(more),
      ...readTaken(more),
    };
  });
}

/** What these APIs take for each search of the web, whichever model asks for it. */
const SEARCH_FEES: Readonly<Record<string, { readonly perSearch: number }>> = {
  anthropic: { perSearch: 0.01 },
  openai: { perSearch: 0.01 },
};

const BY_RESPONSES = 'by=responses';
const BY_RAW_PREDICT = 'by=rawPredict';

const CAN = 'can=';

function readAbilities(fields: readonly string[]): Pick<KnownModel, 'tools' | 'reasoning'> {
  const abilities = fields
    .find((field) => field.startsWith(CAN))
    ?.slice(CAN.length)
    .split(',');
  if (abilities === undefined) return {};
  return { tools: abilities.includes('tools'), reasoning: abilities.includes('reasoning') };
}

const THINKS = 'thinks=';

function readThinking(fields: readonly string[]): Pick<KnownModel, 'thinking'> {
  const [given, efforts = ''] =
    fields
      .find((field) => field.startsWith(THINKS))
      ?.slice(THINKS.length)
      .split(':') ?? [];
  const style = THINKING_STYLES.find((each) => each === given);
  return style === undefined
    ? {}
    : { thinking: { style, efforts: efforts.split(',').filter((effort) => effort !== '') } };
}

const TAKES = 'takes=';
const TAKEN_WORDS: Readonly<Record<string, TakenFacts>> = {
  sampling0: { sampling: 0 },
  sampling1: { sampling: 1 },
  sampling2: { sampling: 2 },
  schema: { structuredOutput: true },
  noschema: { structuredOutput: false },
  temperature1: { maxTemperature: 1 },
  claude: { isClaude: true },
  jsonschema: { jsonSchema: true },
  jsontools: { jsonWithTools: true },
  proofs: { needsProofs: true },
};
/** What a row that says what its model takes does not have. */
const NOT_TAKEN: TakenFacts = { isClaude: false, jsonSchema: false, jsonWithTools: false, needsProofs: false };

function readTaken(fields: readonly string[]): TakenFacts {
  const given = fields.find((field) => field.startsWith(TAKES))?.slice(TAKES.length);
  if (given === undefined) return {};
  const facts = given.split(',').map((word) => {
    const fact = TAKEN_WORDS[word];
    if (fact === undefined) throw new TypeError(`the table of models has no word "${word}" for what a model takes`);
    return fact;
  });
  return Object.assign({}, NOT_TAKEN, ...facts);
}

const PRICE_NAMES: Readonly<Record<string, keyof TokenPrices>> = {
  read: 'cacheRead',
  write: 'cacheWrite',
  write1h: 'cacheWrite1h',
  audio: 'audioInput',
  image: 'imageInput',
};

const EACH_NAMES: Readonly<Record<string, keyof TokenPrices>> = {
  each_image: 'perImage',
  each_second: 'perSecond',
  each_character: 'perCharacter',
  each_search: 'perSearch',
};

function readPrices(fields: readonly string[]): Partial<ModelPrices> {
  const prices: { -readonly [Name in keyof ModelPrices]?: ModelPrices[Name] } = {};
  for (const field of fields) {
    if (field === BY_RESPONSES || field === BY_RAW_PREDICT) continue;
    if ([CAN, THINKS, TAKES].some((column) => field.startsWith(column))) continue;
    const [name = '', value = ''] = field.split('=');
    const known = PRICE_NAMES[name];
    const each = EACH_NAMES[name];
    if (known !== undefined) prices[known] = perToken(value);
    else if (each !== undefined) prices[each] = Number(value);
    else if (name === 'over') {
      const [above, rates = ''] = value.split(':');
      prices.tiers = [...(prices.tiers ?? []), { above: Number(above), ...readTier(rates) }];
    } else throw new TypeError(`the table of models has no column "${name}"`);
  }
  return prices;
}

/** `3/15`, or `3/15/0.3` with the price of what is read from a cache. */
function readTier(text: string): TokenPrices {
  const [input = '', output = '', cacheRead] = text.split('/');
  return {
    input: perToken(input),
    output: perToken(output),
    ...(cacheRead !== undefined && { cacheRead: perToken(cacheRead) }),
  };
}

/** The price of a million tokens, as decimal text, for one token: the same number as its decimal text would give. */
function perToken(usdPerMillion: string): number {
  return Number(`${usdPerMillion}e-6`);
}
