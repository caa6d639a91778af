import { costOf, type PriceOf } from '../apis/prices.ts';
import type { CallOutcome, KeyHolder } from './admission.ts';

/** A call that has ended, with what it cost: what usage records, metrics and spans are made of. */
export interface SettledCall {
  readonly holder: KeyHolder;
  readonly outcome: CallOutcome;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly costUsd: number;
  readonly priceKnown: boolean;
  /** The period of the key's budget that it counts for. */
  readonly spendingPeriod?: string;
}

/** Looks at every call that has ended. It must be quick, and throws nothing. */
export type CallObserver = (call: SettledCall) => void;

const MOST_TOKENS = 1_000_000_000_000;

/** An answer from the cache used no model: it costs nothing. */
export function priceCall(holder: KeyHolder, outcome: CallOutcome, priceOf: PriceOf): SettledCall {
  const cached = outcome.outcome === 'cached';
  const promptTokens = cached ? 0 : tokens(outcome.usage?.prompt_tokens);
  const completionTokens = cached ? 0 : tokens(outcome.usage?.completion_tokens);
  const price = priceOf(outcome.api, outcome.upstreamModel);
  const costUsd = costOf(price, { prompt: promptTokens, completion: completionTokens });
  const priceKnown = price.known || promptTokens + completionTokens === 0;
  return { holder, outcome, promptTokens, completionTokens, costUsd, priceKnown };
}

/** Upstreams say all sorts of things. */
function tokens(given: unknown): number {
  if (typeof given !== 'number' || !(given > 0)) return 0;
  return Math.min(Math.round(given), MOST_TOKENS);
}
