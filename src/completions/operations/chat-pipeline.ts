import { AppError } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { costOf, countTokens, isFree, type Price, type PriceOf, usdOfNano } from '../apis/prices.ts';
import type { ChatRequest, Usage } from '../contract/chat.ts';
import { refuseStoredFiles } from '../dialects/conversation.ts';
import { statusOf } from '../errors.ts';
import { guardAnswer } from '../guardrails/guard-answer.ts';
import type { Guardrails } from '../guardrails/guardrails.ts';
import type { Admission, Admissions, CallOutcome, KeyHolder } from '../keys/admission.ts';
import { createCallIds } from '../metering/usage-meter.ts';
import type { OpenedChat } from '../relay/open-stream.ts';
import { estimatePromptTokens, expectedAnswerTokens } from '../relay/token-usage.ts';
import type { Attempt, AttemptCalls } from '../routing/attempt-call.ts';
import { type CallerPresence, type CallRecord, createCallRecord, type FinishCall } from '../routing/call-record.ts';
import { type ModelPlan, type ModelPlans, placeOf } from '../routing/model-plan.ts';
import type { TargetLease } from '../routing/target-board.ts';
import { policyOf } from '../routing/upstream-failure.ts';
import { type ChatWork, usesLegacyFunctions, withCost, withTools } from './encode-chat.ts';
import type { OpenChat } from './open-chat.ts';
import type { LaneForm, OpenLanes } from './open-operation.ts';

export interface PipelineOptions extends Pick<Runtime, 'clock' | 'makeId'> {
  readonly plans: ModelPlans;
  readonly attemptCalls: AttemptCalls;
  readonly openChat: OpenChat;
  readonly lanes: OpenLanes;
  readonly admissions: Admissions;
  readonly priceOf: PriceOf;
  /** Whether translated answers tell what they cost, where their form allows it. */
  readonly usageCost?: boolean;
  /** Undefined: nothing is checked. */
  readonly guardrails?: Guardrails | undefined;
}

export interface IncomingCall {
  readonly holder: KeyHolder;
  readonly requestId: string;
  readonly presence: CallerPresence;
  readonly operation: NonNullable<CallOutcome['operation']>;
  /** What the caller gives the whole call, if it says so. */
  readonly timeoutMs?: number | undefined;
  /** Models to try when the one that was asked for fails; before those of an alias. */
  readonly fallbacks?: readonly string[] | undefined;
  /** The call deals with an object of the caller's own, which needs neither the right to a model nor a budget. */
  readonly ofOwn?: boolean;
}

/** What a call may take, before it is made. */
export interface CallEstimate {
  readonly prompt: number;
  readonly answer: number;
  /** The tokens count for budgets, at the price of a batch, and not for limits by the minute. */
  readonly batch?: boolean;
}

/** A call that was let in. */
export interface AdmittedCall extends IncomingCall {
  readonly plan: ModelPlan;
  readonly promptTokens: number;
  readonly tokens: number;
  readonly record: CallRecord;
}

/** The path of any request: resolve, admit, attempt; then the answer is relayed, and the call settled. */
export interface ChatPipeline {
  /** Throws the error for the caller: a model that the key may not use or that is not there, a limit, a budget. */
  admit(call: IncomingCall, model: string, estimate: CallEstimate): Promise<AdmittedCall>;
  /** The plan of a model that the caller may use; throws as `admit` does. */
  planFor(holder: KeyHolder, model: string): ModelPlan;
  admitChat(call: IncomingCall, request: ChatRequest): Promise<AdmittedCall>;
  /** Tries until something answers. A failure is settled here; after a success, `finish` must be called. */
  attempt<Result>(call: AdmittedCall, run: (attempt: Attempt) => Promise<Result>): Promise<Attempted<Result>>;
  /**
   * What the guardrails leave of a request: the same value where they mask nothing. Throws, and settles the call, where they
   * block it. Callers that send no chat ask for it, where `guards` is not undefined.
   */
  guardRequest<Request>(call: AdmittedCall, request: Request): Promise<Request>;
  /** The same for what came back. */
  guardAnswer<Opened extends OpenedChat>(
    call: AdmittedCall,
    attempted: Attempted<Opened>,
  ): Promise<Attempted<OpenedChat>>;
  readonly guards: Guardrails | undefined;
  openChat(call: AdmittedCall, form: ChatForm): Promise<Attempted<OpenedChat>>;
  /** A call in the form of another API: as bytes to targets that speak it themselves, translated to all others. */
  openForeign(call: AdmittedCall, form: ForeignForm): Promise<Attempted<OpenedChat>>;
  /** What a call has cost on its target, for its usage; empty where that is not shown, or the price is not known. */
  costOf(call: AdmittedCall, usage: Usage): Pick<Usage, 'cost'>;
  /** The same in a translated answer. */
  showCost(call: AdmittedCall, opened: OpenedChat): OpenedChat;
  /** The response of an API that counts the tokens of a prompt; undefined when none of the model's targets does. */
  countTokens(call: IncomingCall, form: LaneForm): Promise<Buffer | undefined>;
}

