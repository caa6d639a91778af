import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Budget } from '../../platform/identity/owner.ts';
import { type BudgetReservation, type Budgets, periodEndsAfterMs, periodOf } from './budgets.ts';

/** Budgets of model APIs: what all callers together may spend at each. */
export interface ApiBudgets {
  /** Sets aside what a call may cost at each API, by its id. Resolves after the first read of what was spent. */
  reserve(costs: ReadonlyMap<string, number>): Promise<ApiReservation>;
  /** The call with the charge for the budget of the API that answered it. */
  charged<Call extends ChargedCall>(call: Call): Call;
}

/** What a call that has ended must tell. */
interface ChargedCall {
  readonly outcome: { readonly api: string };
  readonly costNano: number;
  readonly charges?: readonly { readonly bucket: string; readonly period: string }[];
}

export interface ApiReservation {
  /** True for an API without a budget. */
  hasRoom(api: string): boolean;
  /** Puts what the call cost at the API that answered in the place of what was set aside at all of them. */
  settle(api: string, nano: number): void;
  /** The refusal of a call that only this API could answer. */
  refusal(api: string): AppError;
}

interface ApiBudgetsOptions {
  readonly given: Readonly<Record<string, Budget>>;
  readonly budgets: Budgets;
  readonly clock: Pick<Clock, 'now'>;
}

/** Undefined where no API has a budget: then a call does nothing for it. */
export function createApiBudgets({ given, budgets, clock }: ApiBudgetsOptions): ApiBudgets | undefined {
  const known = new Map(Object.entries(given));
  if (known.size === 0) return undefined;
  return {
    async reserve(costs) {
      const reserved = new Map<string, BudgetReservation | undefined>();
      const asked = [...costs].flatMap(([api, nano]) => {
        const budget = known.get(api);
        return budget === undefined ? [] : [{ api, budget, nano }];
      });
      await Promise.all(asked.map(({ api, budget }) => budgets.prepare(bucketOf(api), budget)));
      try {
        for (const { api, budget, nano } of asked) {
          reserved.set(api, await budgets.reserve(bucketOf(api), budget, nano));
        }
      } catch (error) {
        for (const reservation of reserved.values()) reservation?.settle(0);
        throw error;
      }
      return {
        hasRoom: (api) => !reserved.has(api) || reserved.get(api) !== undefined,
        settle(answered, nano) {
          for (const [api, reservation] of reserved) reservation?.settle(api === answered ? nano : 0);
        },
        refusal(api) {
          const budget = known.get(api);
          const endsAfter = budget === undefined ? undefined : periodEndsAfterMs(budget.period, clock.now());
          const retry = endsAfter === undefined ? {} : { retryAfterSeconds: Math.ceil(endsAfter / 1000) };
          return new AppError('BUDGET_EXCEEDED', { ...budget, of: `the API ${api}`, ...retry });
        },
      };
    },
    charged(call) {
      const { api } = call.outcome;
      const budget = known.get(api);
      if (budget === undefined || call.costNano === 0) return call;
      const charge = { bucket: bucketOf(api), period: periodOf(budget.period, clock.now()) };
      return { ...call, charges: [...(call.charges ?? []), charge] };
    },
  };
}

function bucketOf(api: string): string {
  return `api:${api}`;
}
