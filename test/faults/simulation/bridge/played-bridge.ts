import assert from 'node:assert/strict';
import type { AgentProvider } from '../../../../src/bridge/agents/agent-provider.ts';
import { startProbeBoard } from '../../../../src/bridge/agents/probe-board.ts';
import type { BridgeClient } from '../../../../src/bridge/bridge-client.ts';
import { registerInstance } from '../../../../src/bridge/instances/instance-registry.ts';
import { createJobs, type Jobs } from '../../../../src/bridge/jobs/create-jobs.ts';
import { principalOf } from '../../../../src/bridge/principal.ts';
import { createLiveRouting } from '../../../../src/bridge/routing/resolve-route.ts';
import { createSessions } from '../../../../src/bridge/sessions/create-sessions.ts';
import { createSessionCalls, type SessionCalls } from '../../../../src/bridge/sessions/session-calls.ts';
import type { SessionOrchestrator } from '../../../../src/bridge/sessions/session-orchestrator.ts';
import { createTurnLimits } from '../../../../src/bridge/sessions/turn-limits.ts';
import type { WorkingDirectories } from '../../../../src/bridge/sessions/working-directory.ts';
import type { BridgeSchema } from '../../../../src/bridge/storage/bridge-schema.ts';
import { createInstanceStore } from '../../../../src/bridge/storage/instance-and-route-stores.ts';
import { createPermissions, type Permissions } from '../../../../src/bridge/workbench/permissions.ts';
import type { CallbackNetwork } from '../../../../src/platform/callbacks/callback-post.ts';
import type { Clock } from '../../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../../src/platform/clock/randomness.ts';
import type { Database } from '../../../../src/platform/database/database.ts';
import { AppError } from '../../../../src/platform/errors/app-error.ts';
import type { MakeId } from '../../../../src/platform/ids/sortable-id.ts';
import type { MethodCall } from '../../../../src/platform/json-rpc/method-table.ts';
import type { Logger } from '../../../../src/platform/log/logger.ts';
import { createSecretBox } from '../../../../src/platform/secrets/secret-keys.ts';

/** Sessions as the bridge has them, with everything around them played. */
export interface PlayedSessions {
  readonly orchestrator: SessionOrchestrator;
  readonly sessionCalls: SessionCalls;
  /** Absent where the agents ask nothing. */
  readonly permissions?: Permissions;
  stop(): Promise<void>;
}

/** The same with jobs. */
export interface PlayedBridge extends PlayedSessions {
  readonly jobs: Jobs;
}

export interface PlayedSessionsOptions {
  readonly database: Database<BridgeSchema>;
  readonly clock: Clock;
  readonly makeId: MakeId;
  readonly logger: Logger;
  readonly agents: readonly AgentProvider[];
  /** How long questions of agents wait for people. Absent: the agents ask nothing. */
  readonly permissionTimeoutMs?: number;
  /** Where several bridges share the database. */
  readonly shared?: SharedParts;
}

export interface SharedParts {
  /** The name of its data directory. */
  readonly home: string;
  flushElsewhere(sessionKey: string): Promise<void>;
  tellOthers(sessionKey: string): void;
}

export interface PlayedBridgeOptions extends PlayedSessionsOptions {
  readonly network: CallbackNetwork;
  readonly maxRunning: number;
}

const GATEWAY_ID = 'no-gateway';
const PROBES = { intervalMs: 30_000, timeoutMs: 15_000 };

/** Folders that nobody needs to have. */
const directories: WorkingDirectories = {
  async check() {
    throw new AppError('WORKING_DIRECTORY_REFUSED', { reason: 'there is no folder' });
  },
  identify: async () => '0:0',
  scratch: async (sessionKey) => `/scratch/${sessionKey}`,
  setScratchAside: async () => async () => undefined,
  shelfOf: () => undefined,
  filesOf: (sessionKey) => `/scratch/${sessionKey}/attachments`,
  isScratch: () => true,
};

const LIMITS = {
  turns: 1024,
  turns_per_principal: 256,
  turns_per_agent: 512,
  waiting_turns: 4096,
  waiting_turns_per_principal: 1024,
};

