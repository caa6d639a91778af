import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { retry } from '../../platform/retry/retry.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { KeyHolder } from '../keys/admission.ts';
import type { ApiReservation } from '../keys/budgets.ts';
import type { AttemptRecord, CallerPresence } from './call-record.ts';
import type { ModelPlan, ModelPlans, PlanTimeouts, Target } from './model-plan.ts';
import type { TargetBoard, TargetLease } from './target-board.ts';
import { policyOf, upstreamTimeout } from './upstream-failure.ts';

/** One try on one target. */
export interface Attempt {
  readonly target: Target;
  readonly timeouts: PlanTimeouts;
  /** When this try times out, on the monotonic clock, and which timeout that is. */
  readonly deadline: number;
  readonly deadlineName: 'total' | 'x-timeout-ms';
  /** Must be ended by the code that gets the result, when the response is complete. The lease of a failed try is ended here. */
  readonly lease: TargetLease;
}

export interface AttemptCall<Result> {
  readonly plan: ModelPlan;
  readonly holder: KeyHolder;
  /** How many tokens the call may take, for limits of targets. */
  readonly tokens: number;
  /** The caller's own timeout for the whole call, with all tries and fallbacks. */
  readonly timeoutMs?: number | undefined;
  readonly presence: CallerPresence;
  readonly record: AttemptRecord;
  /** Targets at APIs without room in their budgets are left out, also those of fallbacks. Absent: all may be tried. */
  readonly apis?: Pick<ApiReservation, 'hasRoom' | 'refusal'> | undefined;
  /** Resolves when the response has begun; from then on the call is not retried. */
  run(attempt: Attempt): Promise<Result>;
}

export interface AttemptOptions extends Pick<Runtime, 'clock' | 'randomness'> {
  readonly plans: Pick<ModelPlans, 'resolve'>;
  readonly board: TargetBoard;
  /** Called for every failed try, without the upstream's message, because it may repeat the prompt. */
  onFailure(target: string, code: string): void;
}

export type AttemptCalls = <Result>(call: AttemptCall<Result>) => Promise<Result>;

/** Pauses between retries. An upstream that asks for a longer pause is not retried. */
const BACKOFF = { baseMs: 250, maxMs: 8_000 };
const MAX_PLANS = 10;
/** Failed tries that the record of a call lists. */
const MAX_NOTED = 50;

