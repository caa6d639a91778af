import { join } from 'node:path';
import { type Accounts, createAccounts } from '../accounts/create-accounts.ts';
import type { AccountsSchema } from '../accounts/storage/accounts-schema.ts';
import { createAgentLauncher } from '../bridge/agents/agent-launcher.ts';
import type { ProbeEffects } from '../bridge/agents/agent-probe.ts';
import type { CompleteChat, CompletionChunk } from '../bridge/agents/builtin/complete-chat.ts';
import type { Bridge } from '../bridge/create-bridge.ts';
import type { PrivatePaths } from '../bridge/sessions/private-places.ts';
import type { BridgeSchema } from '../bridge/storage/bridge-schema.ts';
import { wireBridge } from '../bridge/wire-bridge.ts';
import { resolveApis } from '../completions/apis/resolve-apis.ts';
import { type ChatEngine, createChatEngine } from '../completions/chat-engine.ts';
import type { ChatRequest } from '../completions/contract/chat.ts';
import { type Completions, createCompletions } from '../completions/create-completions.ts';
import { completionsErrors } from '../completions/errors.ts';
import type { KeyHolder } from '../completions/keys/admission.ts';
import type { OwnKeys } from '../completions/keys/key-register.ts';
import type { KeyOwners } from '../completions/metered-keys.ts';
import type { RunChat } from '../completions/operations/run-chat.ts';
import { DEMO_API } from '../completions/routing/model-plan.ts';
import type { CompletionsSchema } from '../completions/storage/completions-schema.ts';
import { findExecutable } from '../platform/child-process/child-environment.ts';
import { systemRandomness } from '../platform/clock/randomness.ts';
import type { AnyDatabase, Database } from '../platform/database/database.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { describeError, isExpected } from '../platform/errors/error-table.ts';
import type { HttpSurface } from '../platform/http/surface.ts';
import { createSortableIds, type MakeId } from '../platform/ids/sortable-id.ts';
import type { MethodRow } from '../platform/json-rpc/method-table.ts';
import type { Logger } from '../platform/log/logger.ts';
import type { Environment, Runtime } from '../platform/runtime/runtime.ts';
import { createSecretBox, type SecretBox } from '../platform/secrets/secret-box.ts';
import { deriveKeys, type SecretKeys } from '../platform/secrets/secret-keys.ts';
import type { DataFiles } from './data-directory.ts';
import { type BuildFacts, CONTRACT_VERSION, PROGRAM_VERSION, readBuildFacts } from './environment.ts';
import { openSecretKeys } from './secret-key.ts';
import { accountsSettingsOf, listenAddress, type ServiceName, type Settings } from './settings.ts';
import type { ServiceDatabases } from './stores.ts';

/** What the system hands to each service. */
export interface ServiceParts extends Runtime {
  readonly settings: Settings;
  readonly environment: Environment;
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
}

/** What every running service has. */
export interface RunningService {
  readonly name: ServiceName;
  readonly surface: HttpSurface;
  /** What the operator's commands may ask of it, through the control socket or, when no server runs, in their process. */
  readonly controls: readonly MethodRow<undefined>[];
  reload(settings: Settings): void;
  stop(): Promise<void>;
}

/** The services of this program. One that does not run is absent. */
export interface RunningServices {
  readonly bridge?: RunningService & Pick<Bridge, 'methods' | 'acceptStdio' | 'agents' | 'probed'>;
  readonly completions?: RunningService & Pick<Completions, 'runChat' | 'ownKeys' | 'figures'>;
  readonly accounts?: RunningService & Pick<Accounts, 'owners' | 'offerSetup'>;
}

interface StartServicesOptions {
  readonly parts: ServiceParts;
  /** A service starts when its database is open. */
  readonly databases: ServiceDatabases;
  /** Stops what was started. */
  readonly opened: AsyncDisposableStack;
  /** Names of the methods that the bridge serves. Undefined: all. */
  readonly bridgeMethods?: readonly string[] | undefined;
  /** Called after the start of each service, before the next one starts. */
  started?(service: RunningService, database: AnyDatabase, logger: Logger): Promise<void>;
}

