import { join } from 'node:path';
import type { CallbackNetwork } from '../platform/callbacks/callback-post.ts';
import { type Clock, repeat } from '../platform/clock/clock.ts';
import type { Database } from '../platform/database/database.ts';
import type { HttpSurface } from '../platform/http/surface.ts';
import type { OwnerOf, WatchOwners } from '../platform/identity/owner.ts';
import type { Identify, PersonTokens } from '../platform/identity/principal.ts';
import { createDispatch, type MethodRow } from '../platform/json-rpc/method-table.ts';
import type { Runtime } from '../platform/runtime/runtime.ts';
import type { SecretBox, SecretKeys } from '../platform/secrets/secret-keys.ts';
import { createToken } from '../platform/secrets/tokens.ts';
import { type BridgeAccess, type BridgeAccessOptions, createBridgeAccess } from './access.ts';
import type { CatalogAgent } from './agents/agent-catalog.ts';
import { fileShelves } from './agents/agent-fence.ts';
import type { AgentProvider, Download } from './agents/agent-provider.ts';
import { type Probe, type ProbeResult, startProbeBoard } from './agents/probe-board.ts';
import { createArtifactLinks } from './artifacts/artifact-links.ts';
import { createArtifacts } from './artifacts/create-artifacts.ts';
import { createAttachments } from './attachments/create-attachments.ts';
import type { BridgeClient } from './bridge-client.ts';
import { createCapabilitiesText } from './capabilities.ts';
import { type BridgeEvent, type Ping, RpcError } from './contract/surface.ts';
import type { RpcOverStdio, RpcOverStdioOptions } from './editor/rpc-over-stdio.ts';
import { bridgeErrors } from './errors.ts';
import { createForwarding, type ForwardingOptions } from './forwarding/create-forwarding.ts';
import { createGateway } from './gateway/create-gateway.ts';
import type { RegisteredInstance } from './instances/instance-registry.ts';
import { type InstanceMembers, type InstanceOptions, openInstance } from './instances/open-instance.ts';
import { createJobs, maxJobsOfOneOwner } from './jobs/create-jobs.ts';
import { bridgeMethods, type ServedMethods } from './methods.ts';
import { createMultiAgent } from './multi-agent/create-multi-agent.ts';
import { createPrincipalFor, requireMay } from './principal.ts';
import { bridgeRoutes, bridgeUpgrades } from './routes.ts';
import { createLiveRouting } from './routing/resolve-route.ts';
import { createRpcOverHttp } from './rpc-over-http.ts';
import { createRpcOverSocket } from './rpc-over-socket.ts';
import { createSessions, type SessionsOptions } from './sessions/create-sessions.ts';
import type { Retention } from './sessions/housekeeping.ts';
import { createWithConfigured } from './sessions/mcp-servers.ts';
import { createSessionCalls } from './sessions/session-calls.ts';
import { createTurnLimits, type TurnLimits } from './sessions/turn-limits.ts';
import type { BridgeGroups } from './settings.ts';
import type { ArtifactRow, BridgeSchema } from './storage/bridge-schema.ts';
import { createArtifactStore } from './storage/file-stores.ts';
import { createEndWork, withOwners, withTeams } from './team-work.ts';
import { createWorkbench, type WorkPlaces } from './workbench/create-workbench.ts';
import { createPermissions } from './workbench/permissions.ts';
import { bridgeErrorBody } from './workbench/workbench-routes.ts';

export interface Bridge extends Pick<BridgeAccess, 'forOperators'> {
  readonly surface: HttpSurface;
  readonly methods: readonly MethodRow<BridgeClient>[];
  /** Serves a pair of standard streams, to who has started the program; resolves when it does. */
  acceptStdio(...call: Parameters<RpcOverStdio>): Promise<void>;
  /** What the operator's commands may ask. */
  readonly controls: readonly MethodRow<undefined>[];
  /** The latest probe result of each agent, in catalog order. */
  agents(): readonly ({ readonly id: string } & ProbeResult)[];
  /** Resolves when every agent was probed one time. */
  readonly probed: Promise<void>;
  readonly instances: RegisteredInstance['list'];
  readonly runners: NonNullable<InstanceOptions['runners']>['list'];
  /** Tells other instances where this one is reached; called when it listens. */
  announceAddress(): Promise<void>;
  reload(settings: BridgeGroups): void;
  stop(): Promise<void>;
}

