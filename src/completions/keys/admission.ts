import type { AppError } from '../../platform/errors/app-error.ts';
import type { Bucket, Owner } from '../../platform/identity/owner.ts';
import { costOf, countTokens, type PriceOf } from '../apis/prices.ts';
import type { Usage } from '../contract/chat.ts';

/** Who calls the completions API. `id` is what usage is recorded under. */
export interface KeyHolder {
  /** `key_...`, or `master`, `open` (nothing is configured) and `internal` (another part of this program). */
  readonly id: string;
  /** The user that the key belongs to; empty for none. */
  readonly owner: string;
  /** Only the master key, or anybody while nothing is configured, may manage keys and see all usage. */
  readonly isMaster: boolean;
  /** Whether the key may use a model: an alias, or `<api>/<model>`. */
  mayUse(model: string): boolean;
  /** The limits and budgets that apply, all of them: the key's own, and those of its owner. Empty: none. */
  readonly buckets: readonly Bucket[];
  /** The person whose key it is, where persons are known. Its state is looked at again when a call is admitted. */
  readonly person?: Owner;
}

/** A call under way, as it can be ended from outside. */
export interface RunningCall {
  leave(reason: AppError): void;
}

interface AdmissionRequest {
  /** Tokens that the call may cost, for limits by token and for the reservation of a budget. */
  readonly estimatedTokens: number;
  readonly estimatedCostNano: number;
  /** False when every model that may answer is known to be free: only then a budget of 0 admits the call. */
  readonly mayCost: boolean;
  /** Ended when the owner of the key is paused while the call runs. */
  readonly call?: RunningCall;
}

/** How a call ended, for metering (contract/completions 6). */
export interface CallOutcome {
  readonly model: string;
  /** Of the target that answered, or that was tried last; empty when none was. */
  readonly api: string;
  readonly upstreamModel: string;
  readonly usage: Usage | undefined;
  /** The usage was counted by us because the upstream gave none. */
  readonly estimated: boolean;
  readonly outcome: 'ok' | 'error' | 'aborted' | 'partial' | 'cached';
  readonly status: number;
  readonly attempts: number;
  readonly durationMs: number;
  /** To the first event of a stream; equal to `durationMs` otherwise. */
  readonly firstTokenMs: number;
  readonly requestId: string;
  /** `embeddings` and `text_completion` where it was no chat. */
  readonly operation?: 'chat' | 'text_completion' | 'embeddings';
  /** What was asked and answered, as JSON. Only given when the admission keeps content. */
  readonly content?: { readonly request: string; readonly answer: string };
}

/** A call that was let in. `settle` is called exactly once, however the call ends. */
export interface Admission {
  /** For the headers `x-ratelimit-*`; empty when the key has no limit. */
  readonly headers: Readonly<Record<string, string>>;
  /** `outcome.content` is stored: give it. False unless it is configured so. */
  readonly keepsContent: boolean;
  /** Feeds limits, budget, usage records, metrics and spans. */
  settle(outcome: CallOutcome): void;
}

/** Limits and budgets of keys and of their owners. Synchronous, because every call passes through it. */
export interface Admissions {
  /**
   * Throws `RATE_LIMIT_EXCEEDED` (with `retryAfterSeconds`, and `headers` for the answer in its details) or
   * `BUDGET_EXCEEDED`, or `INVALID_API_KEY` when the owner was paused since the key was looked up. Whether the key may use
   * the model was checked before. All buckets are charged, or none.
   */
  admit(holder: KeyHolder, request: AdmissionRequest): Admission;
}

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