export interface ChatForm {
  readonly request: ChatRequest;
  /** The body as it came, when it may be passed on. */
  readonly bytes?: Buffer | undefined;
  readonly answerAsBytes: boolean;
  readonly strict: boolean;
  /** The request came in another API's form. */
  readonly translated?: boolean;
  /** Its form has a place for what the call cost. */
  readonly showsCost?: boolean;
}

/** A request in the form of another API. */
export interface ForeignForm extends LaneForm, Pick<ChatForm, 'showsCost'> {
  readonly strict: boolean;
  /** The request as a chat completion. Called when a target needs it, once. */
  translate(): DecodedRequest;
}

/** A request of another API, in the form that the pipeline runs. */
export interface DecodedRequest {
  readonly chat: ChatRequest;
  /** What chat completions have no place for (contract/completions 2): named in `x-dropped-params`, or refused. */
  readonly dropped: readonly string[];
}

export interface Attempted<Result> {
  readonly result: Result;
  readonly finish: FinishCall;
}

export function createChatPipeline(options: PipelineOptions): ChatPipeline {
  const {
    plans,
    attemptCalls,
    openChat,
    lanes,
    admissions,
    priceOf,
    usageCost = false,
    guardrails,
    clock,
    makeId,
  } = options;
  const makeAnswerId = createCallIds('chatcmpl-', makeId, clock);

  /** The dearest of what may answer: a budget must hold wherever the call ends up. */
  function estimateCost(plan: ModelPlan, holder: KeyHolder, { prompt, answer, batch = false }: CallEstimate): number {
    if (!holder.buckets.some(({ limits }) => limits.budget !== undefined)) return 0;
    const costs = pricesOf(plan, holder).map((price) => costOf(price, { prompt, completion: answer, batch }));
    return Math.max(0, ...costs);
  }

  /** Whether anything that may answer costs something, or may for all we know. */
  function mayCost(plan: ModelPlan, holder: KeyHolder): boolean {
    if (!holder.buckets.some(({ limits }) => limits.budget?.usd === 0)) return true;
    return pricesOf(plan, holder).some((price) => !isFree(price));
  }

  function pricesOf(plan: ModelPlan, holder: KeyHolder): readonly Price[] {
    const fallbacks = [...plan.fallbacks, ...plan.contextFallbacks].filter((name) => holder.mayUse(name));
    const targets = [plan, ...fallbacks.flatMap(resolvable)].flatMap((each) => each.targets);
    return targets.map(({ apiId, model }) => priceOf(apiId, model));
  }

  function resolveFor(holder: KeyHolder, model: string): ModelPlan {
    // Before the model is looked up: the names that a refusal suggests are not for a key that may not use them.
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

  function workOf(call: AdmittedCall, form: ChatForm, answerId: string): ChatWork {
    const { request, bytes, answerAsBytes, strict, translated } = form;
    const legacy = usesLegacyFunctions(request);
    return {
      request: legacy ? withTools(request) : request,
      bytes: legacy ? undefined : bytes,
      answerAsBytes: answerAsBytes && !legacy,
      strict,
      translated,
      ...(legacy && request.parallel_tool_calls === undefined && { added: ['parallel_tool_calls'] }),
      promptTokens: call.promptTokens,
      call,
      idempotencyId: answerId,
      answerId,
      created: Math.floor(clock.now() / 1000),
    };
  }

  /** The request as the guardrails leave it. One that may not pass as it is loses its bytes. */
  async function guardedForm(call: AdmittedCall, form: ChatForm): Promise<ChatForm> {
    const request = await pipeline.guardRequest(call, form.request);
    const answerAsBytes = form.answerAsBytes && guardrails?.changesResponses !== true;
    return { ...form, request, answerAsBytes, bytes: request === form.request ? form.bytes : undefined };
  }

  /** The same for another API. Where something was masked, or responses may be, the request is translated. */
  async function guardedForeign(
    call: AdmittedCall,
    form: ForeignForm,
  ): Promise<ForeignForm & { leavesLane?: boolean }> {
    const given = typeof form.rewritten === 'object' ? form.rewritten : JSON.parse(form.bytes.toString('utf8'));
    const isSame = (await pipeline.guardRequest(call, given)) === given;
    if (isSame && guardrails?.changesResponses !== true) return form;
    const { chat, dropped } = form.translate();
    const checked = isSame ? chat : await pipeline.guardRequest(call, chat);
    return { ...form, translate: () => ({ chat: checked, dropped }), leavesLane: true };
  }

  const pipeline: ChatPipeline = {
    guards: guardrails,
    async guardRequest(call, request) {
      if (guardrails?.checks('request') !== true) return request;
      try {
        const checked = await guardrails.check('request', request, checkedCall(call));
        if (call.record.keepsContent && checked !== request) call.record.maskedRequest = JSON.stringify(checked);
        return checked;
      } catch (error) {
        call.record.settle({ outcome: 'error', status: statusOf(error) });
        throw withHeaders(error, call.record.headers());
      }
    },
    async guardAnswer(call, attempted) {
      if (guardrails?.checks('response') !== true) return attempted;
      const { result, finish } = attempted;
      try {
        return { finish, result: await guardAnswer(guardrails, result, checkedCall(call)) };
      } catch (error) {
        const measured = 'measured' in result ? result.measured : undefined;
        finish({ outcome: 'error', status: statusOf(error), measured, error });
        throw withHeaders(error, call.record.headers());
      }
    },
    planFor: resolveFor,
    async admit(call, model, estimate) {
      const { holder, requestId, operation, ofOwn = false } = call;
      const { prompt, answer } = estimate;
      const plan = ofOwn ? plans.resolve(model) : withFallbacks(resolveFor(holder, model), call);
      const admission: Admission = await admissions.admit(holder, {
        estimatedTokens: estimate.batch === true ? 0 : prompt + answer,
        estimatedCostNano: estimateCost(plan, holder, estimate),
        mayCost: mayCost(plan, holder),
        isPaid: ofOwn,
        call: call.presence,
      });
      const record = createCallRecord({ admission, model: plan.name, requestId, operation, clock });
      return { ...call, plan, promptTokens: prompt, tokens: estimate.batch === true ? 0 : prompt + answer, record };
    },
    async admitChat(call, request) {
      refuseStoredFiles(request.messages);
      return pipeline.admit(call, request.model, {
        prompt: estimatePromptTokens(request),
        answer: expectedAnswerTokens(request),
      });
    },
    async attempt(call, run) {
      const { plan, holder, presence, tokens, record } = call;
      let lease: TargetLease | undefined;
      try {
        const result = await attemptCalls({
          plan,
          holder,
          tokens,
          timeoutMs: call.timeoutMs,
          presence,
          record,
          run(attempt) {
            lease = attempt.lease;
            return run(attempt);
          },
        });
        record.firstToken();
        return {
          result,
          finish({ error, ...end }) {
            const failed = error !== undefined && policyOf(error).countsAgainstTarget;
            lease?.end(failed ? 'failed' : end.outcome === 'ok' ? 'ok' : 'ignored', end.measured?.usage.total_tokens);
            lease = undefined;
            record.settle(end);
          },
        };
      } catch (error) {
        record.settle({ outcome: presence.gone ? 'aborted' : 'error', status: statusOf(error) });
        throw withHeaders(error, record.headers());
      }
    },
    async openChat(call, given) {
      const form = guardrails === undefined ? given : await guardedForm(call, given);
      const work = workOf(call, form, makeAnswerId());
      const attempted = await pipeline.attempt(call, async (attempt) => {
        const opened = await openChat(attempt, work, call.presence);
        return form.showsCost === true ? pipeline.showCost(call, opened) : opened;
      });
      call.record.dropped = attempted.result.dropped;
      return guardrails === undefined ? attempted : pipeline.guardAnswer(call, attempted);
    },
    async openForeign(call, given) {
      const form: ForeignForm & { leavesLane?: boolean } =
        guardrails === undefined ? given : await guardedForeign(call, given);
      const { presence, promptTokens } = call;
      const id = makeAnswerId();
      const lane = { form, promptTokens, idempotencyId: id };
      let translated: { readonly work: ChatWork; readonly dropped: readonly string[] } | undefined;
      const translate = () => {
        const { chat: request, dropped } = form.translate();
        refuseStoredFiles(request.messages);
        if (form.strict && dropped.length > 0) throw new AppError('UNSUPPORTED_PARAMETER', { param: dropped[0] });
        const { strict } = form;
        return { work: workOf(call, { request, answerAsBytes: false, strict, translated: true }, id), dropped };
      };
      const attempted = await pipeline.attempt(pinned(call, form), async (attempt) => {
        const opened = form.leavesLane === true ? undefined : lanes.open(attempt, lane, presence);
        if (opened !== undefined) return opened;
        translated ??= translate();
        call.record.dropped = translated.dropped;
        const opening = await openChat(attempt, translated.work, presence);
        const chat = form.showsCost === true ? pipeline.showCost(call, opening) : opening;
        return { ...chat, dropped: [...translated.dropped, ...chat.dropped] };
      });
      call.record.dropped = attempted.result.dropped;
      return guardrails === undefined ? attempted : pipeline.guardAnswer(call, attempted);
    },
    costOf({ record }, usage) {
      const { target } = record;
      if (!usageCost || target === undefined) return {};
      const price = priceOf(target.apiId, target.model);
      return price.known ? { cost: usdOfNano(costOf(price, countTokens(usage))) } : {};
    },
    showCost: (call, opened) => (usageCost ? withCost(opened, (usage) => pipeline.costOf(call, usage)) : opened),
    async countTokens(incoming, form) {
      const { model } = form.request;
      const targets = resolvable(model).flatMap((plan) => plan.targets);
      if (!targets.some(({ apiId }) => lanes.serves(apiId, form.lane))) return undefined;
      const call = await pipeline.admit(incoming, model, { prompt: 0, answer: 0 });
      if (guardrails !== undefined) {
        const body: unknown = JSON.parse(form.bytes.toString('utf8'));
        // What is masked for models is not sent to their counters either.
        if ((await pipeline.guardRequest(call, body)) !== body) {
          call.record.settle({ outcome: 'ok', status: 200 });
          return undefined;
        }
      }
      const work = { form, promptTokens: 0, idempotencyId: makeAnswerId() };
      try {
        const opening = pipeline.attempt(call, async (attempt) => lanes.open(attempt, work, incoming.presence));
        const { result, finish } = await opening;
        finish({ outcome: 'ok', status: 200 });
        return result?.kind === 'bytes' ? result.body : undefined;
      } catch (error) {
        // Some APIs that speak the Messages API do not count.
        if (error instanceof AppError && NOT_THERE.has(Number(error.details.status))) return undefined;
        throw error;
      }
    },
  };
  return pipeline;
}

function checkedCall({ requestId, plan, holder }: AdmittedCall) {
  return { requestId, model: plan.name, holderId: holder.id };
}

const MAX_SHOWN_NAME = 200;

export function notAllowed(model: string): AppError {
  return new AppError('MODEL_NOT_ALLOWED', { model: model.slice(0, MAX_SHOWN_NAME) });
}

const NOT_THERE: ReadonlySet<number> = new Set([404, 405, 501]);

/** A request that names objects of an API can only be answered there. */
function pinned(call: AdmittedCall, { refusal }: LaneForm): AdmittedCall {
  if (refusal === undefined) return call;
  const targets = call.plan.targets.filter((target) => refusal(placeOf(target)) === undefined);
  if (targets.length === 0) return call;
  return { ...call, plan: { ...call.plan, targets, fallbacks: [], contextFallbacks: [] } };
}

/** A failure tells as much of how the call went as an answer does. */
function withHeaders(error: unknown, headers: Readonly<Record<string, string>>): unknown {
  return error instanceof AppError ? new AppError(error.code, { ...error.details, headers }, { cause: error }) : error;
}
