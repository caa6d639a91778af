import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { costOf, isFree, type Price, type PriceOf } from '../apis/prices.ts';
import type { ChatRequest } from '../contract/chat.ts';
import { statusOf } from '../errors.ts';
import type { Admission, Admissions, CallOutcome, KeyHolder } from '../keys/admission.ts';
import { createCallIds } from '../metering/call-ids.ts';
import { estimatePromptTokens, expectedAnswerTokens } from '../relay/token-usage.ts';
import type { Attempt, AttemptCalls } from '../routing/attempt-call.ts';
import type { FinishCall } from '../routing/call-record.ts';
import { type CallerPresence, type CallRecord, createCallRecord } from '../routing/call-record.ts';
import type { ModelPlan, ModelPlans } from '../routing/model-plan.ts';
import type { TargetLease } from '../routing/target-board.ts';
import { policyOf } from '../routing/upstream-failure.ts';
import type { ChatWork, OpenedChat } from './encode-chat.ts';
import { usesLegacyFunctions, withTools } from './legacy-functions.ts';
import type { OpenChat } from './open-chat.ts';

export interface PipelineOptions extends Pick<Runtime, 'clock' | 'makeId'> {
  readonly plans: Pick<ModelPlans, 'resolve'>;
  readonly attemptCalls: AttemptCalls;
  readonly openChat: OpenChat;
  readonly admissions: Admissions;
  readonly priceOf: PriceOf;
}

export interface IncomingCall {
  readonly holder: KeyHolder;
  readonly requestId: string;
  readonly presence: CallerPresence;
  readonly operation: NonNullable<CallOutcome['operation']>;
  /** What the caller gives the whole call, if it says so. */
  readonly timeoutMs?: number | undefined;
}

/** A call that was let in. */
export interface AdmittedCall extends IncomingCall {
  readonly plan: ModelPlan;
  readonly promptTokens: number;
  readonly tokens: number;
  readonly record: CallRecord;
}

/** One request's way, whoever brings it: resolve, admit, attempt; then the answer is relayed, and the call settled. */
export interface ChatPipeline {
  /** Throws what the caller is told: a model that the key may not use or that is not there, a limit, a budget. */
  admit(call: IncomingCall, model: string, estimate: { prompt: number; answer: number }): AdmittedCall;
  admitChat(call: IncomingCall, request: ChatRequest): AdmittedCall;
  /** Tries until something answers. A failure is settled here; after a success, `finish` must be called. */
  attempt<Result>(call: AdmittedCall, run: (attempt: Attempt) => Promise<Result>): Promise<Attempted<Result>>;
  openChat(call: AdmittedCall, form: ChatForm): Promise<Attempted<OpenedChat>>;
}

export interface ChatForm {
  readonly request: ChatRequest;
  /** The body as it came, when it may be passed on. */
  readonly bytes?: Buffer | undefined;
  readonly answerAsBytes: boolean;
  readonly strict: boolean;
  /** The request came in another API's form. */
  readonly translated?: boolean;
}

export interface Attempted<Result> {
  readonly result: Result;
  readonly finish: FinishCall;
}

export function createChatPipeline(options: PipelineOptions): ChatPipeline {
  const { plans, attemptCalls, openChat, admissions, priceOf, clock, makeId } = options;
  const makeAnswerId = createCallIds('chatcmpl-', makeId, clock);

  /** The dearest of what may answer: a budget must hold wherever the call ends up. */
  function estimateCost(plan: ModelPlan, holder: KeyHolder, prompt: number, completion: number): number {
    if (!holder.buckets.some(({ limits }) => limits.budget !== undefined)) return 0;
    const costs = pricesOf(plan, holder).map((price) => costOf(price, { prompt, completion }));
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

  function resolvable(name: string): ModelPlan[] {
    try {
      return [plans.resolve(name)];
    } catch {
      return [];
    }
  }

  const pipeline: ChatPipeline = {
    admit(call, model, { prompt, answer }) {
      const { holder, requestId, operation } = call;
      // Before the model is looked up: the names that a refusal suggests are not for a key that may not use them.
      if (!holder.mayUse(model)) throw new AppError('MODEL_NOT_ALLOWED', { model: model.slice(0, MAX_SHOWN_NAME) });
      const plan = plans.resolve(model);
      const admission: Admission = admissions.admit(holder, {
        estimatedTokens: prompt + answer,
        estimatedCostNano: estimateCost(plan, holder, prompt, answer),
        mayCost: mayCost(plan, holder),
        call: call.presence,
      });
      const record = createCallRecord({ admission, model, requestId, operation, clock });
      return { ...call, plan, promptTokens: prompt, tokens: prompt + answer, record };
    },
    admitChat: (call, request) =>
      pipeline.admit(call, request.model, {
        prompt: estimatePromptTokens(request),
        answer: expectedAnswerTokens(request),
      }),
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
    async openChat(call, { request, bytes, answerAsBytes, strict, translated }) {
      const legacy = usesLegacyFunctions(request);
      const answerId = makeAnswerId();
      const work: ChatWork = {
        request: legacy ? withTools(request) : request,
        bytes: legacy ? undefined : bytes,
        answerAsBytes: answerAsBytes && !legacy,
        strict,
        translated,
        ...(legacy && request.parallel_tool_calls === undefined && { added: ['parallel_tool_calls'] }),
        promptTokens: call.promptTokens,
        idempotencyId: answerId,
        answerId,
        created: Math.floor(clock.now() / 1000),
      };
      const attempted = await pipeline.attempt(call, (attempt) => openChat(attempt, work, call.presence));
      call.record.dropped = attempted.result.dropped;
      return attempted;
    },
  };
  return pipeline;
}

const MAX_SHOWN_NAME = 200;

/** A failure tells as much of how the call went as an answer does. */
function withHeaders(error: unknown, headers: Readonly<Record<string, string>>): unknown {
  return error instanceof AppError ? new AppError(error.code, { ...error.details, headers }, { cause: error }) : error;
}

/** What a caller may ask for by header. */
export interface CallOptions {
  /** Refuse what the upstream cannot take (contract/completions 2). */
  readonly strict: boolean;
  /** `x-cache-ttl`, in seconds: how long the answer may be given again; 0: it must be fresh. */
  readonly cacheTtlMs: number | undefined;
  /** `x-timeout-ms`: the longest time for the whole call. The configured limits hold as well. */
  readonly timeoutMs: number | undefined;
}

const MAX_TTL_SECONDS = 30 * 24 * 60 * 60;

export function readCallOptions({ headers }: RequestHead, strictByDefault: boolean): CallOptions {
  const strict = headers['x-strict-params'];
  const ttl = headers['x-cache-ttl'];
  const timeout = headers['x-timeout-ms'];
  if (timeout !== undefined && !/^[1-9]\d{0,9}$/.test(String(timeout))) {
    const reason = 'the header x-timeout-ms is not a whole number of milliseconds above 0';
    throw new AppError('INVALID_REQUEST', { reason, param: 'x-timeout-ms' });
  }
  return {
    strict: strict === undefined ? strictByDefault : strict === 'true',
    cacheTtlMs:
      typeof ttl === 'string' && /^\d{1,9}$/.test(ttl) ? Math.min(Number(ttl), MAX_TTL_SECONDS) * 1000 : undefined,
    timeoutMs: timeout === undefined ? undefined : Number(timeout),
  };
}
