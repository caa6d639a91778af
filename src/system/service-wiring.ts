import { join } from 'node:path';
import { type Accounts, createAccounts } from '../accounts/create-accounts.ts';
import { createIssuedPeople, type IssuedPeople } from '../accounts/issuer/issued-people.ts';
import type { AccountsSchema } from '../accounts/storage/accounts-schema.ts';
import { agentHomes, createAgentFence, identityOf } from '../bridge/agents/agent-fence.ts';
import { type AccessModels, createAgentLauncher, createFindProgram } from '../bridge/agents/agent-launcher.ts';
import { installedPrograms } from '../bridge/agents/agent-packages.ts';
import type { ProbeEffects } from '../bridge/agents/agent-probe.ts';
import { createTurnTraces } from '../bridge/agents/turn-trace.ts';
import type { Bridge, BridgeOptions } from '../bridge/create-bridge.ts';
import type { PrivatePaths } from '../bridge/sessions/private-places.ts';
import type { BridgeSchema } from '../bridge/storage/bridge-schema.ts';
import { wireBridge } from '../bridge/wire-bridge.ts';
import { createCatalogue } from '../completions/apis/catalogue.ts';
import { DEMO_API } from '../completions/apis/demo-models.ts';
import { knownModels } from '../completions/apis/known-models.ts';
import { splitModel } from '../completions/apis/models.ts';
import { resolveApis } from '../completions/apis/resolve-apis.ts';
import { type ChatEngine, createChatEngine } from '../completions/chat-engine.ts';
import { type Completions, createCompletions } from '../completions/create-completions.ts';
import type { OwnKeys } from '../completions/keys/key-register.ts';
import type { KeyOwners } from '../completions/metered-keys.ts';
import type { CompletionsSchema } from '../completions/storage/completions-schema.ts';
import type { Sandbox } from '../platform/child-process/sandbox.ts';
import type { ServeOwn } from '../platform/child-process/sandbox-network.ts';
import { systemRandomness } from '../platform/clock/randomness.ts';
import type { AnyDatabase, Database } from '../platform/database/database.ts';
import type { WakeUps } from '../platform/database/postgres/wake-ups.ts';
import type { HttpSurface } from '../platform/http/surface.ts';
import type { Identify, PersonTokens } from '../platform/identity/principal.ts';
import { createSortableIds } from '../platform/ids/sortable-id.ts';
import type { MethodRow } from '../platform/json-rpc/method-table.ts';
import type { SharedLimits } from '../platform/limits/shared-buckets.ts';
import type { Logger } from '../platform/log/logger.ts';
import type { Environment, Runtime } from '../platform/runtime/runtime.ts';
import { createSecretBox, deriveKeys, type SecretBox, type SecretKeys } from '../platform/secrets/secret-keys.ts';
import { createSpanExport } from '../platform/telemetry/spans.ts';
import {
  createModelAccess,
  createModelGate,
  type FencedPrograms,
  offeredModels,
  openAgentSandbox,
} from './agent-sandbox.ts';
import { createChargeElsewhere, createCompleteInProcess } from './builtin-models.ts';
import { type DataFiles, openSecretKeys } from './data-directory.ts';
import { type BuildFacts, CONTRACT_VERSION, PROGRAM_VERSION, readBuildFacts } from './environment.ts';
import { accountsSettingsOf, listenAddress, type ServiceName, type Settings } from './settings.ts';
import type { ServiceDatabases } from './stores.ts';

/** The values that the system passes to each service. */
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
  /** Sign requests between instances of one database. */
  readonly relayKeys: SecretKeys;
  /** Messages between instances. Undefined: no other shares the database. */
  readonly wakeUps?: WakeUps | undefined;
  /** Limits that are counted together with other instances. */
  readonly shared?: SharedLimits | undefined;
}

/** The members of every running service. */
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
  readonly bridge?: RunningService &
    Pick<
      Bridge,
      'methods' | 'acceptStdio' | 'agents' | 'probed' | 'forOperators' | 'instances' | 'runners' | 'announceAddress'
    >;
  readonly completions?: RunningService &
    Pick<
      Completions,
      'runChat' | 'meterChat' | 'isPriced' | 'holderOf' | 'temporaryKey' | 'keyForProgram' | 'ownKeys' | 'figures'
    >;
  readonly accounts?: RunningService &
    Pick<Accounts, 'owners' | 'identify' | 'announce' | 'personTokens' | 'offerSetup' | 'needsSetup'>;
  /** The people of another Trestle, where accounts does not run and `accounts.issuer` names one. */
  readonly issued?: IssuedPeople;
}

