import type { Clock } from '../../platform/clock/clock.ts';
import type { Randomness } from '../../platform/clock/randomness.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { retry } from '../../platform/retry/retry.ts';
import type { KeyHolder } from '../keys/admission.ts';
import type { CallerPresence } from './caller-presence.ts';
import type { ModelPlan, ModelPlans, PlanTimeouts, Target } from './model-plan.ts';
import type { TargetBoard, TargetLease } from './target-board.ts';
import { policyOf, upstreamTimeout } from './upstream-failure.ts';

/** One try on one target. */
export interface Attempt {
  readonly target: Target;
  readonly timeouts: PlanTimeouts;
  /** When all tries of this plan must be over, on the monotonic clock. */
  readonly deadline: number;
  /** Ended by whoever gets the result, when the answer is over; a failed try's is ended here. */
  readonly lease: TargetLease;
}

/** What the caller and the meter are told of the tries so far. */
export interface AttemptRecord {
  attempts: number;
  target: Target | undefined;
}

export interface AttemptCall<Result> {
  readonly plan: ModelPlan;
  readonly holder: KeyHolder;
  /** What the call may cost, for limits of targets. */
  readonly tokens: number;
  readonly presence: CallerPresence;
  readonly record: AttemptRecord;
  /** Resolves once something of the answer is there; from then on there is no second try. */
  run(attempt: Attempt): Promise<Result>;
}

export interface AttemptOptions {
  readonly plans: Pick<ModelPlans, 'resolve'>;
  readonly board: TargetBoard;
  readonly clock: Clock;
  readonly randomness: Randomness;
  /** Told of every try that failed. What the upstream said is not among it: that may repeat the prompt. */
  onFailure(target: string, code: string): void;
}

export type AttemptCalls = <Result>(call: AttemptCall<Result>) => Promise<Result>;

/** A pause grows from the first to the second; an upstream that asks for longer is not waited for. */
const BACKOFF = { baseMs: 250, maxMs: 8_000 };
const MAX_PLANS = 10;

/** Retries on a target, then its neighbours, then fallbacks, until one answers (contract/completions 3). */
export function createAttemptCalls(options: AttemptOptions): AttemptCalls {
  const { plans, board, clock, randomness, onFailure } = options;

  return async (call) => {
    const seen = [call.plan.name];
    const waiting: ModelPlan[] = [];
    let failure: unknown;
    for (let plan: ModelPlan | undefined = call.plan; plan !== undefined; plan = waiting.shift()) {
      const deadline = clock.monotonic() + plan.timeouts.total;
      let ofPlan: unknown;
      for (const target of board.order(plan)) {
        try {
          return await tryTarget(call, plan, target, deadline);
        } catch (error) {
          ofPlan = moreTelling(ofPlan, error);
          if (!policyOf(error).next) break;
        }
      }
      ofPlan ??= noTarget(plan.name);
      failure = moreTelling(failure, ofPlan);
      const { next, tooLong } = policyOf(ofPlan);
      const names = tooLong ? plan.contextFallbacks : next ? plan.fallbacks : [];
      for (const name of names) addFallback(call.holder, name, seen, waiting);
    }
    throw failure;
  };

  async function tryTarget<Result>(
    call: AttemptCall<Result>,
    plan: ModelPlan,
    target: Target,
    deadline: number,
  ): Promise<Result> {
    try {
      return await tryOnce(call, plan, target, deadline);
    } catch (error) {
      if (plan.retries === 0 || !policyOf(error).retry) throw error;
      return tryAgain(call, plan, target, deadline, error);
    }
  }

  /** `first`: how the try before went; it counts as the first of all. */
  function tryAgain<Result>(
    call: AttemptCall<Result>,
    plan: ModelPlan,
    target: Target,
    deadline: number,
    first: unknown,
  ): Promise<Result> {
    const attempt = async (number: number): Promise<Result> => {
      if (number === 1) throw first;
      return tryOnce(call, plan, target, deadline);
    };
    return retry(attempt, {
      ...BACKOFF,
      // Nobody is served by a pause beyond the time of all tries.
      get maxMs() {
        return Math.max(0, Math.min(BACKOFF.maxMs, deadline - clock.monotonic()));
      },
      attempts: plan.retries + 1,
      clock,
      randomness,
      shouldRetry: (error) => policyOf(error).retry && !call.presence.gone,
      retryAfterMs,
    });
  }

  async function tryOnce<Result>(
    call: AttemptCall<Result>,
    plan: ModelPlan,
    target: Target,
    deadline: number,
  ): Promise<Result> {
    const { presence, record, tokens } = call;
    if (presence.gone) throw new AppError('CALL_CANCELLED');
    if (clock.monotonic() >= deadline) throw upstreamTimeout('total');
    const lease = board.begin(target, tokens);
    if (lease.waitMs !== undefined) throw noTarget(plan.name, lease.waitMs);
    record.attempts += 1;
    record.target = target;
    try {
      return await call.run({ target, timeouts: plan.timeouts, deadline, lease });
    } catch (error) {
      lease.end(policyOf(error).countsAgainstTarget ? 'failed' : 'ignored', 0);
      if (!presence.gone) onFailure(target.id, errorCode(error));
      throw error;
    }
  }

  /** A fallback that the key may not use is skipped, as is one that is not known. */
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

/** That something has no room tells the caller less than what went wrong before it. */
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

function isNoTarget(error: unknown): boolean {
  return error instanceof AppError && error.code === 'NO_TARGET_AVAILABLE';
}
