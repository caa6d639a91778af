import { join } from 'node:path';
import { repeat } from '../platform/clock/clock.ts';
import type { Database } from '../platform/database/database.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { createFailureThrottle } from '../platform/http/failure-throttle.ts';
import type { HttpSurface } from '../platform/http/surface.ts';
import { refusalBody } from '../platform/json-rpc/answer-http.ts';
import { hybridEnvelope } from '../platform/json-rpc/envelope.ts';
import { createDispatch, type MethodRow } from '../platform/json-rpc/method-table.ts';
import type { Runtime } from '../platform/runtime/runtime.ts';
import type { SecretKeys } from '../platform/secrets/secret-keys.ts';
import { createBridgeAccess } from './access.ts';
import type { CatalogAgent } from './agents/agent-catalog.ts';
import type { AgentProvider } from './agents/agent-provider.ts';
import type { Confine } from './agents/builtin/tools/confinement.ts';
import { type Probe, type ProbeResult, startProbeBoard } from './agents/probe-board.ts';
import { createArtifactLinks } from './artifacts/artifact-links.ts';
import { createArtifacts } from './artifacts/create-artifacts.ts';
import type { BridgeClient } from './bridge-client.ts';
import { createCapabilitiesText } from './capabilities.ts';
import { type Ping, RpcError } from './contract/surface.ts';
import type { RpcOverStdio, RpcOverStdioOptions } from './editor/rpc-over-stdio.ts';
import { bridgeErrors } from './errors.ts';
import { createForwarding, type ForwardingOptions } from './forwarding/create-forwarding.ts';
import { createGateway } from './gateway/create-gateway.ts';
import { registerInstance } from './instances/instance-registry.ts';
import type { CallbackNetwork } from './jobs/callbacks.ts';
import { createJobs } from './jobs/create-jobs.ts';
import { bridgeMethods } from './methods.ts';
import { createMultiAgent } from './multi-agent/create-multi-agent.ts';
import { bridgeRoutes, bridgeUpgrades } from './routes.ts';
import { createLiveRouting } from './routing/resolve-route.ts';
import { createRpcOverHttp } from './rpc-over-http.ts';
import { createRpcOverSocket } from './rpc-over-socket.ts';
import { createSessions } from './sessions/create-sessions.ts';
import type { Retention } from './sessions/housekeeping.ts';
import { createSessionCalls } from './sessions/session-calls.ts';
import { createTurnLimits } from './sessions/turn-limits.ts';
import type { WorkingDirectories } from './sessions/working-directory.ts';
import type { BridgeGroups } from './settings.ts';
import { createArtifactStore } from './storage/artifact-store.ts';
import type { BridgeSchema } from './storage/bridge-schema.ts';
import { createInstanceStore } from './storage/instance-store.ts';

export interface Bridge {
  readonly surface: HttpSurface;
  readonly methods: readonly MethodRow<BridgeClient>[];
  /** Serves a pair of standard streams, to who has started the program; resolves when it does. */
  acceptStdio(...call: Parameters<RpcOverStdio>): Promise<void>;
  /** What the operator's commands may ask. */
  readonly controls: readonly MethodRow<undefined>[];
  /** The latest probe result of each agent, in catalog order. */
  agents(): readonly ({ readonly id: string } & ProbeResult)[];
  /** Resolves when every agent was looked at once. */
  readonly probed: Promise<void>;
  reload(settings: BridgeGroups): void;
  stop(): Promise<void>;
}

export interface BridgeOptions extends Runtime {
  readonly settings: BridgeGroups;
  readonly database: Database<BridgeSchema>;
  readonly ping: Ping;
  /** Where this instance listens, for the list of instances. */
  readonly address: string;
  /** For the device key, and for copies of what turns produce. */
  readonly dataDirectory: string;
  /** Sign the links to artifacts. */
  readonly linkKeys: SecretKeys;
  /** The agents on offer, in routing order, and what stands behind each. */
  readonly agents: readonly CatalogAgent[];
  readonly providers: ReadonlyMap<string, AgentProvider>;
  readonly directories: WorkingDirectories;
  readonly confine: Confine;
  readonly retention: Retention & { readonly jobs: number };
  /** Names of the methods that are served. Undefined: the whole family. */
  readonly onlyMethods?: readonly string[] | undefined;
  readonly network: CallbackNetwork;
  /** How names are looked up and how long other bridges are waited for; both have defaults. */
  readonly forwarding?: Pick<ForwardingOptions, 'lookup' | 'limits'>;
}

