import { join } from 'node:path';
import { createAccounts } from '../accounts/create-accounts.ts';
import { accountsMigrations } from '../accounts/storage/accounts-migrations.ts';
import type { AccountsSchema } from '../accounts/storage/accounts-schema.ts';
import { createAgentLauncher } from '../bridge/agents/agent-launcher.ts';
import type { ProbeEffects } from '../bridge/agents/agent-probe.ts';
import type { CompleteChat, CompletionChunk } from '../bridge/agents/builtin/complete-chat.ts';
import type { PrivatePaths } from '../bridge/sessions/private-places.ts';
import { bridgeMigrations } from '../bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../bridge/storage/bridge-schema.ts';
import { wireBridge } from '../bridge/wire-bridge.ts';
import { resolveApis } from '../completions/apis/resolve-apis.ts';
import { type ChatEngine, createChatEngine } from '../completions/chat-engine.ts';
import type { ChatRequest } from '../completions/contract/chat.ts';
import { createCompletions } from '../completions/create-completions.ts';
import { completionsErrors } from '../completions/errors.ts';
import type { KeyHolder } from '../completions/keys/admission.ts';
import type { OwnKeys } from '../completions/keys/key-register.ts';
import type { KeyOwners } from '../completions/metered-keys.ts';
import type { RunChat } from '../completions/pipeline/chat-run.ts';
import { DEMO_API } from '../completions/pipeline/model-plan.ts';
import { completionsMigrations } from '../completions/storage/completions-migrations.ts';
import type { CompletionsSchema } from '../completions/storage/completions-schema.ts';
import { findExecutable } from '../platform/child-process/child-environment.ts';
import type { Clock } from '../platform/clock/clock.ts';
import { type Randomness, systemRandomness } from '../platform/clock/randomness.ts';
import type { Database } from '../platform/database/database.ts';
import type { Migration } from '../platform/database/migration.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { describeError, isExpected } from '../platform/errors/error-table.ts';
import type { FigureSource } from '../platform/http/http-metrics.ts';
import type { HttpSurface } from '../platform/http/surface.ts';
import { createSortableIds, type MakeId } from '../platform/ids/sortable-id.ts';
import type { MessageChannel } from '../platform/json-rpc/message-channel.ts';
import type { MethodRow } from '../platform/json-rpc/method-table.ts';
import type { Logger } from '../platform/log/logger.ts';
import { createSecretBox, type SecretBox } from '../platform/secrets/secret-box.ts';
import { deriveKeys, type SecretKeys } from '../platform/secrets/secret-keys.ts';
import type { DataFiles } from './data-directory.ts';
import { type BuildFacts, CONTRACT_VERSION, PROGRAM_VERSION, readBuildFacts } from './environment.ts';
import { openSecretKeys } from './secret-key.ts';
import { accountsSettingsOf, listenAddress, type ServiceName, type Settings } from './settings.ts';

/** What the system hands to each service. */
export interface ServiceParts {
  readonly settings: Settings;
  /** Open and up to date, for a service that has migrations. */
  readonly database: Database<never> | undefined;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly homeDirectory: string;
  /** For files of a service's own, such as scratch folders; for its owner only. */
  readonly dataDirectory: string;
  /** What callers must not reach besides that folder. */
  readonly privatePaths: PrivatePaths;
  readonly processJournal: string;
  readonly address: string;
  readonly build: BuildFacts;
  /** Encrypts what a service must store and read again. */
  readonly secretBox: SecretBox;
  /** Sign links that are a credential of their own. */
  readonly linkKeys: SecretKeys;
  readonly randomness: Randomness;
  readonly clock: Clock;
  readonly makeId: MakeId;
  readonly logger: Logger;
  /** Names of the methods that the bridge serves. Undefined: all. */
  readonly bridgeMethods?: readonly string[] | undefined;
  /** Another service of this program, once it runs. Absent where a service is made alone. */
  running?(name: ServiceName): RunningService | undefined;
}

export interface AgentStatus {
  readonly id: string;
  readonly status: string;
  readonly version: string;
  /** Of an agent that has one model unless a turn names another. */
  readonly model?: string;
  /** What to do about a status that is not `ok`. */
  readonly advice?: string | undefined;
}

