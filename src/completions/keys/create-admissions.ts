import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Bucket } from '../../platform/identity/owner.ts';
import type { SharedBuckets } from '../../platform/limits/shared-buckets.ts';
import { Bag } from '../../platform/queue/after-reads.ts';
import type { PriceOf } from '../apis/prices.ts';
import {
  type Admission,
  type AdmissionRequest,
  type Admissions,
  type CallObserver,
  type CallOutcome,
  type Charge,
  type KeyHolder,
  priceCall,
  type RunningCall,
  type SettledCall,
} from './admission.ts';
import { type BudgetReservation, type Budgets, periodEndsAfterMs, periodOf } from './budgets.ts';
import { createRateLimits, createSharedRates, type RateLimits, type TakenRate, takeShared } from './rate-limits.ts';

export interface AdmissionsOptions {
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  readonly budgets: Budgets;
  /** Limits that other instances count too. Undefined: this one counts alone. */
  readonly shared?: SharedBuckets | undefined;
  readonly priceOf: PriceOf;
  readonly keepsContent: boolean;
  /** Called for every call that has ended. */
  readonly observers: readonly CallObserver[];
  /** Called when a call was not settled correctly, or an observer failed. */
  onProblem(error: unknown): void;
}

/** Admissions that know which calls run. */
export interface RunningAdmissions extends Admissions {
  /** Ends every running call of a person: the caller gets the refusal, and nothing more. */
  endCallsOf(ownerId: string): void;
}

interface KnownLimits {
  /** As they were when the limits were made: a person may get other ones. */
  readonly limits: Bucket['limits'];
  readonly rates: RateLimits;
}

/** What a call has taken of its limits. */
interface Rated {
  readonly taken: readonly TakenRate[];
  headers(): Readonly<Record<string, string>>;
}

type Reserved = readonly BudgetReservation[];

interface Entered extends Rated {
  readonly reservations: Reserved;
}

const MAX_IDLE = 10_000;
const NO_HEADERS: Readonly<Record<string, string>> = {};