interface StartServicesOptions {
  readonly parts: ServiceParts;
  /** A service starts when its database is open. */
  readonly databases: ServiceDatabases;
  /** Stops what was started. */
  readonly opened: AsyncDisposableStack;
  /** The methods that the bridge serves. Undefined: all. */
  readonly bridgeMethods?: BridgeOptions['onlyMethods'];
  /** The address of the server; empty until it listens, because the machine may choose the port. */
  ownUrl?(): string;
  /** The address at which other instances reach this one. Empty until it listens. */
  relayUrl?(): string;
  /** What the bridge reports about this instance, how long it waits for turns, and the callback for a request to leave. */
  readonly ofBridge?: Pick<BridgeOptions, 'load' | 'onClock' | 'outageMs' | 'onDrain' | 'settleMs'>;
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
  // Accounts first, because the others ask it who is calling, and whether the owner of a waiting job may still work.
  if (accounts !== undefined) {
    const keys = () => running.completions?.ownKeys;
    const ownUrl = () => options.ownUrl?.() || urlOf(parts.address);
    running.accounts = await started(await startAccounts(partsOf('accounts'), accounts, keys, ownUrl), accounts);
  }
  const { issuer } = parts.settings.accounts;
  // If accounts runs here, only its users count, and another issuer is ignored.
  if (accounts === undefined && issuer !== '') running.issued = createIssued(issuer, parts);
  const source = running.accounts ?? running.issued;
  const people: People = {
    identify: source?.identify,
    owners: source?.owners,
    personTokens: source?.personTokens,
  };
  if (completions !== undefined) {
    const service = await startCompletions({ ...partsOf('completions'), ...people }, completions);
    running.completions = await started(service, completions);
  }
  if (bridge !== undefined) {
    const own = {
      listeningAt: options.ownUrl ?? (() => ''),
      reachableAt: () => options.relayUrl?.() ?? '',
      onlyMethods: bridgeMethods,
      ...options.ofBridge,
    };
    const service = await startBridge(
      { ...partsOf('bridge'), ...people, announce: running.accounts?.announce },
      bridge,
      running.completions,
      own,
    );
    running.bridge = await started(service, bridge);
  }
  return running;
}

/** What accounts or an issuer provides about users. Without both, services know their own tokens and keys only. */
interface People {
  readonly identify: Identify | undefined;
  readonly owners: KeyOwners | undefined;
  readonly personTokens: PersonTokens | undefined;
}

function createIssued(issuer: string, { settings, clock, logger }: ServiceParts): IssuedPeople {
  return createIssuedPeople({
    issuer,
    settings: accountsSettingsOf(settings),
    clock,
    onFailure: (error) => logger.warn({ err: error, issuer }, 'the keys of accounts.issuer could not be read'),
  });
}

type Running<Name extends ServiceName> = NonNullable<RunningServices[Name]>;

async function startBridge(
  { build, ...parts }: ServiceParts & People & Pick<BridgeOptions, 'announce'>,
  database: Database<BridgeSchema>,
  completions: RunningServices['completions'],
  { listeningAt, ...own }: { listeningAt(): string } & Pick<BridgeOptions, 'onlyMethods' | 'reachableAt'>,
): Promise<Running<'bridge'>> {
  const { settings, environment, processJournal, makeId } = parts;
  // Under `serve bridge` there is no completions service: its engine serves the built-in agent alone.
  let ownEngine: ChatEngine | undefined;
  const runChat = () => {
    if (completions !== undefined) return completions.runChat;
    ownEngine ??= createChatEngine({ ...parts, settings: settings.completions, catalogue: createCatalogue() });
    return ownEngine.runChat;
  };
  const programs: FencedPrograms = new Map();
  let tools: ServeOwn | undefined;
  const sandbox = await openAgentSandbox({
    ...parts,
    serveOwn: createModelGate({ url: listeningAt, keyOf: completions?.temporaryKey, programs, tools: () => tools }),
  });
  const { otlp_endpoint: endpoint } = settings.telemetry;
  const onError = (error: unknown) => parts.logger.warn({ err: error }, 'spans not sent');
  const scope = 'trestle.bridge';
  const spans = endpoint === '' ? undefined : createSpanExport({ endpoint, scope, version: PROGRAM_VERSION, onError });
  const modelAccess = createModelAccess({ url: listeningAt, planned: urlOf(parts.address) }, completions, programs);
  const bridge = await wireBridge({
    ...parts,
    sandbox,
    ...(spans !== undefined && { trace: createTurnTraces({ ...parts, spans }) }),
    database,
    ...own,
    ping: { status: 'ok', version: PROGRAM_VERSION, contract: CONTRACT_VERSION, ...build },
    retention: settings.retention,
    probeEffects: createProbeEffects({
      ...parts,
      dataFolder: parts.dataDirectory,
      journalFolder: processJournal,
      sandbox,
      modelAccess,
    }),
    builtinModelProblem: builtinModelProblem(settings, environment),
    seesImages: (model) => seesImages(settings.completions, model),
    modelAccess,
    offered: offeredModels(settings, parts),
    complete: createCompleteInProcess(runChat, completions, makeId),
    chargeElsewhere: createChargeElsewhere(completions, makeId),
  });
  tools = bridge.serveTools;
  return {
    ...bridge,
    name: 'bridge',
    async stop() {
      await bridge.stop();
      await sandbox?.stop();
      await ownEngine?.stop();
      await spans?.stop();
    },
  };
}

