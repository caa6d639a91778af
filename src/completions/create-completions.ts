import type { Database } from '../platform/database/database.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { describeError } from '../platform/errors/error-table.ts';
import { originAllowed } from '../platform/http/cross-origin.ts';
import type { FigureSource } from '../platform/http/http-metrics.ts';
import type { Call, ErrorForBody, HttpSurface, RequestHead, Route } from '../platform/http/surface.ts';
import type { Identify } from '../platform/identity/principal.ts';
import type { MethodRow } from '../platform/json-rpc/method-table.ts';
import type { Environment, Runtime } from '../platform/runtime/runtime.ts';
import { createCatalogue } from './apis/catalogue.ts';
import { createCatalogueUpdates } from './apis/catalogue-updates.ts';
import { createChatEngine } from './chat-engine.ts';
import { ApiError } from './contract/read-request.ts';
import { completionsControlMethods } from './control-methods.ts';
import { apiErrorBody, completionsErrors, statusOf } from './errors.ts';
import { createIngress } from './ingress/create-ingress.ts';
import { createGemini } from './ingress/gemini/create-gemini.ts';
import { geminiErrorBody, speaksGemini } from './ingress/gemini/gemini-answer.ts';
import { messagesErrorBody, speaksMessages } from './ingress/messages/messages-answer.ts';
import { storedInResponses } from './ingress/responses/responses-request.ts';
import type { KeyAccess } from './keys/key-access.ts';
import type { OwnKeys } from './keys/key-register.ts';
import { createUpstreamObjects } from './lanes/upstream-objects.ts';
import { createMeteredKeys, type KeyOwners, type MeteredKeys, type MeteredKeysOptions } from './metered-keys.ts';
import { createBatchCharges } from './operations/batch-file.ts';
import { createChatHandler } from './operations/chat-handler.ts';
import { createEmbed, createEmbeddingsHandler } from './operations/embeddings-handler.ts';
import { createMediaHandler } from './operations/media-handler.ts';
import type { MeterChat, RunChat } from './operations/run-chat.ts';
import { createStoredObjects } from './operations/stored-objects.ts';
import { createTextHandler } from './operations/text-handler.ts';
import { completionsRoutes } from './routes.ts';
import type { TargetStatus } from './routing/target-board.ts';
import type { CompletionsSettings } from './settings.ts';
import type { CompletionsSchema } from './storage/completions-schema.ts';
import { createCatalogueStore, createObjectStore } from './storage/object-store.ts';

export interface Completions {
  readonly surface: HttpSurface;
  /** The same pipeline for other parts of the program. */
  readonly runChat: RunChat;
  /** For calls that other parts of the program send to an API of their own: limits, budgets and records. */
  readonly meterChat: MeterChat;
  /** Whether the price of a model of such an API is known. */
  isPriced(api: string, model: string): boolean;
  /** Whom such a call is charged to: an owner, as the bridge names them. */
  readonly holderOf: KeyAccess['forOwner'];
  /** A key for programs that work for an owner, until this program ends. */
  readonly temporaryKey: KeyAccess['temporaryKey'];
  /** The same for one program, until `end`. */
  readonly keyForProgram: KeyAccess['keyForProgram'];
  /** The keys of users, for the service that knows them. */
  readonly ownKeys: OwnKeys;
  readonly controls: readonly MethodRow<undefined>[];
  readonly figures: readonly FigureSource[];
  /** Puts the last good update of the catalogue of models into force, before the first call. */
  loadCatalogue(): Promise<void>;
  targets(): readonly TargetStatus[];
  /** API keys and the master key; the rest needs a restart. */
  reload(settings: CompletionsSettings): void;
  /** After the last answer: stores what is left to be recorded. */
  stop(): Promise<void>;
}

export interface CompletionsOptions extends Runtime {
  readonly settings: CompletionsSettings;
  readonly usageRetentionMs: number;
  readonly contentRetentionMs?: number;
  /** Empty: no spans. */
  readonly otlpEndpoint: string;
  readonly programVersion: string;
  readonly database: Database<CompletionsSchema>;
  readonly environment: Environment;
  /** Messages between instances. Undefined: no other shares the database. */
  readonly wakeUps?: MeteredKeysOptions['wakeUps'];
  readonly shared?: MeteredKeysOptions['shared'];
  /** Whether an address is the one this program listens at. */
  readonly isOwnAddress?: ((url: URL) => boolean) | undefined;
  /** The people that keys belong to; undefined while this service runs alone. */
  readonly owners?: KeyOwners | undefined;
  /** Finds people by their logins and access tokens; undefined where there are only keys. */
  readonly identify?: Identify | undefined;
}