export function createAdmissions(options: AdmissionsOptions): RunningAdmissions {
  const { clock, budgets, shared, priceOf, keepsContent, observers, onProblem } = options;
  const known = new Map<string, KnownLimits>();
  const running = new Map<string, Bag<RunningCall>>();
  /** By bucket with a limit of parallel calls, how many run. */
  const parallel = new Map<string, number>();

  function ratesOf({ id, limits }: Bucket): RateLimits | undefined {
    const { requestsPerMinute, tokensPerMinute } = limits;
    if (requestsPerMinute === undefined && tokensPerMinute === undefined) return undefined;
    let found = known.get(id);
    const isCurrent =
      found?.limits.requestsPerMinute === requestsPerMinute && found?.limits.tokensPerMinute === tokensPerMinute;
    if (found === undefined || !isCurrent) {
      makeRoom();
      found = { limits, rates: createRateLimits(limits, clock) };
      known.set(id, found);
    }
    return found.rates;
  }

  function allRatesOf(buckets: readonly Bucket[]): readonly RateLimits[] {
    const all: RateLimits[] = [];
    for (const bucket of buckets) {
      const rates = ratesOf(bucket);
      if (rates !== undefined) all.push(rates);
    }
    return all;
  }

  /** A bucket that is full again needs nothing kept for it. */
  function makeRoom(): void {
    if (known.size < MAX_IDLE) return;
    for (const [id, { rates }] of known) if (rates.isIdle()) known.delete(id);
  }

  /** Throws RATE_LIMIT_EXCEEDED. Takes of all limits, or of none. */
  function takeRates(buckets: readonly Bucket[], tokens: number): Rated | Promise<Rated> {
    if (shared !== undefined) {
      const limited = buckets.filter(
        ({ limits }) => limits.requestsPerMinute !== undefined || limits.tokensPerMinute !== undefined,
      );
      const rates = limited.map(({ id, limits }) => createSharedRates(id, limits, shared));
      const taken = takeShared(rates, tokens);
      const rated = (one: TakenRate): Rated => ({ taken: [one], headers: () => headersOf(rates) });
      return taken instanceof Promise ? taken.then(rated) : rated(taken);
    }
    const rates = allRatesOf(buckets);
    for (const rate of rates) rate.check(tokens);
    return { taken: rates.map((rate) => rate.take(tokens)), headers: () => headersOf(rates) };
  }

  function exceeded({ name, limits: { budget } }: Bucket): AppError {
    if (budget === undefined) throw new TypeError('a bucket without a budget has nothing to exceed');
    const endsAfter = periodEndsAfterMs(budget.period, clock.now());
    return new AppError('BUDGET_EXCEEDED', {
      ...budget,
      of: name,
      ...(endsAfter !== undefined && budget.usd > 0 && { retryAfterSeconds: Math.ceil(endsAfter / 1000) }),
    });
  }

  /** Reserves in all buckets, or in none. */
  function reserveAll(buckets: readonly Bucket[], nano: number, mayCost: boolean): Reserved | Promise<Reserved> {
    const used: Bucket[] = [];
    const asked: ReturnType<Budgets['reserve']>[] = [];
    for (const bucket of buckets) {
      const { budget } = bucket.limits;
      // A budget of 0 pays for nothing, so there is nothing to reserve either.
      if (budget?.usd === 0 && mayCost) throw exceeded(bucket);
      if (budget !== undefined && budget.usd > 0) used.push(bucket);
    }
    for (const { id, limits } of used)
      if (limits.budget !== undefined) asked.push(budgets.reserve(id, limits.budget, nano));
    if (asked.some((each) => each instanceof Promise)) return reserveLater(used, asked);
    return allReserved(used, asked as (BudgetReservation | undefined)[]);
  }

  function allReserved(used: readonly Bucket[], given: readonly (BudgetReservation | undefined)[]): Reserved {
    const reserved = given.filter((each) => each !== undefined);
    const lacking = used[given.indexOf(undefined)];
    if (lacking === undefined) return reserved;
    for (const reservation of reserved) reservation.settle(0);
    throw exceeded(lacking);
  }

  async function reserveLater(used: readonly Bucket[], asked: readonly ReturnType<Budgets['reserve']>[]) {
    const results = await Promise.allSettled(asked);
    const failed = results.find((result) => result.status === 'rejected');
    const given = results.map((result) => (result.status === 'fulfilled' ? result.value : undefined));
    if (failed === undefined) return allReserved(used, given);
    for (const reservation of given) reservation?.settle(0);
    throw failed.reason;
  }

  /** Takes of limits and budgets, of all or of none. */
  function enter(buckets: readonly Bucket[], request: AdmissionRequest): Entered | Promise<Entered> {
    if (buckets.length === 0) return NOTHING_TAKEN;
    const rated = takeRates(buckets, request.estimatedTokens);
    return rated instanceof Promise
      ? rated.then((known) => enterBudgets(buckets, request, known))
      : enterBudgets(buckets, request, rated);
  }

  function enterBudgets(
    buckets: readonly Bucket[],
    { estimatedCostNano, mayCost, isPaid = false }: AdmissionRequest,
    rated: Rated,
  ): Entered | Promise<Entered> {
    const refuse = (error: unknown): never => {
      for (const each of rated.taken) each.undo();
      throw error;
    };
    try {
      const reservations = isPaid ? NO_RESERVATIONS : reserveAll(buckets, estimatedCostNano, mayCost);
      if (!(reservations instanceof Promise)) return { ...rated, reservations };
      return reservations.then((known) => ({ ...rated, reservations: known }), refuse);
    } catch (error) {
      return refuse(error);
    }
  }

  /** Throws TOO_MANY_PARALLEL_CALLS. Returns the buckets that count how many of their calls run. */
  function checkParallel(buckets: readonly Bucket[]): readonly Bucket[] {
    if (!buckets.some(countsParallel)) return NO_BUCKETS;
    const counted = buckets.filter(countsParallel);
    for (const { id, name, limits } of counted) {
      const limit = limits.parallelCalls ?? 0;
      if ((parallel.get(id) ?? 0) < limit) continue;
      throw new AppError('TOO_MANY_PARALLEL_CALLS', { of: name, limit, retryAfterSeconds: 1 });
    }
    return counted;
  }

  function countParallel(counted: readonly Bucket[], change: 1 | -1): void {
    for (const { id } of counted) {
      const now = (parallel.get(id) ?? 0) + change;
      if (now > 0) parallel.set(id, now);
      else parallel.delete(id);
    }
  }

  function watch({ person }: KeyHolder, call: RunningCall | undefined): () => void {
    if (person === undefined || call === undefined) return ignore;
    let calls = running.get(person.id);
    if (calls === undefined) {
      calls = new Bag();
      running.set(person.id, calls);
    }
    const own = calls;
    own.add(call);
    return () => {
      own.delete(call);
      if (own.size === 0 && running.get(person.id) === own) running.delete(person.id);
    };
  }

  function tell(call: SettledCall): void {
    for (const observe of observers) {
      try {
        observe(call);
      } catch (error) {
        onProblem(error);
      }
    }
  }

  function begin(
    holder: KeyHolder,
    entered: Entered,
    counted: readonly Bucket[],
    runningCall?: RunningCall,
  ): Admission {
    const { taken, reservations } = entered;
    const { buckets } = holder;
    holder.tally?.begin();
    const forget = watch(holder, runningCall);
    const stores = holder.storeContent ?? (keepsContent ? 'all' : 'none');
    let settled = false;
    return {
      headers: entered.headers(),
      keepsContent: stores !== 'none',
      settle(given) {
        if (settled) {
          onProblem(new Error('a call was settled twice'));
          return undefined;
        }
        settled = true;
        forget();
        countParallel(counted, -1);
        const outcome = stores === 'errors' ? withoutContentOfSuccess(given) : given;
        const call = priceCall(holder, outcome, priceOf);
        // The tokens of a batch are used over hours, not in this minute.
        const tokens = outcome.operation === 'batch' ? 0 : call.promptTokens + call.completionTokens;
        for (const each of taken) each.settle(tokens);
        for (const reservation of reservations) reservation.settle(call.costNano);
        const isCharged = call.costNano > 0 && buckets.length > 0;
        holder.tally?.end(call.priceKnown ? call.costNano : undefined);
        tell(isCharged ? { ...call, charges: chargesOf(holder, clock.now()) } : call);
        return call;
      },
    };
  }

  /** The same for a call that had to wait: its owner may have been paused until then. */
  async function beginLater(
    holder: KeyHolder,
    entering: Promise<Entered>,
    counted: readonly Bucket[],
    runningCall?: RunningCall,
  ): Promise<Admission> {
    try {
      const entered = await entering;
      if (isActive(holder)) return begin(holder, entered, counted, runningCall);
      for (const each of entered.taken) each.undo();
      for (const reservation of entered.reservations) reservation.settle(0);
      throw new AppError('INVALID_API_KEY');
    } catch (error) {
      countParallel(counted, -1);
      throw error;
    }
  }

  return {
    admit(holder, request) {
      const { buckets } = holder;
      if (!isActive(holder)) throw new AppError('INVALID_API_KEY');
      const counted = buckets.length === 0 ? buckets : checkParallel(buckets);
      const entered = enter(buckets, request);
      // Nothing was awaited since the checks: no other call can have come between.
      countParallel(counted, 1);
      return entered instanceof Promise
        ? beginLater(holder, entered, counted, request.call)
        : begin(holder, entered, counted, request.call);
    },
    endCallsOf(ownerId) {
      for (const call of running.get(ownerId)?.items() ?? []) call.leave(new AppError('INVALID_API_KEY'));
    },
  };
}