const PROBE_INTERVAL_MS = 30_000;
const PROBE_TIMEOUT_MS = 15_000;
const HEARTBEAT_MS = 2_000;
const ARTIFACT_SWEEP_MS = 10 * 60_000;

export async function createBridge(options: BridgeOptions): Promise<Bridge> {
  const { settings, database, ping, clock, makeId, logger, agents, providers } = options;
  const onUnexpectedError = (error: unknown, requestId: string) =>
    logger.error({ err: error, requestId }, 'call failed');

  const links = createArtifactLinks(options.linkKeys);
  const forwarding = await createForwarding({
    ...options.forwarding,
    links,
    settings,
    database,
    contract: ping.contract,
    clock,
    logger,
  });
  const instance = await registerInstance({
    store: createInstanceStore(database),
    clock,
    id: makeId('ins_'),
    version: ping.version,
    address: options.address,
    heartbeatMs: database.engine === 'postgres' ? HEARTBEAT_MS : undefined,
    onMissedBeat: (error) => logger.warn({ err: error }, 'heartbeat not stored'),
  });
  const gateway = { id: settings.gateway.provider_id, label: settings.gateway.label };
  const runtime = createGateway({
    ...options,
    settings: settings.gateway,
    version: ping.version,
    onChange: () => probes.lookNow(gateway.id),
  });
  const artifacts = createArtifacts({
    folder: join(options.dataDirectory, 'artifacts'),
    confine: options.confine,
    store: createArtifactStore(database),
    maxBytes: settings.bridge.limits.artifact_bytes,
    maxBytesOfOwner: settings.bridge.limits.artifact_bytes_per_owner,
    links,
    clock,
    makeId,
    logger,
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
  const route = createLiveRouting({
    agentIds: agents.map(({ id }) => id),
    gatewayId: gateway.id,
    defaultAgent: settings.agents.default,
    probes,
  });
  const limits = createTurnLimits(settings.bridge.limits);
  const multiAgent = createMultiAgent({
    providers,
    limits,
    clock,
    async unavailableReason(explicitProviderId) {
      const routing = { explicitProviderId };
      return (await route({ routing, prompt: '', sessionAgent: '', continues: false })).unavailableMessage;
    },
  });
  const sessions = await createSessions({
    ...options,
    providers: new Map([...providers, [multiAgent.id, multiAgent], [gateway.id, runtime.provider]]),
    keepArtifacts: artifacts.keep,
    removeArtifacts: artifacts.removeSession,
    scratch: {
      folder: join(options.dataDirectory, 'scratch'),
      maxBytes: settings.bridge.limits.scratch_bytes,
      maxBytesOfOwner: settings.bridge.limits.scratch_bytes_per_owner,
    },
    instance: instance.id,
    limits,
    route,
    agentFailed: probes.lookNow,
  });
  const { orchestrator } = sessions;

  const access = createBridgeAccess({
    settings,
    throttle: createFailureThrottle({ clock }),
    onFlood: (address) => logger.warn({ address }, 'many wrong credentials from one address'),
    onIgnoredForward: (address) =>
      logger.warn(
        { address },
        'headers of a forwarded request are ignored, because their credential is not the forward token; set distributed.task_forward_token to the same value on both bridges',
      ),
  });
  let webhookSecret = settings.bridge.webhook_secret;
  let jobsOfOneOwner = maxJobsOfOneOwner(settings);
  const jobs = await createJobs({
    database,
    instance: instance.id,
    agentIds: agents.map(({ id }) => id),
    gatewayId: gateway.id,
    maxRunning: settings.jobs.max_running,
    maxRunningOfOwner: () => jobsOfOneOwner,
    maxWaitingOfOwner: settings.jobs.max_waiting_per_owner,
    hasRoom: limits.running.hasRoom,
    callbackAllow: settings.jobs.callback_allow,
    keptMs: options.retention.jobs,
    network: options.network,
    orchestrator,
    sessionCalls: createSessionCalls({ orchestrator, agentIds: agents.map(({ id }) => id) }),
    clock,
    makeId,
    logger,
    invokeTool: (tool, action, args) => runtime.invokeTool(tool, action, args, stopped.signal),
    isOpen: access.isOpen,
    webhookSecret: () => webhookSecret,
    route,
    checkDirectory: options.directories.check,
  });

  const methodNames = new Set<string>();
  const capabilitiesText = createCapabilitiesText({ agents, gateway, probes, methodNames });
  const methods = bridgeMethods({
    capabilitiesText,
    sessions: jobs.sessionCalls,
    jobs,
    gatewayMethods: runtime.methods,
    route,
  }).filter(({ name }) => options.onlyMethods?.includes(name) ?? true);
  for (const method of methods) methodNames.add(method.name);
  const dispatchHere = createDispatch({
    rows: methods,
    isStrict: ({ caller }) => settings.bridge.strict_params || (caller.kind === 'request' && caller.isStrict === true),
    aliasPrefixes: settings.bridge.method_prefix_aliases.map((alias) => ({ from: `${alias}.`, to: 'app.' })),
  });
  const dispatch = forwarding.wrap(dispatchHere);

  const overHttp = createRpcOverHttp({
    access,
    dispatch,
    methodNames,
    clock,
    stalledAfterMs: settings.bridge.limits.stalled_after,
    onUnexpectedError,
  });
  const overSocket = createRpcOverSocket({
    dispatch,
    sessions: forwarding.following(orchestrator),
    clock,
    callsPerConnection: settings.bridge.limits.calls_per_connection,
    makeRequestId: () => makeId('req_'),
    onUnexpectedError,
  });
  const editor: RpcOverStdioOptions = {
    version: ping.version,
    dispatch,
    overSocket,
    orchestrator,
    past: sessions.past,
    agents,
    checkDirectory: options.directories.check,
    callsPerConnection: settings.bridge.limits.calls_per_connection,
    clock,
    makeId,
    logger,
    onUnexpectedError,
  };
  const parts = {
    access,
    ping,
    overHttp,
    overSocket,
    messageBytes: settings.bridge.limits.message_bytes,
    gatewayProviderId: gateway.id,
    downloads: {
      artifacts,
      clock,
      stopped: stopped.signal,
      async fetch(place: string, path: string, signal: AbortSignal) {
        const [kind, id] = [place.slice(0, place.indexOf('.')), place.slice(place.indexOf('.') + 1)];
        const file =
          kind === 'node' ? forwarding.download(id, path, signal) : providers.get(id)?.download?.(path, signal);
        if (file === undefined) throw new AppError('NOT_FOUND');
        return file;
      },
    },
  };

  return {
    methods,
    // No server has an editor at its side: loaded by the program that has.
    async acceptStdio(channel, agent) {
      const { createRpcOverStdio } = await import('./editor/rpc-over-stdio.ts');
      createRpcOverStdio(editor)(channel, agent);
    },
    controls: forwarding.controls,
    surface: {
      name: 'bridge',
      title: 'Bridge',
      prefixes: ['/acp', '/api/ping', '/gateway', '/artifacts'],
      routes: bridgeRoutes(parts),
      upgrades: bridgeUpgrades(parts),
      errors: bridgeErrors,
      errorSchema: RpcError,
      // Contract/bridge 3 has one word for a wrong HTTP method and for what is no JSON-RPC request.
      errorBody: (error) =>
        refusalBody(
          hybridEnvelope,
          error.code === 'METHOD_NOT_ALLOWED' ? { ...error, code: 'INVALID_REQUEST' } : error,
        ),
      crossOrigin: access.crossOrigin,
      isOpen: access.isOpen,
      credentialSetting: 'BRIDGE_AUTH_TOKEN',
      async settle() {
        jobs.settle();
        await Promise.all([sessions.settle(), forwarding.settle()]);
      },
    },
    agents: () => agents.map(({ id }) => ({ id, ...(probes.results().get(id) as ProbeResult) })),
    probed: probes.firstRound,
    reload(next) {
      access.reload(next);
      webhookSecret = next.bridge.webhook_secret;
      jobsOfOneOwner = maxJobsOfOneOwner(next);
      forwarding.reload(next);
      runtime.reload(next.gateway);
    },
    async stop() {
      jobs.settle();
      stopped.abort();
      await sweeping.stop();
      await probes.stop();
      await forwarding.stop();
      await sessions.stop();
      await jobs.stop();
      await instance.remove();
    },
  };
}

/** Where there are other credentials than the main token, one place is left for the jobs of somebody else. */
function maxJobsOfOneOwner({ bridge, jobs, distributed }: BridgeGroups): number {
  if (jobs.max_running_per_owner > 0) return Math.min(jobs.max_running_per_owner, jobs.max_running);
  const isAlone =
    bridge.review_auth_token === '' && distributed.task_forward_token === '' && distributed.nodes.length === 0;
  return isAlone ? jobs.max_running : Math.max(1, jobs.max_running - 1);
}