/** Starts the services whose databases are open. The only place that knows all three services. */
export async function startServices(options: StartServicesOptions): Promise<RunningServices> {
  const { parts, databases, opened, bridgeMethods } = options;
  const running: { -readonly [Name in keyof RunningServices]: RunningServices[Name] } = {};
  const partsOf = (service: ServiceName) => ({ ...parts, logger: parts.logger.child({ service }) });
  async function started<Service extends RunningService>(service: Service, database: AnyDatabase): Promise<Service> {
    opened.defer(() => service.stop());
    await options.started?.(service, database, parts.logger.child({ service: service.name }));
    return service;
  }
  const { bridge, completions, accounts } = databases;
  if (bridge !== undefined) {
    const runChat = () => running.completions?.runChat;
    running.bridge = await started(await startBridge(partsOf('bridge'), bridge, runChat, bridgeMethods), bridge);
  }
  if (completions !== undefined) {
    const owners = () => running.accounts?.owners;
    running.completions = await started(startCompletions(partsOf('completions'), completions, owners), completions);
  }
  if (accounts !== undefined) {
    const keys = () => running.completions?.ownKeys;
    running.accounts = await started(await startAccounts(partsOf('accounts'), accounts, keys), accounts);
  }
  return running;
}

type Running<Name extends ServiceName> = NonNullable<RunningServices[Name]>;

async function startBridge(
  { build, ...parts }: ServiceParts,
  database: Database<BridgeSchema>,
  runChatOfService: () => RunChat | undefined,
  onlyMethods: readonly string[] | undefined,
): Promise<Running<'bridge'>> {
  const { settings, environment, processJournal, makeId } = parts;
  // Under `serve bridge` there is no completions service: its engine serves the built-in agent alone.
  let ownEngine: ChatEngine | undefined;
  const runChat = () => {
    const running = runChatOfService();
    if (running !== undefined) return running;
    ownEngine ??= createChatEngine({ ...parts, settings: settings.completions });
    return ownEngine.runChat;
  };
  const bridge = await wireBridge({
    ...parts,
    database,
    onlyMethods,
    ping: { status: 'ok', version: PROGRAM_VERSION, contract: CONTRACT_VERSION, ...build },
    retention: settings.retention,
    probeEffects: createProbeEffects(environment, parts.dataDirectory, processJournal),
    builtinModelProblem: builtinModelProblem(settings, environment),
    complete: createCompleteInProcess(runChat, makeId),
  });
  return {
    ...bridge,
    name: 'bridge',
    async stop() {
      await bridge.stop();
      await ownEngine?.stop();
    },
  };
}

function startCompletions(
  { settings, address, ...parts }: ServiceParts,
  database: Database<CompletionsSchema>,
  owners: () => KeyOwners | undefined,
): Running<'completions'> {
  const completions = createCompletions({
    ...parts,
    database,
    owners,
    isOwnAddress(url) {
      const isOwn = isAddressOf(url, address);
      if (isOwn)
        parts.logger.info({ url: url.origin }, 'a variable names our own address; it is for clients, and ignored');
      return isOwn;
    },
    settings: settings.completions,
    usageRetentionMs: settings.retention.usage,
    otlpEndpoint: settings.telemetry.otlp_endpoint,
    programVersion: PROGRAM_VERSION,
  });
  return { ...completions, name: 'completions', reload: (next) => completions.reload(next.completions) };
}

async function startAccounts(
  { settings, address, ...parts }: ServiceParts,
  database: Database<AccountsSchema>,
  completionKeys: () => OwnKeys | undefined,
): Promise<Running<'accounts'>> {
  const accounts = await createAccounts({
    ...parts,
    database,
    completionKeys,
    settings: accountsSettingsOf(settings),
    auditRetentionMs: settings.retention.audit,
    ownUrl: () => urlOf(address),
  });
  return { ...accounts, name: 'accounts', reload: (next) => accounts.reload(accountsSettingsOf(next)) };
}

/** Whether a URL leads to what listens at an address; a name of this machine stands for any address of it. */
function isAddressOf(url: URL, address: string): boolean {
  const own = new URL(urlOf(address));
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  const isLocal = ['localhost', '127.0.0.1', '[::1]', '0.0.0.0', '[::]', own.hostname].includes(url.hostname);
  return own.port !== '0' && port === (own.port || '80') && isLocal;
}

/** `::1:8787` needs brackets in a URL. */
function urlOf(address: string): string {
  const colon = address.lastIndexOf(':');
  const host = address.slice(0, colon);
  return `http://${host.includes(':') ? `[${host}]` : host}${address.slice(colon)}`;
}

interface ServicePartsOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly settings: Settings;
  /** The services to run; with one of them, its own default port is taken. */
  readonly services: readonly ServiceName[];
  readonly environment: Environment;
  readonly homeDirectory: string;
  readonly files: DataFiles;
  readonly privatePaths: ServiceParts['privatePaths'];
  /** Open; the secret key must be the one that their secrets are encrypted with. */
  readonly databases: readonly AnyDatabase[];
}

export async function prepareServiceParts(options: ServicePartsOptions): Promise<ServiceParts> {
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
