import { costOf, countTokens, type PriceOf } from '../apis/prices.ts';
import type { CallOutcome, KeyHolder } from './admission.ts';

/** A call that has ended, with what it cost: what usage records, metrics and spans are made of. */
export interface SettledCall {
  readonly holder: KeyHolder;
  readonly outcome: CallOutcome;
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** In nano-USD: a whole number, so that sums are exact. */
  readonly costNano: number;
  readonly priceKnown: boolean;
  /** The budgets that it counts for, each with its period. */
  readonly charges?: readonly Charge[];
}

/** Where the cost of a call is added up. */
export interface Charge {
  /** Of a key, or of a person (`user:usr_...`). */
  readonly bucket: string;
  /** `2030-01-31`, `2030-01` or `total`. */
  readonly period: string;
}

/** Looks at every call that has ended. It must be quick, and throws nothing. */
export type CallObserver = (call: SettledCall) => void;

/** An answer from the cache used no model: it costs nothing. */
export function priceCall(holder: KeyHolder, outcome: CallOutcome, priceOf: PriceOf): SettledCall {
  const tokens = countTokens(outcome.outcome === 'cached' ? undefined : outcome.usage);
  const { prompt: promptTokens, completion: completionTokens } = tokens;
  const price = priceOf(outcome.api, outcome.upstreamModel);
  const costNano = costOf(price, tokens);
  const priceKnown = price.known || promptTokens + completionTokens === 0;
  return { holder, outcome, promptTokens, completionTokens, costNano, priceKnown };
}
