import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { PriceOf } from '../apis/prices.ts';
import type { Admissions, KeyHolder } from './admission.ts';
import { periodEndsAfterMs } from './budget-period.ts';
import type { Budgets } from './budgets.ts';
import { createRateLimits, type RateLimits } from './rate-limits.ts';
import { type CallObserver, priceCall, type SettledCall } from './settled-call.ts';

export interface AdmissionsOptions {
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  readonly budgets: Budgets;
  readonly priceOf: PriceOf;
  readonly keepsContent: boolean;
  /** Told of every call that has ended. */
  readonly observers: readonly CallObserver[];
  /** Told when a call was not settled as it should be, or an observer failed. */
  onProblem(error: unknown): void;
}

const MAX_IDLE = 10_000;
const NO_HEADERS: Readonly<Record<string, string>> = {};

export function createAdmissions(options: AdmissionsOptions): Admissions {
  const { clock, budgets, priceOf, keepsContent, observers, onProblem } = options;
  const limitsOfKeys = new Map<string, RateLimits>();

  function limitsOf({ id, limits }: KeyHolder): RateLimits | undefined {
    if (limits?.requestsPerMinute === undefined && limits?.tokensPerMinute === undefined) return undefined;
    let known = limitsOfKeys.get(id);
    if (known === undefined) {
      makeRoom();
      known = createRateLimits(limits, clock);
      limitsOfKeys.set(id, known);
    }
    return known;
  }

  /** A key whose buckets are full again needs none kept for it. */
  function makeRoom(): void {
    if (limitsOfKeys.size < MAX_IDLE) return;
    for (const [id, limits] of limitsOfKeys) if (limits.isIdle()) limitsOfKeys.delete(id);
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

  return {
    admit(holder, { estimatedTokens, estimatedCostNano }) {
      const limits = limitsOf(holder);
      limits?.check(estimatedTokens);
      const budget = holder.limits?.budget;
      const reservation = budget && budgets.reserve(holder.id, budget, estimatedCostNano);
      if (budget !== undefined && reservation === undefined) {
        const endsAfter = periodEndsAfterMs(budget.period, clock.now());
        throw new AppError('BUDGET_EXCEEDED', {
          ...budget,
          ...(endsAfter !== undefined && { retryAfterSeconds: Math.ceil(endsAfter / 1000) }),
        });
      }
      // Nothing was awaited since the checks: no other call can have come between.
      const taken = limits?.take(estimatedTokens);
      let settled = false;
      return {
        headers: limits?.headers() ?? NO_HEADERS,
        keepsContent,
        settle(outcome) {
          if (settled) {
            onProblem(new Error('a call was settled twice'));
            return;
          }
          settled = true;
          const call = priceCall(holder, outcome, priceOf);
          taken?.settle(call.promptTokens + call.completionTokens);
          const spendingPeriod = reservation?.settle(call.costNano);
          tell(spendingPeriod === undefined ? call : { ...call, spendingPeriod });
        },
      };
    },
  };
}