export interface BridgeOptions
  extends Runtime,
    WorkPlaces,
    Pick<SessionsOptions, 'trace' | 'settleMs'>,
    Pick<BridgeAccessOptions, 'throttle'>,
    InstanceMembers {
  readonly settings: BridgeGroups;
  readonly database: Database<BridgeSchema>;
  readonly ping: Ping;
  /** For the device key, and for copies of what turns produce. */
  readonly dataDirectory: string;
  /** Encrypts the MCP servers of sessions. */
  readonly secretBox: SecretBox;
  /** Sign the links to artifacts. */
  readonly linkKeys: SecretKeys;
  /** Sign requests between instances of one database. */
  readonly relayKeys?: SecretKeys | undefined;
  /** The agents on offer, in routing order, and what stands behind each. */
  readonly agents: readonly CatalogAgent[];
  readonly providers: ReadonlyMap<string, AgentProvider>;
  /** Given where agents share their places with turns. */
  readonly turnLimits?: TurnLimits | undefined;
  readonly retention: Retention & { readonly jobs: number };
  /** The methods that are served. Undefined: the whole family. */
  readonly onlyMethods?: ServedMethods | undefined;
  readonly network: CallbackNetwork;
  /** Finds people and service accounts by their tokens. Undefined: there are only static tokens. */
  readonly identify?: Identify | undefined;
  /** Tells other bridges for whom calls are forwarded. Undefined where nobody has such tokens. */
  readonly personTokens?: PersonTokens | undefined;
  /** The people and service accounts that work may belong to. Undefined: nobody but holders of static tokens and nodes. */
  readonly owners?: { readonly ownerOf: OwnerOf; readonly watch: WatchOwners } | undefined;
  /** Posts an event to webhooks. Undefined: there are none. */
  readonly announce?: ((event: BridgeEvent) => void) | undefined;
  /** How names are looked up and how long other bridges are waited for; both have defaults. */
  readonly forwarding?: Pick<ForwardingOptions, 'lookup' | 'limits'> | undefined;
}

const PROBE_INTERVAL_MS = 30_000;
const PROBE_TIMEOUT_MS = 15_000;
const ARTIFACT_SWEEP_MS = 10 * 60_000;

