import { lookup } from 'node:dns';
import { readFile } from 'node:fs/promises';
import type { SharedLimits } from '../platform/limits/shared-buckets.ts';
import { readOutgoingProxy } from '../platform/network-address/outgoing-proxy.ts';
import type { Environment, Runtime } from '../platform/runtime/runtime.ts';
import type { Catalogue } from './apis/catalogue.ts';
import { createListUpstreamModels } from './apis/live-models.ts';
import { createModels, type Models } from './apis/models.ts';
import type { PriceOf } from './apis/prices.ts';
import { createAuthoriseUpstream } from './dialects/authorise-upstream.ts';
import { createGuardrails } from './guardrails/guardrails.ts';
import type { Admissions } from './keys/admission.ts';
import { type ChatPipeline, createChatPipeline } from './operations/chat-pipeline.ts';
import { createOpenChat, type OpenChat } from './operations/open-chat.ts';
import { createOpenLanes, createOpenOperation, type OpenOperation } from './operations/open-operation.ts';
import { createRedisStore, createResponseCache, type ResponseCache } from './operations/response-cache.ts';
import { createMeterChat, createRunChat, type MeterChat, type RunChat } from './operations/run-chat.ts';
import { createThinkingProofs } from './operations/thinking-proofs.ts';
import { createAttemptCalls } from './routing/attempt-call.ts';
import { createModelPlans } from './routing/model-plan.ts';
import { createTargetBoard, type TargetStatus } from './routing/target-board.ts';
import type { CompletionsSettings } from './settings.ts';
import { createFetchLinkedFiles } from './upstream/linked-files.ts';
import { createSendUpstream, type SendUpstream } from './upstream/send-upstream.ts';
import { createUpstreamPools } from './upstream/upstream-pools.ts';

export interface ChatEngineOptions extends Runtime {
  readonly settings: CompletionsSettings;
  readonly catalogue: Catalogue;
  readonly environment: Environment;
  readonly isOwnAddress?: ((url: URL) => boolean) | undefined;
  /** Limits that other instances count too. Undefined: this one counts alone. */
  readonly shared?: SharedLimits | undefined;
  /** Limits, budgets and metering. Without them every call is let in, and none is recorded: no database is needed. */
  readonly admissions?: (priceOf: PriceOf) => Admissions;
}

/** Everything between a checked request and the upstreams. */
export interface ChatEngine {
  readonly runChat: RunChat;
  readonly meterChat: MeterChat;
  readonly pipeline: ChatPipeline;
  readonly cache: ResponseCache;
  readonly models: Models;
  readonly openChat: OpenChat;
  readonly openOperation: OpenOperation;
  readonly send: SendUpstream;
  /** How the targets that were used lately fare: which are out, and how much each has under way. */
  targets(): readonly TargetStatus[];
  reload(settings: CompletionsSettings): void;
  /** Breaks off what is still under way. */
  stop(): Promise<void>;
}

export function createChatEngine(options: ChatEngineOptions): ChatEngine {
  const { settings, catalogue, environment, clock, randomness, makeId, logger } = options;
  const authorise = createAuthoriseUpstream({
    clock,
    fetch: (...given) => fetch(...given),
    readFile: (path) => readFile(path, 'utf8'),
  });
  const models = createModels({
    settings,
    environment,
    isOwnAddress: options.isOwnAddress,
    catalogue,
    clock,
    listUpstream: createListUpstreamModels(authorise),
  });
  const admissions = options.admissions?.(models.priceOf) ?? admitEverything;
  const pools = createUpstreamPools(lookup, readOutgoingProxy(environment));
  const send = createSendUpstream({ pools, authorise, clock });
  const plans = createModelPlans({
    settings,
    findApi: models.findApi,
    knownNames: models.knownNames,
    apisWith: models.apisWith,
    missingFor(id) {
      const api = models.apis().get(id);
      return api === undefined || api.usable ? [] : api.missing;
    },
  });
  const { priceOf } = models;
  const board = createTargetBoard({
    clock,
    priceOf,
    randomness,
    shared: options.shared?.buckets,
    onCircuit(target, state) {
      if (state === 'open') logger.warn({ target }, 'a target is out after repeated failures');
      else logger.info({ target }, 'a target is back');
    },
  });
  const knownModel = (api: string, model: string) => catalogue.modelsOf(api).get(model);
  const { url, prefix } = settings.cache;
  const shared = url === '' ? undefined : createRedisStore({ url, prefix, clock, logger });
  const openChat = createOpenChat({
    findApi: models.findApi,
    send,
    knownModel,
    maxEventBytes: settings.max_event_bytes,
    promptCache: settings.prompt_cache,
    // What a guardrail takes out of a response must not come back.
    proofs: settings.guardrails.length > 0 ? undefined : createThinkingProofs(clock, shared),
    fetchLinkedFiles: createFetchLinkedFiles({ allow: settings.link_allow, clock }),
    clock,
  });
  const lanes = createOpenLanes({
    findApi: models.findApi,
    knownModel,
    send,
    clock,
    maxEventBytes: settings.max_event_bytes,
  });
  const attemptCalls = createAttemptCalls({
    plans,
    board,
    clock,
    randomness,
    onFailure: (target, code) => logger.info({ target, code }, 'an attempt on a model failed'),
  });
  const guardrails = createGuardrails(settings.guardrails, logger);
  const pipeline = createChatPipeline({
    plans,
    attemptCalls,
    openChat,
    lanes,
    admissions,
    priceOf,
    usageCost: settings.usage_cost,
    storageAllow: settings.storage_allow,
    guardrails,
    clock,
    makeId,
  });

  return {
    runChat: createRunChat(pipeline),
    meterChat: createMeterChat({ admissions, priceOf, clock }),
    pipeline,
    // A shared store outlives a restart with other guardrails.
    cache: createResponseCache({
      clock,
      shared,
      ...(settings.guardrails.length > 0 && { scope: JSON.stringify(settings.guardrails) }),
    }),
    models,
    openChat,
    openOperation: createOpenOperation({ send, clock, maxEventBytes: settings.max_event_bytes }),
    send,
    targets: board.status,
    reload: models.reload,
    async stop() {
      models.stop();
      guardrails?.stop();
      shared?.stop();
      await pools.close();
    },
  };
}

/** For a pipeline that has no keys, limits and records: the built-in agent of a bridge that runs alone. */
export const admitEverything: Admissions = {
  admit: () => ({ headers: {}, keepsContent: false, settle: () => undefined }),
};
