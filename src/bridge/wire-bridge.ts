import { realpath } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createCallbackRules, createCheckedFetch, systemCallbackNetwork } from '../platform/callbacks/callback-post.ts';
import type { Sandbox } from '../platform/child-process/sandbox.ts';
import type { ServeOwn } from '../platform/child-process/sandbox-network.ts';
import type { Randomness } from '../platform/clock/randomness.ts';
import { createFailureThrottle } from '../platform/http/failure-throttle.ts';
import type { Payer } from '../platform/identity/owner.ts';
import type { PersonTokens } from '../platform/identity/principal.ts';
import type { SharedLimits } from '../platform/limits/shared-buckets.ts';
import type { Environment, Named } from '../platform/runtime/runtime.ts';
import { buildAgentCatalog } from './agents/agent-catalog.ts';
import { agentHomes, createAgentFence, identityOf, NO_FENCE } from './agents/agent-fence.ts';
import { type AccessModels, createAgentLauncher } from './agents/agent-launcher.ts';
import type { OfferedModels } from './agents/agent-models.ts';
import { createAgentInstaller, installedAgents, installedPrograms } from './agents/agent-packages.ts';
import type { ProbeEffects } from './agents/agent-probe.ts';
import type { AgentProvider } from './agents/agent-provider.ts';
import { createAgentRegistry } from './agents/agent-registry.ts';
import type { CompleteChat } from './agents/builtin/complete-chat.ts';
import { createCompleteOverHttp } from './agents/builtin/complete-over-http.ts';
import { createBuiltinAgent } from './agents/builtin/create-builtin-agent.ts';
import { createMcpTools } from './agents/builtin/mcp-tools.ts';
import { createConfinement } from './agents/builtin/tools/confinement.ts';
import { createAgentProviders } from './agents/create-agent-providers.ts';
import { createRemoteAgent } from './agents/remote/create-remote-agent.ts';
import { createGit } from './checkpoints/run-git.ts';
import { createCheckpoints } from './checkpoints/turn-checkpoints.ts';
import { type Bridge, type BridgeOptions, createBridge } from './create-bridge.ts';
import { createPrincipalFor, isOperators, isPersons, refuseUncharged } from './principal.ts';
import { createRunners } from './runners/create-runners.ts';
import { createRunnerAgent } from './runners/runner-agent.ts';
import { createPrivatePlaces, type PrivatePaths } from './sessions/private-places.ts';
import { createTurnLimits } from './sessions/turn-limits.ts';
import { createOwnerRoots, createWorkingDirectories } from './sessions/working-directory.ts';
import { createBuiltinConversationStore } from './storage/builtin-conversation-store.ts';
import { createSessionTools } from './tool-bridge/session-tools.ts';
import type { WorkPlaces } from './workbench/create-workbench.ts';
import { createFolderList } from './workbench/folders.ts';
import { createWorktrees } from './worktrees/create-worktrees.ts';
import { createDirtyCheck } from './worktrees/worktree-files.ts';

export interface WiringOptions
  extends Omit<
    BridgeOptions,
    'agents' | 'providers' | 'turnLimits' | 'network' | 'runners' | 'throttle' | keyof WorkPlaces
  > {
  readonly dataDirectory: string;
  /** What callers must not reach besides the data directory. */
  readonly privatePaths: PrivatePaths;
  readonly homeDirectory: string;
  /** Our own, of which agents get the allowed part. */
  readonly environment: Environment;
  readonly processJournal: string;
  readonly probeEffects: ProbeEffects;
  /** Undefined: agents and commands run without one. */
  readonly sandbox: Sandbox | undefined;
  /** Why the built-in agent's model cannot be used; undefined when it can. */
  readonly builtinModelProblem: string | undefined;
  /** Whether a model takes images, as far as it is known. */
  seesImages(model: string): boolean;
  readonly randomness: Randomness;
  /** Counts wrong credentials together with other instances. Undefined: no other shares the database. */
  readonly shared?: SharedLimits | undefined;
  /** Lets the programs of agents call our models. Undefined: there are no models here. */
  readonly modelAccess?: AccessModels | undefined;
  /** The models of ours that agents get. */
  readonly offered?: OfferedModels | undefined;
  /** The completions service of this program, for the built-in agent. */
  readonly complete: CompleteChat;
  /** Charges people for what the API at `agents.builtin.base_url` answers. */
  chargeElsewhere(complete: CompleteChat): CompleteChat;
}