async function startCompletions(
  { settings, address, ...parts }: ServiceParts & People,
  database: Database<CompletionsSchema>,
): Promise<Running<'completions'>> {
  const completions = createCompletions({
    ...parts,
    database,
    isOwnAddress(url) {
      const isOwn = isAddressOf(url, address);
      if (isOwn)
        parts.logger.info({ url: url.origin }, 'a variable names our own address; it is for clients, and ignored');
      return isOwn;
    },
    settings: settings.completions,
    usageRetentionMs: settings.retention.usage,
    contentRetentionMs: settings.retention.content,
    otlpEndpoint: settings.telemetry.otlp_endpoint,
    programVersion: PROGRAM_VERSION,
  });
  await completions.loadCatalogue();
  return { ...completions, name: 'completions', reload: (next) => completions.reload(next.completions) };
}

async function startAccounts(
  { settings, ...parts }: ServiceParts,
  database: Database<AccountsSchema>,
  completionKeys: () => OwnKeys | undefined,
  ownUrl: () => string,
): Promise<Running<'accounts'>> {
  const accounts = await createAccounts({
    ...parts,
    database,
    completionKeys,
    settings: accountsSettingsOf(settings),
    auditRetentionMs: settings.retention.audit,
    ownUrl,
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
export function urlOf(address: string): string {
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
  /** The open databases; the secret key must be the one that encrypts their secrets. */
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
    relayKeys: deriveKeys(keys, 'instance-relay v1'),
    randomness,
    clock,
    makeId: createSortableIds(clock, randomness),
    logger,
  };
}

interface ProbeEffectsOptions {
  readonly settings: Pick<Settings, 'bridge' | 'agents' | 'completions'>;
  readonly environment: Environment;
  readonly homeDirectory: string;
  readonly privatePaths?: PrivatePaths;
  readonly dataFolder: string;
  readonly journalFolder: string;
  readonly sandbox: Sandbox | undefined;
  readonly modelAccess?: AccessModels | undefined;
}

/** Looks for agents on this machine: installed ones and those in PATH, as turns would start them. */
export function createProbeEffects(options: ProbeEffectsOptions): ProbeEffects {
  const { settings, environment, dataFolder, journalFolder } = options;
  const folder = join(dataFolder, 'agents');
  const programs = installedPrograms(dataFolder);
  const fence = createAgentFence({
    ...options,
    privatePaths: options.privatePaths ?? { folders: [], files: [] },
    dataDirectory: dataFolder,
    permissions: settings.bridge.permissions,
    settings: settings.bridge,
    identify: identityOf,
  });
  return {
    findProgram: createFindProgram(programs, environment),
    launch: createAgentLauncher({
      environment,
      folder,
      journalFolder,
      programs,
      fence,
      homes: agentHomes(dataFolder),
      modelAccess: options.modelAccess,
      offered: offeredModels(settings, options),
    }),
    folder,
  };
}

/** Whether a model takes images. One of which nothing is known is asked. */
function seesImages({ models }: Settings['completions'], name: string): boolean {
  const target = models.find((alias) => alias.name === name)?.targets[0]?.model ?? name;
  const [api, model] = splitModel(target);
  return knownModels(api).get(model)?.inputModalities?.includes('image') ?? true;
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