/** A service that runs, as the system needs it. */
export interface RunningService {
  readonly surface?: HttpSurface;
  /** JSON-RPC methods and the paths that carry them, for the API description. */
  readonly methods?: { readonly paths: readonly string[]; readonly rows: readonly MethodRow<never>[] };
  /** What the operator's commands may ask of it, through the control socket or, when no server runs, in their process. */
  readonly controls?: readonly MethodRow<undefined>[];
  /** Serves a pair of standard streams; `agent` serves the new sessions of an editor there, unless it is empty. */
  acceptStdio?(channel: MessageChannel, agent: string): Promise<void>;
  agents?(): readonly AgentStatus[];
  /** Resolves when `agents()` has looked at each of them once. */
  readonly agentsKnown?: Promise<void>;
  /** The keys of users, for the service that knows them. */
  readonly ownKeys?: OwnKeys;
  /** The people that keys belong to, for services that serve keys. */
  readonly owners?: KeyOwners;
  /** A token for the page on which the first administrator is made, while there is none. */
  offerSetup?(): Promise<string | undefined>;
  /** The chat pipeline, for other parts of the program. */
  readonly runChat?: RunChat;
  /** What it counts by itself, for `/metrics`. */
  readonly figures?: readonly FigureSource[];
  reload?(settings: Settings): void;
  stop?(): Promise<void>;
}

interface ServiceRow {
  /** A service with migrations has a database of its own. */
  readonly migrations: readonly Migration[];
  create(parts: ServiceParts): RunningService | Promise<RunningService>;
}

/** THE TABLE of services: the only place that knows how each is made. */
export const serviceTable: Readonly<Record<ServiceName, ServiceRow>> = {
  bridge: {
    migrations: bridgeMigrations,
    async create({ settings, database, build, ...shared }) {
      const { environment, processJournal, makeId } = shared;
      // Under `serve bridge` there is no completions service: its engine serves the built-in agent alone.
      let ownEngine: ChatEngine | undefined;
      const runChat = () => {
        const running = shared.running?.('completions')?.runChat;
        if (running !== undefined) return running;
        ownEngine ??= createChatEngine({ ...shared, settings: settings.completions });
        return ownEngine.runChat;
      };
      const bridge = await wireBridge({
        ...shared,
        settings,
        database: database as unknown as Database<BridgeSchema>,
        onlyMethods: shared.bridgeMethods,
        ping: { status: 'ok', version: PROGRAM_VERSION, contract: CONTRACT_VERSION, ...build },
        retention: settings.retention,
        probeEffects: createProbeEffects(environment, shared.dataDirectory, processJournal),
        builtinModelProblem: builtinModelProblem(settings, environment),
        complete: createCompleteInProcess(runChat, makeId),
      });
      return {
        surface: bridge.surface,
        methods: { paths: ['/acp/rpc', '/acp'], rows: bridge.methods },
        acceptStdio: bridge.acceptStdio,
        controls: bridge.controls,
        agents: bridge.agents,
        agentsKnown: bridge.probed,
        reload: bridge.reload,
        async stop() {
          await bridge.stop();
          await ownEngine?.stop();
        },
      };
    },
  },
  completions: {
    migrations: completionsMigrations,
    create({ settings, database, address, ...shared }) {
      const completions = createCompletions({
        ...shared,
        isOwnAddress(url) {
          const isOwn = isAddressOf(url, address);
          if (isOwn)
            shared.logger.info({ url: url.origin }, 'a variable names our own address; it is for clients, and ignored');
          return isOwn;
        },
        settings: settings.completions,
        usageRetentionMs: settings.retention.usage,
        otlpEndpoint: settings.telemetry.otlp_endpoint,
        programVersion: PROGRAM_VERSION,
        database: database as unknown as Database<CompletionsSchema>,
        owners: () => shared.running?.('accounts')?.owners,
      });
      return {
        surface: completions.surface,
        runChat: completions.runChat,
        ownKeys: completions.ownKeys,
        controls: completions.controls,
        figures: completions.figures,
        reload: (next) => completions.reload(next.completions),
        stop: completions.stop,
      };
    },
  },
  accounts: {
    migrations: accountsMigrations,
    async create({ settings, database, address, ...shared }) {
      const accounts = await createAccounts({
        ...shared,
        settings: accountsSettingsOf(settings),
        auditRetentionMs: settings.retention.audit,
        database: database as unknown as Database<AccountsSchema>,
        ownUrl: () => urlOf(address),
        completionKeys: () => shared.running?.('completions')?.ownKeys,
      });
      return {
        surface: accounts.surface,
        controls: accounts.controls,
        owners: accounts.owners,
        offerSetup: accounts.offerSetup,
        reload: (next) => accounts.reload(accountsSettingsOf(next)),
        stop: accounts.stop,
      };
    },
  },
};