/** What `createBridge` makes before it comes to jobs, in the same order. */
export async function openParts({
  database,
  clock,
  makeId,
  logger,
  agents,
  permissionTimeoutMs: timeoutMs,
  shared,
}: PlayedSessionsOptions) {
  const instance = await registerInstance({
    store: createInstanceStore(database),
    clock,
    id: makeId('ins_'),
    version: '0',
    address: () => 'http://played',
    ...(shared !== undefined && { home: shared.home }),
    isShared: shared !== undefined,
    onMissedBeat: () => undefined,
    onClockDifference: () => undefined,
  });
  const probes = startProbeBoard({
    probes: new Map(agents.map(({ id, probe }) => [id, probe])),
    clock,
    ...PROBES,
  });
  const agentIds = agents.map(({ id }) => id);
  const route = createLiveRouting({ agentIds, gatewayId: GATEWAY_ID, defaultAgent: agentIds[0] ?? '', probes });
  const permissions =
    timeoutMs === undefined
      ? undefined
      : await createPermissions({
          database,
          instance: instance.id,
          lease: instance.lease,
          clock,
          makeId,
          logger,
          settings: { permissions: 'allow' as const, permission_rules: [], permission_timeout: timeoutMs },
        });
  const sessions = await createSessions({
    database,
    withConfigured: (_owner, given) => given,
    providers: new Map(agents.map((agent) => [agent.id, agent])),
    directories,
    instance: instance.id,
    lease: instance.lease,
    ...shared,
    retention: { events: 0, audit: 0 },
    clock,
    makeId,
    logger,
    limits: createTurnLimits(LIMITS),
    permissions: permissions ?? {
      checkServers: () => undefined,
      forTurn: () => ({
        ask: async () => ({ optionId: undefined }),
        asks: false,
        deniedPaths: async () => undefined,
        end: () => undefined,
      }),
    },
    route,
    agentFailed: probes.lookNow,
    keepArtifacts: async () => [],
    removeArtifacts: async () => undefined,
    placeFiles: async () => [],
    secretBox: createSecretBox([new Uint8Array(32)], systemRandomness),
    scratch: undefined,
    checkpoints: undefined,
    // No played session asks for one.
    worktrees: {
      create: async () => assert.fail('no worktree is asked for'),
      placesOf: async () => undefined,
      noteWinner: async () => undefined,
      merge: async () => assert.fail('no worktree is asked for'),
      remove: async () => undefined,
      sweep: async () => undefined,
    },
  });
  const sessionCalls = createSessionCalls({
    orchestrator: sessions.orchestrator,
    agentIds,
    principalFor: async (owner) => principalOf(owner),
    checkFiles: async () => undefined,
  });
  return { instance, probes, agentIds, route, sessions, sessionCalls, permissions };
}

export async function openPlayedSessions(options: PlayedSessionsOptions): Promise<PlayedSessions> {
  const { instance, probes, sessions, sessionCalls, permissions } = await openParts(options);
  return {
    orchestrator: sessions.orchestrator,
    sessionCalls,
    ...(permissions !== undefined && { permissions }),
    async stop() {
      await sessions.settle();
      await probes.stop();
      await sessions.stop();
      await permissions?.stop();
      await instance.remove();
    },
  };
}

export async function openPlayedBridge(options: PlayedBridgeOptions): Promise<PlayedBridge> {
  const { database, clock, makeId, logger, network, maxRunning } = options;
  const { instance, probes, agentIds, route, sessions, sessionCalls } = await openParts(options);
  const { orchestrator } = sessions;
  const jobs = await createJobs({
    database,
    instance: instance.id,
    lease: instance.lease,
    agentIds,
    gatewayId: GATEWAY_ID,
    settings: {
      max_running: maxRunning,
      max_waiting_per_owner: 100_000,
      max_schedules_per_owner: 100,
      min_schedule_interval: 60_000,
      callback_allow: [],
    },
    maxRunningOfOwner: () => maxRunning,
    hasRoom: () => true,
    ownerOf: async () => undefined,
    principalFor: async (owner) => principalOf(owner),
    keptMs: 0,
    network,
    orchestrator,
    sessionCalls,
    clock,
    makeId,
    logger,
    checkGatewayOwner: () => undefined,
    invokeTool: () => Promise.reject(new Error('there is no gateway')),
    isOpen: () => false,
    webhookSecret: () => '',
    route,
    checkDirectory: directories.check,
    keepFiles: async () => ({}),
    serverBox: sessions.serverBox,
    checkServers: () => undefined,
  });
  return {
    jobs,
    orchestrator,
    sessionCalls: jobs.sessionCalls,
    async stop() {
      jobs.settle();
      await sessions.settle();
      await probes.stop();
      await sessions.stop();
      await jobs.stop();
      await instance.remove();
    },
  };
}

/** A call as it comes from a client. */
export function callOf(caller: BridgeClient, more: Partial<MethodCall<BridgeClient>> = {}): MethodCall<BridgeClient> {
  return {
    method: '',
    params: {},
    id: 1,
    caller,
    signal: new AbortController().signal,
    requestId: '',
    notify() {},
    accept() {},
    ...more,
  };
}
