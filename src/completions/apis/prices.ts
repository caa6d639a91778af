import type { CompletionsSettings } from '../settings.ts';
import { DEMO_MODEL } from './demo-echo.ts';
import { knownModels } from './known-models.ts';

/** USD per token. `known` is false where nobody told: such a model counts as free, and its calls are flagged. */
export interface Price {
  readonly input: number;
  readonly output: number;
  readonly known: boolean;
}

export type PriceOf = (api: string, upstreamModel: string) => Price;

const FREE: Price = { input: 0, output: 0, known: true };
const UNKNOWN: Price = { input: 0, output: 0, known: false };

/** Prices as configured, else as in the table (contract/completions 6). */
export function createPrices(configured: CompletionsSettings['prices']): PriceOf {
  const own = new Map(Object.entries(configured).map(([name, price]) => [name, { ...price, known: true }]));
  return (api, upstreamModel) => {
    const price = own.get(`${api}/${upstreamModel}`);
    if (price !== undefined) return price;
    if (DEMO_MODEL.startsWith(`${api}/`)) return FREE;
    const model = knownModels(api).get(upstreamModel);
    if (model?.inputPrice === undefined || model.outputPrice === undefined) return UNKNOWN;
    return { input: model.inputPrice, output: model.outputPrice, known: true };
  };
}

export function costOf(price: Price, tokens: { readonly prompt: number; readonly completion: number }): number {
  return tokens.prompt * price.input + tokens.completion * price.output;
}