/** A tool may have another agent do something. */
const MCP_CALL_MS = 15 * 60_000;

/** The bridge with its real agents. */
export async function wireBridge(options: WiringOptions): Promise<Bridge & { readonly serveTools: ServeOwn }> {
  const { settings, homeDirectory, environment, processJournal, clock, makeId, randomness, logger } = options;
  const { workspace_roots: listed, user_root: personal, permissions } = settings.bridge;
  const dataDirectory = await realpath(options.dataDirectory);
  const { folders, files } = options.privatePaths;
  const places = createPrivatePlaces({
    folders: [dataDirectory, ...(await Promise.all(folders.map(realOrAsGiven)))],
    files: await Promise.all(files.map(realOrAsGiven)),
  });
  const roots = createOwnerRoots({
    listed,
    fallback: [homeDirectory, tmpdir()],
    personal: personal === '' ? join(homeDirectory, 'trestle', '{user}') : personal,
  });
  const directories = createWorkingDirectories({
    roots,
    dataDirectory,
    places,
    isFenced: options.sandbox !== undefined,
  });
  const agentsFolder = join(dataDirectory, 'agents');
  const confine = createConfinement({ places, isScratch: directories.isScratch });

  const git = createGit({ path: environment.PATH ?? '', clock, journalFolder: processJournal });
  const isDirty = createDirtyCheck({ folder: join(dataDirectory, 'dirty-check'), git, confine, makeId });
  const folderList = createFolderList(roots, places, isDirty, clock);
  const worktrees = createWorktrees({
    folder: join(dataDirectory, 'worktrees'),
    git,
    roots,
    directories,
    confine,
    clock,
    makeId,
  });
  const checkpoints = createCheckpoints({
    places,
    folder: join(dataDirectory, 'checkpoints'),
    settings: settings.bridge.checkpoints,
    git,
    confine,
    clock,
    logger,
  });

  const fence = createAgentFence({
    ...options,
    permissions,
    dataDirectory,
    settings: settings.bridge,
    identify: (folder, owner) => (folder === agentsFolder ? identityOf(folder) : directories.identify(folder, owner)),
  });
  const launcher = {
    environment,
    folder: agentsFolder,
    journalFolder: processJournal,
    programs: installedPrograms(dataDirectory),
  };
  const homes = agentHomes(dataDirectory);
  const launch = createAgentLauncher({
    ...launcher,
    fence,
    homes,
    modelAccess: options.modelAccess,
    offered: options.offered,
  });

  const fetchOnly = (allow: readonly string[], allowedBy: string) => {
    const { ownAddresses } = systemCallbackNetwork;
    return createCheckedFetch(createCallbackRules({ allow, allowedBy, isOpen: () => false, ownAddresses }));
  };
  const checkedFetch = fetchOnly(settings.jobs.callback_allow, 'jobs.callback_allow');

  function createBuiltin(): AgentProvider {
    const { base_url: baseUrl, api_key: apiKey, charge_people: charge, ...builtin } = settings.agents.builtin;
    const completeElsewhere = (): CompleteChat => {
      const api = { baseUrl, apiKey, clock, randomness };
      if (charge === 'here') return options.chargeElsewhere(createCompleteOverHttp(api));
      return createCompleteOverHttp({ ...api, tokenFor: tokenOfPerson(options.personTokens) });
    };
    return createBuiltinAgent({
      version: options.ping.version,
      complete: baseUrl === '' ? options.complete : completeElsewhere(),
      model: builtin.model,
      modelProblem: options.builtinModelProblem,
      // Of models behind another address nothing is known.
      ...(baseUrl === '' && { seesImages: options.seesImages }),
      store: createBuiltinConversationStore(options.database),
      clock,
      makeId,
      permissions,
      confine,
      isOpenTo: (folder, owner) =>
        directories.check(folder, owner).then(
          () => true,
          () => false,
        ),
      environment,
      fence,
      homes,
      processJournal,
      maxRequests: builtin.max_requests,
      contextCharacters: builtin.context_characters,
      commandTimeoutMs: builtin.command_timeout,
      backgroundTimeoutMs: builtin.background_timeout,
      agentsToAsk: () => ({ providers, placesOf: limits.ofAgent }),
      web: {
        // For the operator as well: what is fetched is named by a model, which may have read it anywhere.
        fetch: fetchOnly(builtin.fetch_allow, 'agents.builtin.fetch_allow'),
        hosts: settings.bridge.sandbox_hosts,
        version: options.ping.version,
      },
      mcp: createMcpTools({
        servers: builtin.mcp,
        launch,
        launchTrusted: createAgentLauncher({ ...launcher, fence: NO_FENCE }),
        isFenced: fence.isFenced,
        fetchFor: (owner) => (isOperators(owner) ? fetch : checkedFetch),
        version: options.ping.version,
        clock,
        callTimeoutMs: MCP_CALL_MS,
        logger,
      }),
    });
  }

  const limits = createTurnLimits(settings.bridge.limits);
  const installed = await installedAgents(dataDirectory);
  const agents = buildAgentCatalog(settings.agents, installed);
  const tools = createSessionTools({
    clock,
    makeId,
    randomness,
    logger,
    version: options.ping.version,
    permissions,
    isFenced: fence.isFenced,
    isScratch: directories.isScratch,
    agentsToAsk: () => ({ providers, placesOf: limits.ofAgent }),
    complete: options.complete,
    model: settings.agents.builtin.model,
    principalFor: createPrincipalFor(options.owners?.ownerOf),
    methods: () => bridge.methods,
  });
  const { shared } = options;
  const throttleOf = (name: string) => createFailureThrottle({ clock, shared: shared && { ...shared, name } });
  const ofRunners = { database: options.database, throttle: throttleOf('runner') };
  const runners = createRunners({ ...ofRunners, clock, makeId, randomness, logger });
  const ofRemote = {
    clock,
    randomness,
    makeId,
    logger,
    isScratchFolder: directories.isScratch,
    hopLimit: settings.distributed.forwarding.hop_limit,
  };
  const providers = createAgentProviders({
    wrap: tools.wrap,
    catalog: agents,
    permissions,
    version: options.ping.version,
    launch,
    fence,
    probeEffects: options.probeEffects,
    maxProcesses: settings.agents.max_processes,
    createBuiltin,
    createRemote: (id, { url, token }) => createRemoteAgent({ ...ofRemote, id, url, token }),
    createOnRunner: (id, place) => createRunnerAgent({ ...ofRemote, id, place, runners }),
    clock,
    logger,
  });
  const bridge: Bridge = await createBridge({
    database: options.database,
    ping: options.ping,
    secretBox: options.secretBox,
    linkKeys: options.linkKeys,
    relayKeys: options.relayKeys,
    address: options.address,
    reachableAt: options.reachableAt,
    load: options.load,
    onClock: options.onClock,
    outageMs: options.outageMs,
    onDrain: options.onDrain,
    settleMs: options.settleMs,
    wakeUps: options.wakeUps,
    throttle: throttleOf('bridge'),
    runners,
    retention: options.retention,
    onlyMethods: options.onlyMethods,
    identify: options.identify,
    personTokens: options.personTokens,
    owners: options.owners,
    announce: options.announce,
    forwarding: options.forwarding,
    trace: options.trace,
    settings,
    dataDirectory: options.dataDirectory,
    clock,
    makeId,
    randomness,
    logger,
    agents,
    providers,
    directories,
    confine,
    folders: folderList,
    checkpoints,
    turnLimits: limits,
    worktrees,
    installer: createAgentInstaller({
      dataDirectory,
      environment,
      journalFolder: processJournal,
      clock,
      registry: createAgentRegistry({ source: settings.agents.registry, dataDirectory }),
    }),
    network: systemCallbackNetwork,
  } satisfies Named<BridgeOptions>);
  return {
    ...bridge,
    serveTools: tools.serve,
    async stop() {
      await bridge.stop();
      await tools.stop();
    },
  };
}

function realOrAsGiven(path: string): Promise<string> {
  return realpath(path).catch(() => path);
}

/** The token with which another Trestle charges a person. The operator's own work is sent with the key of the operator. */
function tokenOfPerson(tokens: PersonTokens | undefined) {
  return async (payer: Payer): Promise<string | undefined> => {
    if (!isPersons(payer.owner)) return undefined;
    const token = await tokens?.forPayer(payer);
    if (token === undefined) refuseUncharged(payer.owner, NO_TOKEN);
    return token;
  };
}

const NO_TOKEN =
  'agents.builtin.charge_people is "there", and there is no token of theirs to send. Run accounts in this program; without it, only turns within five minutes of a call with a token for completions are served.';
