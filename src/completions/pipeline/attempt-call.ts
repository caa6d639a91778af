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
export function createAttemptCalls({ plans, board, clock, randomness, onFailure }: AttemptOptions): AttemptCalls {
  return async (call) => {
    const waiting: ModelPlan[] = [call.plan];
    const seen = new Set([call.plan.name]);
    let failure: unknown;
    for (let plan = waiting.shift(); plan !== undefined; plan = waiting.shift()) {
      try {
        return await tryPlan(call, plan);
      } catch (error) {
        const { next, tooLong } = policyOf(error);
        // That a fallback has no room tells the caller less than what went wrong before it.
        if (failure === undefined || !isNoTarget(error)) failure = error;
        const names = tooLong ? plan.contextFallbacks : next ? plan.fallbacks : [];
        for (const name of names) addFallback(call, name, seen, waiting);
      }
    }
    throw failure;
  };

  /** A fallback that the key may not use is skipped, as is one whose API is not usable. */
  function addFallback(call: AttemptCall<unknown>, name: string, seen: Set<string>, waiting: ModelPlan[]): void {
    if (seen.has(name) || seen.size >= MAX_PLANS || !call.holder.mayUse(name)) return;
    seen.add(name);
    try {
      waiting.push(plans.resolve(name));
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
    }
  }

  async function tryPlan<Result>(call: AttemptCall<Result>, plan: ModelPlan): Promise<Result> {
    const deadline = clock.monotonic() + plan.timeouts.total;
    let failure: unknown;
    let shortestWait = Number.POSITIVE_INFINITY;
    for (const target of board.order(plan)) {
      const tryOnce = async (): Promise<Result> => {
        if (call.presence.gone) throw new AppError('CALL_CANCELLED');
        if (clock.monotonic() >= deadline) throw upstreamTimeout('total');
        const lease = board.begin(target, call.tokens);
        if (lease.waitMs !== undefined) {
          shortestWait = Math.min(shortestWait, lease.waitMs);
          throw noTarget(plan.name, shortestWait);
        }
        call.record.attempts += 1;
        call.record.target = target;
        try {
          return await call.run({ target, timeouts: plan.timeouts, deadline, lease });
        } catch (error) {
          lease.end(policyOf(error).countsAgainstTarget ? 'failed' : 'ignored', 0);
          if (!call.presence.gone) onFailure(target.id, errorCode(error));
          throw error;
        }
      };
      try {
        return await retry(tryOnce, {
          ...BACKOFF,
          attempts: plan.retries + 1,
          clock,
          randomness,
          shouldRetry: (error) => policyOf(error).retry && !call.presence.gone,
          retryAfterMs,
        });
      } catch (error) {
        if (failure === undefined || !isNoTarget(error)) failure = error;
        if (!policyOf(error).next) throw error;
      }
    }
    throw failure ?? noTarget(plan.name);
  }
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
