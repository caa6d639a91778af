import type { AppError } from '../../platform/errors/app-error.ts';
import type { Bucket, Owner } from '../../platform/identity/owner.ts';
import { ownersSought, type Principal } from '../../platform/identity/principal.ts';
import type { Bagged } from '../../platform/queue/after-reads.ts';
import type { TraceContext } from '../../platform/telemetry/spans.ts';
import { type PriceOf, priceUsage, type UsedAt } from '../apis/prices.ts';
import type { Usage } from '../contract/chat.ts';
import type { ApiBudgets } from './budgets.ts';

/** The id for calls of another part of this program, and of agents that it has started. */
export const INTERNAL_ID = 'internal';

/** Which calls are stored with their request and response. */
export type StoreContent = 'none' | 'errors' | 'all';

/** Who calls the completions API. `id` is what usage is recorded under. */
export interface KeyHolder {
  /** `key_...`, or `master`, `open` (nothing is configured) and `internal` (another part of this program). */
  readonly id: string;
  /** The user that the key belongs to; empty for none. */
  readonly owner: string;
  /** `team:<id>` of the team that the call is for. */
  readonly team?: string;
  /** The tags of the key and of the call's own header, sorted. */
  readonly tags?: readonly string[];
  /** Undefined: as configured. */
  readonly storeContent?: StoreContent | undefined;
  /** The caller's span that contains the call (`traceparent`). */
  readonly trace?: TraceContext;
  /** Only the master key, or anybody while nothing is configured, may manage keys and see all usage. */
  readonly isMaster: boolean;
  /** Whether the key may use a model: an alias, or `<api>/<model>`. */
  mayUse(model: string): boolean;
  /** The limits and budgets that apply, all of them: the key's own, and those of its owner. Empty: none. */
  readonly buckets: readonly Bucket[];
  /** Set when the caller came with a login or an access token instead of a key. */
  readonly principal?: Principal;
  /** Counts the calls with this key, and what they cost. */
  readonly tally?: Pick<CallTally, 'begin' | 'end'>;
  /** The person who owns the key, if accounts run here. Their state is checked again when a call is admitted. */
  readonly person?: Owner;
}

/**
 * Names a caller, for what is kept for that caller alone. The id is not enough: all people with a login have one id, and so have all
 * programs that work for owners.
 */
export function callerName({ id, owner }: Pick<KeyHolder, 'id' | 'owner'>): string {
  return owner === '' ? id : `${id} ${owner}`;
}

/** Whether the holder sees the work of everyone: the master key, and people who may. */
export function seesAll({ isMaster, principal }: Pick<KeyHolder, 'isMaster' | 'principal'>): boolean {
  return isMaster || (principal !== undefined && ownersSought(principal) === undefined);
}

/** Adds up the cost of calls with the key of one program, for each piece of work of the program. */
export interface CallTally {
  /** Called when a call was admitted. */
  begin(): void;
  /** Called when the call has ended. Undefined: its price is not known. */
  end(costNano: number | undefined): void;
  /**
   * Begins a piece of work. The result ends it, and returns its cost in USD: undefined where other work overlapped, where a
   * call is still under way or has no known price, and where there was no call at all. Nothing is guessed.
   */
  meter(): () => number | undefined;
}

const NANO_PER_USD = 1e9;

export function createCallTally(): CallTally {
  let calls = 0;
  let underWay = 0;
  let unpriced = 0;
  let nano = 0;
  let works = 0;
  let lastWork = 0;
  return {
    begin() {
      calls += 1;
      underWay += 1;
    },
    end(costNano) {
      underWay -= 1;
      if (costNano === undefined) unpriced += 1;
      else nano += costNano;
    },
    meter() {
      works += 1;
      lastWork += 1;
      const before = { calls, unpriced, nano, work: lastWork, isAlone: works === 1 && underWay === 0 };
      return () => {
        works -= 1;
        const isAlone = before.isAlone && before.work === lastWork && underWay === 0;
        const isPriced = calls > before.calls && unpriced === before.unpriced;
        return isAlone && isPriced ? (nano - before.nano) / NANO_PER_USD : undefined;
      };
    },
  };
}

/** A running call that can be ended from outside. */
export interface RunningCall extends Bagged {
  leave(reason: AppError): void;
}

export interface AdmissionRequest {
  /** Tokens that the call may cost, for limits by token and for the reservation of a budget. */
  readonly estimatedTokens: number;
  readonly estimatedCostNano: number;
  /** False when every model that may answer is known to be free: only then a budget of 0 admits the call. */
  readonly mayCost: boolean;
  /** The call concerns an object that was paid for before, such as the results of a batch, so budgets do not refuse it. */
  readonly isPaid?: boolean;
  /** The call, which is ended if the owner of the key is paused while it runs. */
  readonly call?: RunningCall;
}

