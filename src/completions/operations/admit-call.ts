import { AppError } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import {
  costOf,
  type DearerFields,
  isFree,
  type Price,
  type PriceOf,
  priceFactor,
  type UnitCounts,
} from '../apis/prices.ts';
import {
  type Admission,
  type AdmissionRequest,
  type Admissions,
  type CallOutcome,
  costsByApi,
  type KeyHolder,
} from '../keys/admission.ts';
import type { ApiBudgets, ApiReservation } from '../keys/budgets.ts';
import type { AttemptCall } from '../routing/attempt-call.ts';
import { type CallerPresence, type CallRecord, createCallRecord } from '../routing/call-record.ts';
import type { ModelPlan, ModelPlans } from '../routing/model-plan.ts';

export interface IncomingCall {
  readonly holder: KeyHolder;
  readonly requestId: string;
  readonly presence: CallerPresence;
  /** The original body, for the record of a failed call. */
  readonly body?: Buffer | string | undefined;
  readonly operation: NonNullable<CallOutcome['operation']>;
  /** The caller's own timeout for the whole call, if any. */
  readonly timeoutMs?: number | undefined;
  /** The caller's own fallbacks, which are tried before those of an alias. */
  readonly fallbacks?: readonly string[] | undefined;
  /** The call concerns an object of the caller, so it needs neither permission for a model nor a budget. */
  readonly ofOwn?: boolean;
}

/** What a call is expected to use, before it is made. */
export interface CallEstimate {
  readonly prompt: number;
  readonly answer: number;
  /** Units that some models charge for instead of tokens. */
  readonly units?: UnitCounts;
  /** The tokens count for budgets, at the price of a batch, and not for limits by the minute. */
  readonly batch?: boolean;
  /** Fields of the request that make its tokens dearer. */
  readonly dearer?: DearerFields | undefined;
}

/** An admitted call. */
export interface AdmittedCall extends IncomingCall {
  readonly plan: ModelPlan;
  readonly promptTokens: number;
  readonly tokens: number;
  readonly record: CallRecord;
  /** Which APIs have room in their budgets. Absent: all have. */
  readonly apis?: AttemptCall<unknown>['apis'];
}

export interface CallAdmissionOptions extends Pick<Runtime, 'clock'> {
  readonly plans: ModelPlans;
  readonly admissions: Admissions;
  readonly priceOf: PriceOf;
}

/** The first step of any request: finds the models, checks that the caller may use them, and reserves the cost. */
export interface CallAdmission {
  /**
   * Throws the error for the caller: a model that the key may not use or that is not there, a limit, a budget. Waits only
   * where something is counted elsewhere.
   */
  admit(call: IncomingCall, model: string, estimate: CallEstimate): AdmittedCall | Promise<AdmittedCall>;
  /** The plan of a model that the caller may use; throws as `admit` does. */
  planFor(holder: KeyHolder, model: string): ModelPlan;
  /** The plan of a model, in a list; an empty list when there is no such model. */
  resolvable(name: string): readonly ModelPlan[];
}