/** Retries a target, then tries the other targets of the plan, then the fallbacks, until one responds. */
export function createAttemptCalls(options: AttemptOptions): AttemptCalls {
  const { plans, board, clock, randomness, onFailure } = options;

  return async (call) => {
    const seen = [call.plan.name];
    const waiting: ModelPlan[] = [];
    const callEnds = clock.monotonic() + (call.timeoutMs ?? Number.POSITIVE_INFINITY);
    let failure: unknown;
    for (let plan: ModelPlan | undefined = call.plan; plan !== undefined; plan = waiting.shift()) {
      const now = clock.monotonic();
      const usable = call.apis === undefined ? plan : withRoom(plan, call.apis);
      const limits: Limits = {
        planEnds: now + longestTotal(usable.targets),
        callEnds,
        // A call that nothing else can answer is tried even if the circuit of the target is open.
        isSole: failure === undefined && usable.targets.length === 1 && !hasFallback(call.holder, plan),
      };
      let ofPlan: unknown;
      const ordered = board.order(usable);
      let following = 0;
      for (const target of ordered) {
        following += 1;
        try {
          try {
            return await tryOnce(call, plan, target, limits);
          } catch (error) {
            if (!mayRepeat(error, plan, target, ordered[following])) throw error;
            return await tryAgain(call, plan, target, limits, error);
          }
        } catch (error) {
          ofPlan = moreTelling(ofPlan, error);
          if (!policyOf(error).next) break;
        }
      }
      ofPlan ??= noTarget(plan.name);
      if (usable.targets.length === 0) failure ??= refusalOf(plan, call.apis);
      failure = moreTelling(failure, ofPlan);
      const { next, tooLong } = policyOf(ofPlan);
      const names = tooLong ? plan.contextFallbacks : next ? plan.fallbacks : [];
      for (const name of names) addFallback(call.holder, name, seen, waiting);
    }
    throw failure;
  };

  function mayRepeat(error: unknown, plan: ModelPlan, target: Target, following: Target | undefined): boolean {
    if (plan.retries === 0 || !policyOf(error).retry || board.isOut(target)) return false;
    // Another key may have capacity immediately.
    return !(isUsedUp(error) && target.key !== undefined && following?.apiId === target.apiId);
  }

  /** Retries after a failed try; `first` is its error, and it counts as the first attempt. */
  function tryAgain<Result>(
    call: AttemptCall<Result>,
    plan: ModelPlan,
    target: Target,
    limits: Limits,
    first: unknown,
  ): Promise<Result> {
    let cause = first;
    const attempt = async (number: number): Promise<Result> => {
      if (number === 1) throw first;
      try {
        return await tryOnce(call, plan, target, limits);
      } catch (error) {
        // Keeps the earlier error, because it tells the caller more than a target that is not available any more.
        if (isNoTarget(error)) throw new LastTry(cause);
        cause = error;
        throw error;
      }
    };
    const deadline = deadlineOf(target, limits).at;
    return retry(attempt, {
      ...BACKOFF,
      // A pause must not exceed the timeout of all tries.
      get maxMs() {
        return Math.max(0, Math.min(BACKOFF.maxMs, deadline - clock.monotonic()));
      },
      attempts: plan.retries + 1,
      clock,
      randomness,
      shouldRetry: (error) => policyOf(error).retry && !call.presence.gone && !board.isOut(target),
      retryAfterMs,
    }).catch((error: unknown) => {
      throw error instanceof LastTry ? error.cause : error;
    });
  }

  async function tryOnce<Result>(
    call: AttemptCall<Result>,
    plan: ModelPlan,
    target: Target,
    limits: Limits,
  ): Promise<Result> {
    const { presence, record, tokens, holder } = call;
    if (presence.gone) throw presence.failure();
    const { at: deadline, name: deadlineName } = deadlineOf(target, limits);
    const startedAt = clock.monotonic();
    if (startedAt >= deadline) throw upstreamTimeout(deadlineName);
    const taking = board.takeShared(target, tokens);
    const shared = taking === undefined ? undefined : await taking;
    if (shared !== undefined && shared.waitMs > 0) throw noTarget(plan.name, shared.waitMs);
    const use = { caller: holder.owner || holder.id, isSole: limits.isSole, ...(shared !== undefined && { shared }) };
    const lease = board.begin(target, tokens, use);
    if (lease.waitMs !== undefined) throw noTarget(plan.name, lease.waitMs);
    record.attempts += 1;
    record.target = target;
    try {
      const result = await call.run({ target, timeouts: target.timeouts, deadline, deadlineName, lease });
      lease.answered();
      return result;
    } catch (error) {
      lease.end(policyOf(error).countsAgainstTarget ? 'failed' : 'ignored', 0);
      const code = errorCode(error);
      record.failures ??= [];
      if (record.failures.length < MAX_NOTED) {
        record.failures.push({ target: target.id, code, ms: Math.round(clock.monotonic() - startedAt) });
      }
      if (!presence.gone) onFailure(target.id, code);
      throw error;
    }
  }

  function deadlineOf({ timeouts }: Target, { planEnds, callEnds }: Limits) {
    const ends = Math.min(planEnds, clock.monotonic() + timeouts.total);
    return callEnds < ends ? ({ at: callEnds, name: 'x-timeout-ms' } as const) : ({ at: ends, name: 'total' } as const);
  }

  /** Skips a fallback that the key may not use, or that does not exist. */
  function addFallback(holder: KeyHolder, name: string, seen: string[], waiting: ModelPlan[]): void {
    if (seen.includes(name) || seen.length >= MAX_PLANS || !holder.mayUse(name)) return;
    seen.push(name);
    try {
      waiting.push(plans.resolve(name));
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
    }
  }
}

/** When the tries of a plan and the whole call time out. */
interface Limits {
  readonly planEnds: number;
  readonly callEnds: number;
  readonly isSole: boolean;
}

/** No further try, because of what failed before. */
class LastTry extends Error {
  constructor(cause: unknown) {
    super('no further try', { cause });
  }
}

function longestTotal(targets: readonly Target[]): number {
  let longest = 0;
  for (const { timeouts } of targets) longest = Math.max(longest, timeouts.total);
  return longest;
}

function hasFallback(holder: KeyHolder, { fallbacks }: ModelPlan): boolean {
  return fallbacks.some((name) => holder.mayUse(name));
}

function withRoom(plan: ModelPlan, { hasRoom }: Pick<ApiReservation, 'hasRoom'>): ModelPlan {
  return { ...plan, targets: plan.targets.filter(({ apiId }) => hasRoom(apiId)) };
}

/** Why no target of a plan could be tried. */
function refusalOf({ targets: [first] }: ModelPlan, apis: AttemptCall<unknown>['apis']): AppError | undefined {
  return first === undefined ? undefined : apis?.refusal(first.apiId);
}

/** Prefers an earlier error to NO_TARGET_AVAILABLE, because it tells the caller more. */
function moreTelling(before: unknown, now: unknown): unknown {
  return before === undefined || !isNoTarget(now) ? now : before;
}

function retryAfterMs(error: unknown): number | undefined {
  if (!(error instanceof AppError) || typeof error.details.retryAfterSeconds !== 'number') return undefined;
  return error.details.retryAfterSeconds * 1000;
}

function noTarget(model: string, waitMs?: number): AppError {
  const retryAfter = waitMs === undefined ? {} : { retryAfterSeconds: Math.ceil(waitMs / 1000) };
  return new AppError('NO_TARGET_AVAILABLE', { model, ...retryAfter });
}

function isUsedUp(error: unknown): boolean {
  return error instanceof AppError && error.details.status === 429;
}

function isNoTarget(error: unknown): boolean {
  return error instanceof AppError && error.code === 'NO_TARGET_AVAILABLE';
}
