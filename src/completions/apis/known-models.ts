import { hostModels } from './known-models/host-models.ts';
import { makerModels } from './known-models/maker-models.ts';
import { platformModels } from './known-models/platform-models.ts';
import type { KnownModel } from './model-api.ts';

/** The day on which sizes and prices were taken from models.dev (MIT). */
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
 * of prompt and of answer in USD, and what it takes as input. A dash stands for what is not known.
 */
export function parseModels(api: string, text: string): readonly KnownModel[] {
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line) => {
    const [id = '', context = '-', output = '-', inputPrice = '-', outputPrice = '-', modalities = '-'] =
      line.split(' ');
    return {
      api,
      id,
      ...(context !== '-' && { contextWindow: Number(context) }),
      ...(output !== '-' && { maxOutputTokens: Number(output) }),
      ...(inputPrice !== '-' && { inputPrice: Number(inputPrice) / 1_000_000 }),
      ...(outputPrice !== '-' && { outputPrice: Number(outputPrice) / 1_000_000 }),
      ...(modalities !== '-' && { inputModalities: modalities.split(',') }),
    };
  });
}