export function createCallAdmission({ plans, admissions, priceOf, clock }: CallAdmissionOptions): CallAdmission {
  /** Returns the cost at the most expensive target, because a budget must hold for any of them. */
  function estimateCost(plan: ModelPlan, holder: KeyHolder, estimate: CallEstimate): number {
    if (!holder.buckets.some(({ limits }) => limits.budget !== undefined)) return 0;
    return Math.max(0, ...pricesOf(plan, holder).map((price) => costOf(price, countsOf(estimate))));
  }

  /** Returns whether any target costs something, or has no known price. */
  function mayCost(plan: ModelPlan, holder: KeyHolder): boolean {
    if (!holder.buckets.some(({ limits }) => limits.budget?.usd === 0)) return true;
    return pricesOf(plan, holder).some((price) => !isFree(price));
  }

  function pricesOf(plan: ModelPlan, holder: KeyHolder): readonly Price[] {
    return targetsOf(plan, holder).map(({ apiId, model }) => priceOf(apiId, model));
  }

  /** Returns all targets that may answer: those of fallbacks too, and of the fallbacks of fallbacks. */
  function targetsOf(plan: ModelPlan, holder: KeyHolder, isTried = (_: ModelPlan) => true): ModelPlan['targets'] {
    const seen = new Set([plan.name]);
    const plans = [plan];
    // Grows while it is walked.
    for (const each of plans) {
      // Only a target that was asked says that a prompt is too long.
      for (const name of isTried(each) ? [...each.fallbacks, ...each.contextFallbacks] : each.fallbacks) {
        if (seen.has(name) || !holder.mayUse(name)) continue;
        seen.add(name);
        plans.push(...resolvable(name));
      }
    }
    return plans.flatMap((each) => each.targets);
  }

  /** Returns what a call may cost at each API of its targets that is not free. */
  function estimatesByApi(plan: ModelPlan, holder: KeyHolder, estimate: CallEstimate): ReadonlyMap<string, number> {
    const costs = new Map<string, number>();
    for (const { apiId, model } of targetsOf(plan, holder)) {
      const price = priceOf(apiId, model);
      if (isFree(price)) continue;
      const nano = costOf(price, countsOf(estimate));
      costs.set(apiId, Math.max(nano, costs.get(apiId) ?? 0));
    }
    return costs;
  }

  /** Returns the budgets if an API has no room in its own. Throws BUDGET_EXCEEDED if no target has room. */
  function roomAt(plan: ModelPlan, holder: KeyHolder, reserved: ApiReservation): AdmittedCall['apis'] {
    const hasRoom = ({ apiId }: Pick<ModelPlan['targets'][number], 'apiId'>) => reserved.hasRoom(apiId);
    const [first] = plan.targets;
    if (first === undefined || targetsOf(plan, holder).every(hasRoom)) return undefined;
    if (targetsOf(plan, holder, (each) => each.targets.some(hasRoom)).some(hasRoom)) return reserved;
    reserved.settle(NO_COSTS);
    throw reserved.refusal(first.apiId);
  }

  function requestFor(call: IncomingCall, plan: ModelPlan, estimate: CallEstimate): AdmissionRequest {
    return {
      estimatedTokens: tokensOf(estimate),
      estimatedCostNano: estimateCost(plan, call.holder, estimate),
      mayCost: mayCost(plan, call.holder),
      isPaid: call.ofOwn ?? false,
      call: call.presence,
    };
  }

  /** Member by member, so that all admitted calls have one shape. */
  function admitted(call: IncomingCall, plan: ModelPlan, estimate: CallEstimate, admission: Admission): AdmittedCall {
    const { holder, requestId, presence, body, operation, timeoutMs, fallbacks, ofOwn = false } = call;
    const record = createCallRecord({ admission, model: plan.name, requestId, operation, clock });
    if (estimate.dearer !== undefined) record.dearer = estimate.dearer;
    return {
      holder,
      requestId,
      presence,
      body,
      operation,
      timeoutMs,
      fallbacks,
      ofOwn,
      plan,
      promptTokens: estimate.prompt,
      tokens: tokensOf(estimate),
      record,
    };
  }

  /** Admits a call where APIs have budgets, which are settled with the call. */
  async function admitWithin(apis: ApiBudgets, call: IncomingCall, plan: ModelPlan, estimate: CallEstimate) {
    const { holder } = call;
    const reserved = await apis.reserve(estimatesByApi(plan, holder, estimate));
    const withRoom = roomAt(plan, holder, reserved);
    try {
      const admission = await admissions.admit(holder, requestFor(call, plan, estimate));
      const settle: Admission['settle'] = (outcome) => {
        const settled = admission.settle(outcome);
        if (settled !== undefined) reserved.settle(costsByApi(settled));
        return settled;
      };
      return { ...admitted(call, plan, estimate, { ...admission, settle }), apis: withRoom };
    } catch (error) {
      reserved.settle(NO_COSTS);
      throw error;
    }
  }

  function resolveFor(holder: KeyHolder, model: string): ModelPlan {
    // Checked before the model is looked up, because a refusal must not suggest names that the key may not use.
    if (!holder.mayUse(model) && !holder.mayUse(plans.nameOf(model))) throw notAllowed(model);
    const plan = plans.resolve(model);
    if (plan.name !== model && !holder.mayUse(plan.name)) throw notAllowed(model);
    return plan;
  }

  /** Puts the caller's own fallbacks before those of the alias; the caller must be allowed to use them. */
  function withFallbacks(plan: ModelPlan, { holder, fallbacks }: IncomingCall): ModelPlan {
    if (fallbacks === undefined) return plan;
    const names = fallbacks.map((name) => resolveFor(holder, name).name);
    return {
      ...plan,
      fallbacks: [...names, ...plan.fallbacks],
      contextFallbacks: [...names, ...plan.contextFallbacks],
    };
  }

  function resolvable(name: string): ModelPlan[] {
    try {
      return [plans.resolve(name)];
    } catch {
      return [];
    }
  }

  return {
    resolvable,
    planFor: resolveFor,
    admit(call, model, estimate) {
      const { holder, ofOwn = false } = call;
      const plan = ofOwn ? plans.resolve(model) : withFallbacks(resolveFor(holder, model), call);
      if (!ofOwn && admissions.apis !== undefined) return admitWithin(admissions.apis, call, plan, estimate);
      const admission = admissions.admit(holder, requestFor(call, plan, estimate));
      return admission instanceof Promise
        ? admission.then((given) => admitted(call, plan, estimate, given))
        : admitted(call, plan, estimate, admission);
    },
  };
}

const NO_COSTS: ReadonlyMap<string, number> = new Map();

function countsOf({ prompt, answer, units, batch = false, dearer }: CallEstimate) {
  return { prompt, completion: answer, batch, ...units, factor: priceFactor(dearer) };
}

function tokensOf({ prompt, answer, batch = false }: CallEstimate): number {
  return batch ? 0 : prompt + answer;
}

const MAX_SHOWN_NAME = 200;

export function notAllowed(model: string): AppError {
  return new AppError('MODEL_NOT_ALLOWED', { model: model.slice(0, MAX_SHOWN_NAME) });
}
