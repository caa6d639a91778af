import type { Clock } from '../../platform/clock/clock.ts';
import type { AppError } from '../../platform/errors/app-error.ts';
import type { Bucket, Budget, Owner } from '../../platform/identity/owner.ts';
import { ownersSought, type Principal } from '../../platform/identity/principal.ts';
import type { TraceContext } from '../../platform/telemetry/spans.ts';
import { costOf, countTokens, nanoOfUsd, type PriceOf } from '../apis/prices.ts';
import type { Usage } from '../contract/chat.ts';

/** The holder of calls that another part of this program makes, or an agent that it has started. */
export const INTERNAL_ID = 'internal';

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
export interface RunningCall {
  leave(reason: AppError): void;
}

interface AdmissionRequest {
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

/** Limits and budgets of keys and of their owners. Synchronous, because every call passes through it. */
export interface Admissions {
  /**
   * Throws `TOO_MANY_PARALLEL_CALLS`, `RATE_LIMIT_EXCEEDED` (with `retryAfterSeconds`, and `headers` for the answer in its details) or
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

/** What keys and persons with a budget have spent in the current period. All amounts are whole nano-USD. */
export interface Budgets {
  /** Reads what was spent, unless that is known; nothing may be reserved before. Undefined when there is nothing to read. */
  prepare(keyId: string, budget: Budget): Promise<void> | undefined;
  /** Sets the amount aside; undefined when the budget has no room for it. */
  reserve(keyId: string, budget: Budget, nano: number): BudgetReservation | undefined;
}

export interface BudgetReservation {
  /** Puts what it really cost in the place of what was set aside. */
  settle(nano: number): void;
}

/** So much of a budget is spent. */
export interface BudgetAlert {
  /** `key_...`, `user:...` or `team:...`. */
  readonly bucket: string;
  /** 50, 80 or 100. */
  readonly percent: number;
  readonly spentNano: number;
  readonly usd: number;
  /** `2030-01-31`, `2030-01` or `total`. */
  readonly period: string;
}

interface BudgetsOptions {
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  readSpent(keyId: string, period: string): Promise<number>;
  /** What is counted here and not stored yet. */
  unstored(keyId: string, period: string): number;
  /** How long the figure holds; for ever where no other instance writes to the store. */
  readonly freshMs: number;
  /** Called once for each level in a period; where several instances share a store, by each of them. */
  onAlert?(alert: BudgetAlert): void;
}

interface Spending {
  /** The period that was read; another one begins when a person gets another plan. */
  kind: Budget['period'] | undefined;
  period: string;
  spent: number;
  /** Set aside for calls under way, whatever period they end in. */
  reserved: number;
  /** All that was settled here, ever. */
  settled: number;
  readAt: number;
  reading: Promise<void> | undefined;
  /** The highest level that was told in this period, of a budget of this size. */
  told: number;
  toldOf: number;
}

const ALERT_LEVELS = [100, 80, 50];
/** A call that is refused from here on is refused because the budget is used up, and not because the call is dear. */
const NEARLY_SPENT = 80;

const MAX_IDLE = 10_000;

export function createBudgets({ clock, readSpent, unstored, freshMs, onAlert }: BudgetsOptions): Budgets {
  const known = new Map<string, Spending>();

  function levelOf({ spent }: Spending, limit: number): number {
    return ALERT_LEVELS.find((percent) => (spent / limit) * 100 >= percent) ?? 0;
  }

  function tell(keyId: string, spending: Spending, { usd }: Budget, isRefused = false): void {
    const limit = nanoOfUsd(usd);
    // Another budget has other levels.
    if (spending.toldOf !== limit) spending.told = 0;
    spending.toldOf = limit;
    const level = levelOf(spending, limit);
    const percent = isRefused && level >= NEARLY_SPENT ? 100 : level;
    if (percent <= spending.told) return;
    spending.told = percent;
    onAlert?.({ bucket: keyId, percent, spentNano: spending.spent, usd, period: spending.period });
  }

  async function read(keyId: string, spending: Spending, budget: Budget): Promise<void> {
    const { period: kind } = budget;
    const period = periodOf(kind, clock.now());
    const isKnown = spending.kind === kind && spending.period === period;
    // Taken before the read: spending that is stored during the read may count twice until the next one, but is never missed.
    const pending = unstored(keyId, period);
    const before = spending.settled;
    const stored = await readSpent(keyId, period);
    spending.kind = kind;
    spending.period = period;
    spending.spent = stored + pending + (spending.settled - before);
    spending.readAt = clock.monotonic();
    if (!isKnown) {
      // What was spent before this program began has been told by the one before it.
      spending.toldOf = nanoOfUsd(budget.usd);
      spending.told = levelOf(spending, spending.toldOf);
    } else tell(keyId, spending, budget);
  }

  function inPeriod(spending: Spending, kind: Budget['period']): Spending {
    const period = periodOf(kind, clock.now());
    if (spending.period !== period) {
      spending.period = period;
      spending.spent = 0;
      spending.told = 0;
    }
    return spending;
  }

  function find(keyId: string): Spending {
    let spending = known.get(keyId);
    if (spending === undefined) {
      makeRoom();
      spending = {
        kind: undefined,
        period: '',
        spent: 0,
        reserved: 0,
        settled: 0,
        readAt: Number.NEGATIVE_INFINITY,
        reading: undefined,
        told: 0,
        toldOf: 0,
      };
      known.set(keyId, spending);
    }
    return spending;
  }

  /** A budget without reservations can be read again. */
  function makeRoom(): void {
    if (known.size < MAX_IDLE) return;
    for (const [keyId, { period, reserved, reading }] of known) {
      if (reserved > 0 || reading !== undefined || unstored(keyId, period) > 0) continue;
      known.delete(keyId);
      return;
    }
  }

  const budgets: Budgets = {
    prepare(keyId, budget) {
      const spending = find(keyId);
      const { reading } = spending;
      if (reading !== undefined) return reading.then(() => budgets.prepare(keyId, budget));
      if (spending.kind === budget.period && clock.monotonic() - spending.readAt < freshMs) return undefined;
      const fresh = read(keyId, spending, budget).finally(() => {
        spending.reading = undefined;
      });
      spending.reading = fresh;
      return fresh;
    },
    reserve(keyId, budget, nano) {
      const found = find(keyId);
      const spending = inPeriod(found, found.kind ?? budget.period);
      const used = spending.spent + spending.reserved;
      const limit = nanoOfUsd(budget.usd);
      if (used >= limit || used + nano > limit) {
        tell(keyId, spending, budget, true);
        return undefined;
      }
      spending.reserved += nano;
      return {
        settle(cost) {
          spending.reserved = Math.max(0, spending.reserved - nano);
          spending.settled += cost;
          inPeriod(spending, spending.kind ?? budget.period).spent += cost;
          if (cost > 0) tell(keyId, spending, budget);
        },
      };
    },
  };
  return budgets;
}

/** The period that a moment belongs to, in UTC: `2030-01-31`, `2030-01` or `total`. */
export function periodOf(period: Budget['period'], now: number): string {
  if (period === 'total') return 'total';
  return dayOf(now).slice(0, period === 'day' ? 10 : 7);
}

/** `2030-01-31`, in UTC. */
export function dayOf(now: number): string {
  return new Date(now).toISOString().slice(0, 10);
}

/** How long until the period ends; undefined for one that never does. */
export function periodEndsAfterMs(period: Budget['period'], now: number): number | undefined {
  if (period === 'total') return undefined;
  const date = new Date(now);
  const [year, month, day] = [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()];
  return (period === 'day' ? Date.UTC(year, month, day + 1) : Date.UTC(year, month + 1, 1)) - now;
}