export async function createBridge(given: BridgeOptions): Promise<Bridge> {
  const { settings, database, ping, makeId, logger, agents, providers } = given;
  const agentIds = agents.map(({ id }) => id);
  const onUnexpectedError = (err: unknown, requestId: string) => logger.error({ err, requestId }, 'call failed');
  const links = createArtifactLinks(given.linkKeys);
  const { instance, home, relay } = await openInstance({
    ...given,
    version: ping.version,
    keys: given.relayKeys ?? given.linkKeys,
    personTokens: given.personTokens,
  });
  // Instances store moments for each other, such as the deadlines of jobs, and the clocks of their machines may differ.
  const clock: Clock = { ...given.clock, now: instance.databaseNow };
  const options = { ...given, clock };
  const place = { instance: instance.id, lease: instance.lease, wakeUps: options.wakeUps };
  const attachments = createAttachments({
    ...options,
    folder: join(options.dataDirectory, 'attachments'),
    home,
    readElsewhere: relay && ((row) => relay.read('attachments', row)),
    maxBytesOfOwner: settings.bridge.limits.attachment_bytes_per_owner,
  });
  const forwarding = await createForwarding({
    ...options,
    ...options.forwarding,
    links,
    contract: ping.contract,
    withFiles: attachments.inCall,
  });
  const gateway = { id: settings.gateway.provider_id, label: settings.gateway.label };
  const runtime = createGateway({
    ...options,
    settings: settings.gateway,
    version: ping.version,
    onChange: () => probes.lookNow(gateway.id),
  });
  const artifacts = createArtifacts({
    ...options,
    folder: join(options.dataDirectory, 'artifacts'),
    home,
    store: createArtifactStore(database),
    maxBytes: settings.bridge.limits.artifact_bytes,
    maxBytesOfOwner: settings.bridge.limits.artifact_bytes_per_owner,
    links,
  });
  const sweeping = repeat({
    clock,
    pauseMs: ARTIFACT_SWEEP_MS,
    work: artifacts.sweep,
    onError: (error) => logger.warn({ err: error }, 'old artifacts could not be deleted'),
  });
  const stopped = new AbortController();
  const probes = startProbeBoard({
    probes: new Map<string, Probe>([
      ...[...providers].map(([id, provider]): [string, Probe] => [id, provider.probe]),
      [gateway.id, runtime.provider.probe],
    ]),
    clock,
    intervalMs: PROBE_INTERVAL_MS,
    timeoutMs: PROBE_TIMEOUT_MS,
  });
  options.runners?.onChange(probes.lookNow);
  const route = createLiveRouting({
    agentIds,
    gatewayId: gateway.id,
    defaultAgent: settings.agents.default,
    probes,
  });
  const { turnLimits: limits = createTurnLimits(settings.bridge.limits) } = options;
  const multiAgent = createMultiAgent({
    providers,
    limits,
    clock,
    async unavailableReason(explicitProviderId) {
      const routing = { explicitProviderId };
      return (await route({ routing, prompt: '', sessionAgent: '', continues: false })).unavailableMessage;
    },
  });
  const permissions = await createPermissions({ ...options, ...place, settings: settings.bridge });
  const sessions = await createSessions({
    ...options,
    providers: new Map([...providers, [multiAgent.id, multiAgent], [gateway.id, runtime.provider]]),
    keepArtifacts: artifacts.keep,
    removeArtifacts: artifacts.removeSession,
    placeFiles: attachments.place,
    scratch: {
      folder: join(options.dataDirectory, 'scratch'),
      shelves: fileShelves(options.dataDirectory),
      maxBytes: settings.bridge.limits.scratch_bytes,
      maxBytesOfOwner: settings.bridge.limits.scratch_bytes_per_owner,
    },
    ...place,
    home,
    flushElsewhere: relay?.flush,
    tellOthers: relay?.tell,
    limits,
    permissions,
    withConfigured: createWithConfigured(settings.bridge),
    route,
    agentFailed: probes.lookNow,
  });
  const { orchestrator } = sessions;
  const access = createBridgeAccess({
    ...given,
    commandToken: createToken(options.randomness),
    onFlood: (address) => logger.warn({ address }, 'many wrong credentials from one address'),
    onIgnoredForward: (address) =>
      logger.warn(
        { address },
        'headers of a forwarded request are ignored, because their credential is not the forward token; set distributed.task_forward_token to the same value on both bridges',
      ),
  });
  let webhookSecret = settings.bridge.webhook_secret;
  let jobsOfOneOwner = maxJobsOfOneOwner(settings);
  const principalFor = createPrincipalFor(options.owners?.ownerOf);
  const jobs = await createJobs({
    database,
    ...place,
    isSessionElsewhere: relay?.isElsewhere,
    agentIds,
    gatewayId: gateway.id,
    settings: settings.jobs,
    maxRunningOfOwner: (owner) => jobsOfOneOwner(owner),
    hasRoom: limits.running.hasRoom,
    keptMs: options.retention.jobs,
    network: options.network,
    orchestrator,
    ownerOf: async (owner) => options.owners?.ownerOf(owner),
    principalFor,
    announce: options.announce,
    sessionCalls: createSessionCalls({ orchestrator, agentIds, principalFor, checkFiles: attachments.check }),
    keepFiles: attachments.forJob,
    serverBox: sessions.serverBox,
    checkServers: permissions.checkServers,
    clock,
    makeId,
    logger,
    checkGatewayOwner: runtime.checkOwner,
    invokeTool: (tool, action, args) => runtime.invokeTool(tool, action, args, stopped.signal),
    isOpen: access.isOpen,
    webhookSecret: () => webhookSecret,
    route,
    checkDirectory: options.directories.check,
  });
  const stopWatching = options.owners?.watch(createEndWork({ orchestrator, jobs, providers, logger }));
  const methodNames = new Set<string>();
  const capabilitiesText = createCapabilitiesText({ agents, gateway, probes, methodNames });
  const methods = bridgeMethods({
    capabilitiesText,
    sessions: jobs.sessionCalls,
    jobs,
    gatewayMethods: runtime.methods,
    route,
    only: options.onlyMethods,
  });
  for (const method of methods) methodNames.add(method.name);
  const dispatchHere = createDispatch<BridgeClient>({
    rows: methods.map((row) => ({
      ...row,
      handle(params, call) {
        // What is another owner's is checked where the owner is known.
        const { principal } = call.caller.caller;
        requireMay(principal, row.name, principal.id);
        return row.handle(params, call);
      },
    })),
    isStrict: ({ caller }) => settings.bridge.strict_params || caller.isStrict === true,
    aliasPrefixes: settings.bridge.method_prefix_aliases.map((alias) => ({ from: `${alias}.`, to: 'app.' })),
  });
  const here = { isBusyHere: orchestrator.isBusy, doubt: sessions.doubt, endJobs: jobs.endOf };
  const dispatch = withTeams(withOwners(forwarding.wrap(relay?.wrap(dispatchHere, here) ?? dispatchHere)));
  const overHttp = createRpcOverHttp({
    access,
    dispatch,
    methodNames,
    clock,
    stalledAfterMs: settings.bridge.limits.stalled_after,
    onUnexpectedError,
  });
  const following = forwarding.following(relay?.following(sessions) ?? orchestrator);
  const overSocket = createRpcOverSocket({
    dispatch,
    sessions: following,
    clock,
    callsPerConnection: settings.bridge.limits.calls_per_connection,
    makeRequestId: () => makeId('req_'),
    onUnexpectedError,
  });
  const editor: RpcOverStdioOptions = {
    ...options,
    version: ping.version,
    dispatch,
    overSocket,
    orchestrator,
    past: sessions.past,
    checkDirectory: options.directories.check,
    takesServers: settings.bridge.permissions === 'allow',
    callsPerConnection: settings.bridge.limits.calls_per_connection,
    onUnexpectedError,
  };
  const workbench = createWorkbench({
    ...options,
    sessions,
    following,
    nodes: forwarding.nodes,
    probes,
    permissions,
    attachments,
    jobs,
    callsPerConnection: settings.bridge.limits.calls_per_connection,
    onUnexpectedError,
  });
  const parts = {
    access,
    ping,
    overHttp,
    overSocket,
    messageBytes: settings.bridge.limits.message_bytes,
    gatewayProviderId: gateway.id,
    workbench: { ...workbench.parts, schedules: jobs.schedules },
    live: workbench.live,
    relay,
    stalledAfterMs: settings.bridge.limits.stalled_after,
    onUnexpectedError,
    downloads: {
      artifacts,
      clock,
      stopped: stopped.signal,
      fromNode: forwarding.download,
      fromAgent: (id: string, ...file: Download) => providers.get(id)?.download?.(...file),
      fromInstance: relay && ((row: ArtifactRow, signal: AbortSignal) => relay.file('artifacts', row, signal)),
    },
  };
  return {
    methods,
    // Only `trestle stdio` needs this, so it is imported there.
    async acceptStdio(channel, agent) {
      const { createRpcOverStdio } = await import('./editor/rpc-over-stdio.ts');
      createRpcOverStdio(editor)(channel, agent);
    },
    controls: [...forwarding.controls, access.commandTokenControl, ...(options.runners?.controls ?? [])],
    surface: {
      name: 'bridge',
      title: 'Bridge',
      prefixes: ['/acp', '/api/ping', '/api/bridge', '/gateway', '/artifacts'],
      routes: bridgeRoutes(parts),
      upgrades: [...bridgeUpgrades(parts), ...(options.runners?.upgrades ?? [])],
      errors: bridgeErrors,
      errorSchema: RpcError,
      errorBody: bridgeErrorBody,
      crossOrigin: access.crossOrigin,
      isOpen: access.isOpen,
      credentialSetting: 'BRIDGE_AUTH_TOKEN',
      servedLast: relay?.paths ?? [],
      leave: () => void [jobs.leave(), instance.leave()],
      async settle() {
        jobs.settle();
        await Promise.all([sessions.settle(), forwarding.settle()]);
        relay?.settle();
      },
    },
    agents: () => agents.map(({ id }) => ({ id, ...(probes.results().get(id) as ProbeResult) })),
    probed: probes.firstRound,
    forOperators: access.forOperators,
    instances: instance.list,
    runners: async () => options.runners?.list() ?? [],
    announceAddress: instance.announce,
    reload(next) {
      access.reload(next);
      webhookSecret = next.bridge.webhook_secret;
      jobsOfOneOwner = maxJobsOfOneOwner(next);
      forwarding.reload(next);
      runtime.reload(next.gateway);
      permissions.reload(next.bridge);
    },
    async stop() {
      stopWatching?.();
      jobs.settle();
      stopped.abort();
      await relay?.stop();
      workbench.stop();
      await Promise.all([sweeping.stop(), attachments.stop(), probes.stop()]);
      await forwarding.stop();
      await sessions.stop();
      await Promise.all([permissions.stop(), options.runners?.stop()]);
      await jobs.stop();
      await instance.remove();
    },
  };
}
