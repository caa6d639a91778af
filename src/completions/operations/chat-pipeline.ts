import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { dearerFields, type PriceOf, priceUsage, usdOfNano } from '../apis/prices.ts';
import type { ChatRequest, Usage } from '../contract/chat.ts';
import { refuseStoredFiles } from '../dialects/conversation.ts';
import { statusOf } from '../errors.ts';
import { guardAnswer } from '../guardrails/guard-answer.ts';
import type { Guardrails } from '../guardrails/guardrails.ts';
import type { Admissions } from '../keys/admission.ts';
import { createRefuseStorage } from '../lanes/upstream-objects.ts';
import { createCallIds } from '../metering/usage-meter.ts';
import type { OpenedChat } from '../relay/open-stream.ts';
import { estimatedUsage, estimatePromptTokens, expectedAnswerTokens } from '../relay/token-usage.ts';
import type { Attempt, AttemptCalls } from '../routing/attempt-call.ts';
import { type FinishCall, failedContent, type MeasuredUsage, usedAt } from '../routing/call-record.ts';
import { type ModelPlans, placeOf } from '../routing/model-plan.ts';
import type { TargetLease } from '../routing/target-board.ts';
import { policyOf } from '../routing/upstream-failure.ts';
import { type AdmittedCall, type CallAdmission, createCallAdmission, type IncomingCall } from './admit-call.ts';
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
  /** Prefixes of the addresses in storage that callers may name. */
  readonly storageAllow?: readonly string[];
  /** Undefined: nothing is checked. */
  readonly guardrails?: Guardrails | undefined;
}

/** The steps of any request: resolve, admit, attempt. Then the response is relayed, and the call is settled. */
export interface ChatPipeline extends Pick<CallAdmission, 'admit' | 'planFor' | 'resolvable'> {
  /** Throws NOTHING_STORED for a request that names an object in storage which the operator has not allowed. */
  readonly refuseStorage: (request: object) => void;
  admitChat(call: IncomingCall, request: ChatRequest): AdmittedCall | Promise<AdmittedCall>;
  /** Tries targets until one responds. Settles a failed call; after a success, `finish` must be called. */
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
  /** Opens a call in the form of another API: as bytes at targets that use that form, translated at all others. */
  openForeign(call: AdmittedCall, form: ForeignForm): Promise<Attempted<OpenedChat>>;
  /** Returns the cost of a call for its usage; empty if it is not shown, or if the price is not known. */
  costOf(call: AdmittedCall, usage: Usage): Pick<Usage, 'cost'>;
  /** Adds the cost to a translated response. */
  showCost(call: AdmittedCall, opened: OpenedChat): OpenedChat;
  /** The response of an API that counts the tokens of a prompt; undefined when none of the model's targets does. */
  countTokens(call: IncomingCall, form: LaneForm): Promise<Buffer | undefined>;
}

export interface ChatForm {
  readonly request: ChatRequest;
  /** The original body, if it may be passed on. */
  readonly bytes?: Buffer | undefined;
  readonly answerAsBytes: boolean;
  readonly strict: boolean;
  /** The request came in another API's form. */
  readonly translated?: boolean;
  /** Whether the form has a member for the cost. */
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
  /** Members that chat completions do not have. They are named in `x-dropped-params`, or refused. */
  readonly dropped: readonly string[];
}

export interface Attempted<Result> {
  readonly result: Result;
  readonly finish: FinishCall;
}