export function createCompletions(options: CompletionsOptions): Completions {
  const { settings, clock, makeId, logger } = options;
  const catalogue = createCatalogue();
  const updates = createCatalogueUpdates({
    catalogue,
    store: createCatalogueStore(options.database),
    url: settings.catalog_url,
    clock,
    makeId,
    logger,
  });
  let allowedOrigins = settings.allowed_origins;
  let keys: MeteredKeys | undefined;
  const engine = createChatEngine({
    ...options,
    catalogue,
    admissions(priceOf) {
      keys = createMeteredKeys({ ...options, priceOf });
      return keys.admissions;
    },
  });
  if (keys === undefined) throw new Error('the engine asked for no admissions');
  const metered: MeteredKeys = keys;
  const { runChat, meterChat, pipeline, cache, models, openChat, openOperation, send } = engine;
  const { findApi } = models;
  const strictParams = () => settings.strict_params;
  const { access } = metered;

  const embed = createEmbed({ pipeline, findApi, openOperation, send, strictParams, clock, makeId });
  const objects = createUpstreamObjects({
    store: createObjectStore(options.database),
    clock,
    onError: (error) => logger.error({ err: error }, 'whose stored responses these are was not noted'),
  });
  const allowsOrigin = (head: Pick<RequestHead, 'headers'>) => originAllowed(head, allowedOrigins);
  const ingress = {
    pipeline,
    objects,
    cache,
    strictParams,
    logger,
    clock,
    makeId,
  };

  const stored = createStoredObjects({
    ...{ pipeline, findApi, objects, send, storedInResponses, allowsOrigin, clock, makeId },
    filesApi: settings.files_api,
    charges: createBatchCharges(metered.batches),
    onError: (error, batch) => logger.warn({ err: error, batch }, 'a batch was not cancelled'),
  });
  const stopWatching = options.owners?.watch(({ id, state }) => {
    if (state === 'active') return;
    stored.cancelBatchesOf(id).catch((error: unknown) => logger.error({ err: error }, 'batches were not cancelled'));
  });

  const routes = completionsRoutes({
    catalogue,
    access,
    models,
    aliases: settings.models,
    targets: engine.targets,
    chat: createChatHandler({ pipeline, cache, strictParams, clock }),
    text: createTextHandler({ pipeline, findApi, openChat, openOperation, strictParams, clock, makeId }),
    embeddings: createEmbeddingsHandler(embed),
    media: createMediaHandler({
      ...{ pipeline, findApi, send, clock, makeId },
      maxEventBytes: settings.max_event_bytes,
      allowsOrigin,
    }),
    stored,
    bodyLimit: settings.max_request_bytes,
    register: metered.register,
    report: metered.report,
    calls: metered.calls,
    ingress: createIngress(ingress),
    gemini: createGemini({ ...ingress, embed, models }),
  });

  return {
    runChat,
    meterChat,
    isPriced: (api, model) => models.priceOf(api, model).known,
    surface: {
      name: 'completions',
      title: 'Completions',
      prefixes: ['/v1', '/v1beta', '/chat', '/completions', '/models', '/keys', '/usage'],
      routes: routes.map((route) => withOwnStatuses(route)),
      upgrades: [],
      errors: completionsErrors,
      errorSchema: ApiError,
      errorBody,
      errorHeaders,
      crossOrigin: { allows: allowsOrigin },
      isOpen: access.isOpen,
      credentialSetting: 'COMPLETIONS_MASTER_KEY',
    },
    holderOf: access.forOwner,
    temporaryKey: access.temporaryKey,
    keyForProgram: access.keyForProgram,
    ownKeys: metered.ownKeys,
    controls: completionsControlMethods({
      ...metered,
      models,
      catalogue,
      updateCatalogue: updates.update,
      runChat,
      clock,
    }),
    figures: metered.figures,
    loadCatalogue: updates.load,
    targets: engine.targets,
    reload(next) {
      allowedOrigins = next.allowed_origins;
      engine.reload({ ...settings, apis: next.apis });
      metered.reload(next);
    },
    async stop() {
      stopWatching?.();
      stored.stop();
      await updates.stop();
      await engine.stop();
      await metered.stop();
    },
  };
}

/** The body of an error in the shape that the clients of a path read. */
function errorBody(error: ErrorForBody, head: Pick<RequestHead, 'method' | 'path'>): unknown {
  if (speaksGemini(head)) return geminiErrorBody(error);
  return speaksMessages(head.path) ? messagesErrorBody(error) : apiErrorBody(error);
}

/**
 * How far the call came (`x-attempts`, ...), what a limit says of itself (`x-ratelimit-*`), and the name under which
 * clients of Anthropic look for the request.
 */
function errorHeaders(
  { details, requestId }: ErrorForBody,
  head: Pick<RequestHead, 'path'>,
): Readonly<Record<string, string>> {
  const headers = (details.headers as Readonly<Record<string, string>> | undefined) ?? {};
  return speaksMessages(head.path) ? { ...headers, 'request-id': requestId } : headers;
}

/**
 * Two errors have no fixed status: what an upstream refuses passes with its own, and a budget
 * that is used up is 402 in the family of paths without `/v1` and 429 in those of OpenAI and Google.
 */
function withOwnStatuses(route: Route): Route {
  const isDocument = !/^\/v1(?:beta)?\//.test(route.path);
  return {
    ...route,
    async handle(call) {
      try {
        return await route.handle(call);
      } catch (error) {
        if (!(error instanceof AppError) || call.reply.sent) throw error;
        if (error.code === 'BUDGET_EXCEEDED' && !isDocument) throw new AppError('INSUFFICIENT_QUOTA', error.details);
        if (error.code !== 'UPSTREAM_REFUSED') throw error;
        return refuse(call, error);
      }
    },
  };
}

function refuse({ head, reply }: Call, error: AppError): unknown {
  const described = { ...describeError(completionsErrors, error), status: statusOf(error), requestId: head.requestId };
  const { retryAfterSeconds } = error.details;
  reply.headers(errorHeaders(described, head));
  if (typeof retryAfterSeconds === 'number') reply.header('retry-after', String(retryAfterSeconds));
  return reply.code(described.status).send(errorBody(described, head));
}