function withoutContentOfSuccess({ content, ...outcome }: CallOutcome): CallOutcome {
  const isFailure = outcome.outcome === 'error' || outcome.outcome === 'partial';
  return isFailure && content !== undefined ? { ...outcome, content } : outcome;
}

const NO_BUCKETS: readonly Bucket[] = [];
const NO_RESERVATIONS: Reserved = [];
const NOTHING_TAKEN: Entered = { taken: [], headers: () => NO_HEADERS, reservations: NO_RESERVATIONS };
const PERIODS = ['day', 'month', 'total'] as const;

/** A key is charged for the period of its budget. A person may get another plan, so what they spend is counted for every period. */
export function chargesOf({ id: keyId, buckets }: KeyHolder, now: number): readonly Charge[] {
  return buckets.flatMap(({ id, limits: { budget } }) => {
    if (budget === undefined) return [];
    const periods = id === keyId ? [budget.period] : PERIODS;
    return periods.map((period) => ({ bucket: id, period: periodOf(period, now) }));
  });
}

/** Of several limits the one that has the least left is shown. */
function headersOf(rates: readonly Pick<RateLimits, 'headers'>[]): Readonly<Record<string, string>> {
  const [first] = rates;
  if (first === undefined) return NO_HEADERS;
  const shown = first.headers();
  for (let next = 1; next < rates.length; next += 1) {
    const headers = rates[next]?.headers() ?? NO_HEADERS;
    for (const unit of ['requests', 'tokens']) {
      const left = shown[`x-ratelimit-remaining-${unit}`];
      const other = headers[`x-ratelimit-remaining-${unit}`];
      if (other === undefined || (left !== undefined && Number(left) <= Number(other))) continue;
      for (const what of ['limit', 'remaining', 'reset']) {
        const name = `x-ratelimit-${what}-${unit}`;
        shown[name] = headers[name] ?? '';
      }
    }
  }
  return shown;
}

function countsParallel({ limits }: Bucket): boolean {
  return limits.parallelCalls !== undefined;
}

function isActive({ person }: KeyHolder): boolean {
  return person === undefined || person.state === 'active';
}

function ignore(): void {}