export function createChatPipeline(options: PipelineOptions): ChatPipeline {
  const { attemptCalls, openChat, lanes, priceOf, usageCost = false, guardrails, clock, makeId } = options;
  const admission = createCallAdmission(options);
  const makeAnswerId = createCallIds('chatcmpl-', makeId, clock);

  function workOf(call: AdmittedCall, form: ChatForm, answerId: string): ChatWork {
    const { request, bytes, answerAsBytes, strict, translated } = form;
    const legacy = usesLegacyFunctions(request);
    if (asksForSearch(request)) call.record.asksForSearch = true;
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

  /** Returns the request after the guardrails. A request that they changed has no bytes to pass on. */
  async function guardedForm(call: AdmittedCall, form: ChatForm): Promise<ChatForm> {
    const request = await pipeline.guardRequest(call, form.request);
    const answerAsBytes = form.answerAsBytes && guardrails?.changesResponses !== true;
    return { ...form, request, answerAsBytes, bytes: request === form.request ? form.bytes : undefined };
  }

  /** Does the same for another API. If something was masked, or responses may be masked, the request is translated. */
  async function guardedForeign(
    call: AdmittedCall,
    form: ForeignForm,
  ): Promise<ForeignForm & { leavesLane?: boolean }> {
    const given = typeof form.rewritten === 'object' ? form.rewritten : JSON.parse(form.bytes.toString('utf8'));
    const isSame = (await pipeline.guardRequest(call, given)) === given;
    if (isSame && guardrails?.changesResponses !== true) return form;
    const { chat, dropped } = await settling(call, form.translate);
    const checked = isSame ? chat : await pipeline.guardRequest(call, chat);
    return { ...form, translate: () => ({ chat: checked, dropped }), leavesLane: true };
  }

  const pipeline: ChatPipeline = {
    guards: guardrails,
    refuseStorage: createRefuseStorage(options.storageAllow ?? []),
    async guardRequest(call, request) {
      if (guardrails?.checks('request') !== true) return request;
      return settling(call, async () => {
        const checked = await guardrails.check('request', request, checkedCall(call));
        if (call.record.keepsContent && checked !== request) call.record.maskedRequest = JSON.stringify(checked);
        return checked;
      });
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
    planFor: admission.planFor,
    admit: admission.admit,
    resolvable: admission.resolvable,
    admitChat(call, request) {
      pipeline.refuseStorage(request);
      refuseStoredFiles(request.messages);
      return pipeline.admit(call, request.model, {
        prompt: estimatePromptTokens(request),
        answer: expectedAnswerTokens(request),
        dearer: dearerFields(request),
      });
    },
    async attempt(call, run) {
      const { plan, holder, presence, tokens, record, apis } = call;
      let lease: TargetLease | undefined;
      try {
        const result = await attemptCalls({
          plan,
          holder,
          tokens,
          timeoutMs: call.timeoutMs,
          presence,
          record,
          apis,
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
        const content = record.keepsContent && failedContent(call.body, error);
        const outcome = presence.gone ? 'aborted' : 'error';
        record.settle({
          outcome,
          status: statusOf(error),
          measured: readByUpstream(call, error),
          ...content,
        });
        throw withHeaders(error, record.headers());
      }
    },
    async openChat(call, given) {
      const form = guardrails === undefined ? given : await guardedForm(call, given);
      const work = workOf(call, form, makeAnswerId());
      const open = (attempt: Attempt) => openChat(attempt, work, call.presence);
      const showsCost = usageCost && form.showsCost === true;
      const priced = async (attempt: Attempt) => {
        const opened = await open(attempt);
        call.record.dropped = opened.dropped;
        return pipeline.showCost(call, opened);
      };
      const attempted = await pipeline.attempt(call, showsCost ? priced : open);
      call.record.dropped = attempted.result.dropped;
      return guardrails === undefined ? attempted : pipeline.guardAnswer(call, attempted);
    },
    async openForeign(call, given) {
      const form: ForeignForm & { leavesLane?: boolean } =
        guardrails === undefined ? given : await guardedForeign(call, given);
      const { presence, promptTokens } = call;
      const id = makeAnswerId();
      const lane = { form, promptTokens, idempotencyId: id, spending: call.record };
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
        // What was dropped costs nothing, so this comes before the cost is shown.
        call.record.dropped = [...translated.dropped, ...opening.dropped];
        const chat = form.showsCost === true ? pipeline.showCost(call, opening) : opening;
        return { ...chat, dropped: call.record.dropped };
      });
      call.record.dropped = attempted.result.dropped;
      return guardrails === undefined ? attempted : pipeline.guardAnswer(call, attempted);
    },
    costOf({ record }, usage) {
      if (!usageCost || record.target === undefined) return {};
      const used = [...(record.spent ?? []), usedAt(record, record.counted(usage))];
      const costs = used.map((part) => priceUsage(priceOf, part));
      if (!costs.every(({ isKnown }) => isKnown)) return {};
      return { cost: usdOfNano(costs.reduce((sum, { costNano }) => sum + costNano, 0)) };
    },
    showCost: (call, opened) => (usageCost ? withCost(opened, (usage) => pipeline.costOf(call, usage)) : opened),
    async countTokens(incoming, form) {
      const { model } = form.request;
      const targets = admission.resolvable(model).flatMap((plan) => plan.targets);
      if (!targets.some((target) => lanes.serves(target, form.lane))) return undefined;
      const call = await pipeline.admit(incoming, model, { prompt: 0, answer: 0 });
      if (guardrails !== undefined) {
        const body: unknown = JSON.parse(form.bytes.toString('utf8'));
        // Masked content is not sent for counting either.
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

/** Prepares a call. Settles it if that fails: it was admitted, and no attempt will end it. */
async function settling<Result>({ record }: AdmittedCall, prepare: () => Result | Promise<Result>): Promise<Result> {
  try {
    return await prepare();
  } catch (error) {
    record.settle({ outcome: 'error', status: statusOf(error) });
    throw withHeaders(error, record.headers());
  }
}

/** Returns the usage of a call whose caller left during a try: the prompt, because the upstream had read it. */
function readByUpstream({ presence, record, promptTokens }: AdmittedCall, error: unknown): MeasuredUsage | undefined {
  const last = record.failures?.at(-1);
  if (!presence.gone || last === undefined || last.code !== errorCode(error)) return undefined;
  return { usage: estimatedUsage(promptTokens, 0), estimated: true };
}

function asksForSearch({ web_search_options: options }: ChatRequest & { web_search_options?: unknown }): boolean {
  return options !== undefined && options !== null;
}

function checkedCall({ requestId, plan, holder }: AdmittedCall) {
  return { requestId, model: plan.name, holderId: holder.id };
}

const NOT_THERE: ReadonlySet<number> = new Set([404, 405, 501]);

/** Keeps only the targets that have the objects that a request names. */
function pinned(call: AdmittedCall, { refusal }: LaneForm): AdmittedCall {
  if (refusal === undefined) return call;
  const targets = call.plan.targets.filter((target) => refusal(placeOf(target)) === undefined);
  if (targets.length === 0) return call;
  return { ...call, plan: { ...call.plan, targets, fallbacks: [], contextFallbacks: [] } };
}

/** Adds the headers that describe the call to an error. */
export function withHeaders(error: unknown, headers: Readonly<Record<string, string>>): unknown {
  return error instanceof AppError ? new AppError(error.code, { ...error.details, headers }, { cause: error }) : error;
}