/** A try that failed, before another one was made or the call was given up. */
export interface FailedAttempt {
  /** `<api>/<model>` */
  readonly target: string;
  readonly code: string;
  readonly ms: number;
}

/** What was called; the names of GenAI spans where these have one. */
export type CallOperation =
  | 'chat'
  | 'text_completion'
  | 'embeddings'
  | 'count_tokens'
  | 'image'
  | 'speech'
  | 'transcription'
  | 'moderation'
  | 'rerank'
  | 'file'
  | 'batch';

/** The result of a call, for metering. */
export interface CallOutcome extends UsedAt {
  readonly model: string;
  /** The API of the target that responded, or that was tried last; empty if none was tried. */
  readonly api: string;
  /** All that the call used, also for tries that failed. */
  readonly usage: Usage | undefined;
  /** The parts of `usage` with the target of each, because each has its own price. Absent: all of it is that of the target above. */
  readonly usedBy?: readonly UsedAt[];
  /** Trestle counted the usage, because the upstream sent none. */
  readonly estimated: boolean;
  readonly outcome: 'ok' | 'error' | 'aborted' | 'partial' | 'cached';
  readonly status: number;
  readonly attempts: number;
  readonly failures?: readonly FailedAttempt[] | undefined;
  readonly durationMs: number;
  /** To the first event of a stream; equal to `durationMs` otherwise. */
  readonly firstTokenMs: number;
  readonly requestId: string;
  /** The operation, if it was not a chat. */
  readonly operation?: CallOperation;
  /** Request and response, as JSON. Only set if the admission keeps content. */
  readonly content?: { readonly request: string; readonly answer: string };
}

/** An admitted call. `settle` must be called exactly once, however the call ends. */
export interface Admission {
  /** For the headers `x-ratelimit-*`; empty when the key has no limit. */
  readonly headers: Readonly<Record<string, string>>;
  /** Whether `outcome.content` is stored, and so must be set. */
  readonly keepsContent: boolean;
  /**
   * Feeds limits, budget, usage records, metrics and spans. Returns the call with its cost; undefined if it was settled before.
   */
  settle(outcome: CallOutcome): SettledCall | undefined;
}

/** Applies limits and budgets of keys and of their owners to every call. */
export interface Admissions {
  /** Budgets of model APIs; undefined: none has one. */
  readonly apis?: ApiBudgets | undefined;
  /**
   * Throws `TOO_MANY_PARALLEL_CALLS`, `RATE_LIMIT_EXCEEDED` (with `retryAfterSeconds`, and `headers` for the answer in its details) or
   * `BUDGET_EXCEEDED`, or `INVALID_API_KEY` when the owner was paused since the key was looked up. Whether the key may use
   * the model was checked before. All buckets are charged, or none. Waits only where other instances count too.
   */
  admit(holder: KeyHolder, request: AdmissionRequest): Admission | Promise<Admission>;
}

/** A call that has ended, with its cost. Usage records, metrics and spans are made from it. */
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
  /** The cost by API, if tries that failed were charged too. Absent: all of it is that of the API that answered. */
  readonly costs?: ReadonlyMap<string, number>;
}

/** Where the cost of a call is added up. */
export interface Charge {
  /** Of a key, of a person (`user:usr_...`) or of an API (`api:openai`). */
  readonly bucket: string;
  /** `2030-01-31`, `2030-01` or `total`. */
  readonly period: string;
  /** The part of the cost that counts here. Absent: all of it. */
  readonly costNano?: number;
}

/** Observes every call that has ended. It must be fast, and must not throw. */
export type CallObserver = (call: SettledCall) => void;

/** Computes the cost of a call. A response from the cache costs nothing, because no model was used. */
export function priceCall(holder: KeyHolder, outcome: CallOutcome, priceOf: PriceOf): SettledCall {
  const { usedBy } = outcome;
  const priced = priceUsage(priceOf, outcome.outcome === 'cached' ? { ...outcome, usage: undefined } : outcome);
  const { prompt: promptTokens, completion: completionTokens } = priced.tokens;
  if (usedBy === undefined) {
    return { holder, outcome, promptTokens, completionTokens, costNano: priced.costNano, priceKnown: priced.isKnown };
  }
  const costs = new Map<string, number>();
  let costNano = 0;
  let priceKnown = true;
  for (const part of usedBy) {
    const cost = priceUsage(priceOf, part);
    costs.set(part.api, (costs.get(part.api) ?? 0) + cost.costNano);
    costNano += cost.costNano;
    priceKnown &&= cost.isKnown;
  }
  return { holder, outcome, promptTokens, completionTokens, costNano, priceKnown, costs };
}

/** Returns the cost of a call in nano-USD by API. */
export function costsByApi({ outcome, costNano, costs }: SettledCall): ReadonlyMap<string, number> {
  return costs ?? new Map([[outcome.api, costNano]]);
}
