import type { AppError } from '../../platform/errors/app-error.ts';
import type { Bucket, Owner } from '../../platform/identity/owner.ts';
import { ownersSought, type Principal } from '../../platform/identity/principal.ts';
import type { Bagged } from '../../platform/queue/after-reads.ts';
import type { TraceContext } from '../../platform/telemetry/spans.ts';
import { costOf, countTokens, knowsCost, type PriceOf } from '../apis/prices.ts';
import type { Usage } from '../contract/chat.ts';
import type { ApiBudgets } from './budgets.ts';

/** The holder of calls that another part of this program makes, or an agent that it has started. */
export const INTERNAL_ID = 'internal';

/** Which calls are stored with what was asked and answered. */
export type StoreContent = 'none' | 'errors' | 'all';

/** Who calls the completions API. `id` is what usage is recorded under. */
export interface KeyHolder {
  /** `key_...`, or `master`, `open` (nothing is configured) and `internal` (another part of this program). */
  readonly id: string;
  /** The user that the key belongs to; empty for none. */
  readonly owner: string;
  /** `team:<id>` of the team that the call is for. */
  readonly team?: string;
  /** What the call is marked with, by its key and by its own header; sorted. */
  readonly tags?: readonly string[];
  /** Undefined: as configured. */
  readonly storeContent?: StoreContent | undefined;
  /** The span of the caller that the call is part of (`traceparent`). */
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
  /** The person whose key it is, where persons are known. Its state is looked at again when a call is admitted. */
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

/** What the calls with the key of one program cost, for each piece of work that the program does. */
export interface CallTally {
  /** A call was let in. */
  begin(): void;
  /** The call has ended. Undefined: its price is not known. */
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

/** A call under way, as it can be ended from outside. */
export interface RunningCall extends Bagged {
  leave(reason: AppError): void;
}

export interface AdmissionRequest {
  /** Tokens that the call may cost, for limits by token and for the reservation of a budget. */
  readonly estimatedTokens: number;
  readonly estimatedCostNano: number;
  /** False when every model that may answer is known to be free: only then a budget of 0 admits the call. */
  readonly mayCost: boolean;
  /** The call deals with what the caller has paid for before, such as the results of a batch: budgets do not refuse it. */
  readonly isPaid?: boolean;
  /** Ended when the owner of the key is paused while the call runs. */
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

/** How a call ended, for metering. */
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
  readonly failures?: readonly FailedAttempt[] | undefined;
  readonly durationMs: number;
  /** To the first event of a stream; equal to `durationMs` otherwise. */
  readonly firstTokenMs: number;
  readonly requestId: string;
  /** What was called, where it was not a chat. */
  readonly operation?: CallOperation;
  /** What was asked and answered, as JSON. Only given when the admission keeps content. */
  readonly content?: { readonly request: string; readonly answer: string };
}

/** A call that was let in. `settle` is called exactly once, however the call ends. */
export interface Admission {
  /** For the headers `x-ratelimit-*`; empty when the key has no limit. */
  readonly headers: Readonly<Record<string, string>>;
  /** `outcome.content` is stored: give it. False unless it is configured so. */
  readonly keepsContent: boolean;
  /**
   * Feeds limits, budget, usage records, metrics and spans. Returns the cost of the call in nano-USD; undefined when the
   * price is not known.
   */
  settle(outcome: CallOutcome): number | undefined;
}

/** Limits and budgets of keys and of their owners. Every call passes through it. */
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
  /** The difference between what an earlier call was charged and what it used; the figures may be negative. */
  readonly isCorrection?: true;
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
  const { images = 0, seconds = 0, characters = 0 } = tokens;
  const { searches = 0, otherTools = 0 } = tokens;
  const used = promptTokens + completionTokens + images + seconds + characters + searches + otherTools;
  const priceKnown = knowsCost(price, tokens) || used === 0;
  return { holder, outcome, promptTokens, completionTokens, costNano, priceKnown };
}