/** `::1:8787` needs brackets in a URL. */
/** Whether a URL leads to what listens at an address; a name of this machine stands for any address of it. */
function isAddressOf(url: URL, address: string): boolean {
  const own = new URL(urlOf(address));
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  const isLocal = ['localhost', '127.0.0.1', '[::1]', '0.0.0.0', '[::]', own.hostname].includes(url.hostname);
  return own.port !== '0' && port === (own.port || '80') && isLocal;
}

function urlOf(address: string): string {
  const colon = address.lastIndexOf(':');
  const host = address.slice(0, colon);
  return `http://${host.includes(':') ? `[${host}]` : host}${address.slice(colon)}`;
}

interface ServicePartsOptions {
  readonly settings: Settings;
  /** The services to run; with one of them, its own default port is taken. */
  readonly services: readonly ServiceName[];
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly homeDirectory: string;
  readonly files: DataFiles;
  readonly privatePaths: ServiceParts['privatePaths'];
  /** Open; the secret key must be the one that their secrets are encrypted with. */
  readonly databases: readonly Database<never>[];
  readonly clock: Clock;
  readonly logger: Logger;
}

/** What all services are handed alike; each gets its own database and log besides. */
type SharedParts = Omit<ServiceParts, 'database'>;

export async function prepareServiceParts(options: ServicePartsOptions): Promise<SharedParts> {
  const { settings, services, environment, homeDirectory, files, databases, clock, logger } = options;
  const randomness = systemRandomness;
  const keys = await openSecretKeys(databases, { file: files.secretKey, given: settings.secret_key, randomness });
  const address = listenAddress(settings, services.length === 1 ? services[0] : undefined);
  return {
    settings,
    environment,
    homeDirectory,
    dataDirectory: files.folder,
    privatePaths: options.privatePaths,
    processJournal: files.processes,
    address: `${address.host}:${address.port}`,
    build: readBuildFacts(environment),
    secretBox: createSecretBox(keys, randomness),
    linkKeys: deriveKeys(keys, 'signed-links v1'),
    randomness,
    clock,
    makeId: createSortableIds(clock, randomness),
    logger,
  };
}

/** What this program itself asks of models is recorded under this name. */
const INTERNAL: KeyHolder = { id: 'internal', owner: '', isMaster: false, mayUse: () => true, buckets: [] };

/** Lets the built-in agent use the completions service of this program. `runChat` is asked for at the first use. */
function createCompleteInProcess(runChat: () => RunChat, makeId: MakeId): CompleteChat {
  return async function* complete(request, signal): AsyncGenerator<CompletionChunk> {
    const call = {
      request: request as ChatRequest,
      holder: INTERNAL,
      requestId: makeId('req_'),
      strict: false,
      signal,
    };
    try {
      const answer = await runChat()(call);
      if (answer.kind !== 'stream') throw new Error('a stream was asked for');
      yield* answer.chunks;
    } catch (error) {
      if (!isExpected(completionsErrors, error)) throw error;
      const { message } = describeError(completionsErrors, error);
      throw new AppError('MODEL_FAILED', { reason: message }, { cause: error });
    }
  };
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Looks for agents on this machine: in the folders of PATH, with the few variables that children get. */
export function createProbeEffects(environment: Environment, dataFolder: string, journalFolder: string): ProbeEffects {
  const folder = join(dataFolder, 'agents');
  return {
    findProgram: (command) => findExecutable(command, environment.PATH ?? ''),
    launch: createAgentLauncher({ environment, folder, journalFolder }),
    folder,
  };
}

/** Why the built-in agent cannot use its model, and what to do; undefined when it can, or another API decides. */
export function builtinModelProblem(
  { agents, completions }: Pick<Settings, 'agents' | 'completions'>,
  environment: Environment,
): string | undefined {
  const { model, base_url: baseUrl } = agents.builtin;
  if (baseUrl !== '' || completions.models.some(({ name }) => name === model)) return undefined;
  const [apiId = ''] = model.split('/', 1);
  if (!model.includes('/')) return `"${model}" is not an alias of completions.models, and not a model as <api>/<model>`;
  if (apiId === DEMO_API) return undefined;
  const api = resolveApis({ settings: completions, environment }).get(apiId);
  if (api === undefined) return `there is no model API "${apiId}"; trestle models lists them`;
  return api.usable ? undefined : `set ${api.missing.join(' and ')} to use "${model}"`;
}
