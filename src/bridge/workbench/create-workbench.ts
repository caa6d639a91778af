import type { Database } from '../../platform/database/database.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { CatalogAgent } from '../agents/agent-catalog.ts';
import type { AgentInstaller } from '../agents/agent-packages.ts';
import type { AgentProvider } from '../agents/agent-provider.ts';
import type { Confine } from '../agents/builtin/tools/confinement.ts';
import type { ProbeBoard } from '../agents/probe-board.ts';
import { describeAgent, listAgents } from '../capabilities.ts';
import type { Checkpoints } from '../checkpoints/turn-checkpoints.ts';
import type { NodeReports } from '../forwarding/node-health.ts';
import type { SessionFollowing } from '../forwarding/update-relay.ts';
import type { Jobs } from '../jobs/create-jobs.ts';
import type { Sessions } from '../sessions/create-sessions.ts';
import type { WorkingDirectories } from '../sessions/working-directory.ts';
import type { BridgeSchema } from '../storage/bridge-schema.ts';
import { createSessionStore } from '../storage/session-store.ts';
import { createSummaryStore } from '../storage/summary-store.ts';
import { createUpdateStore } from '../storage/update-store.ts';
import { createHistoryStore } from '../storage/workbench-stores.ts';
import type { Worktrees } from '../worktrees/create-worktrees.ts';
import { createAgentCare } from './agent-care.ts';
import { createFileChanges } from './file-changes.ts';
import { createFileReader, type FolderList } from './folders.ts';
import { createHistory } from './history.ts';
import { createLiveSocket, type LiveSocket } from './live-socket.ts';
import type { Permissions } from './permissions.ts';
import { createSessionChanges } from './session-changes.ts';
import { createSessionList } from './session-list.ts';
import type { WorkbenchParts } from './workbench-routes.ts';

/** The second surface of the bridge: what its rows and its socket need. */
export interface Workbench {
  readonly parts: Omit<WorkbenchParts, 'schedules'>;
  readonly live: LiveSocket;
  stop(): void;
}

/** Where work is done, and what is saved of it. */
export interface WorkPlaces {
  readonly directories: WorkingDirectories;
  readonly confine: Confine;
  /** The folders that people may choose from. */
  readonly folders: FolderList;
  readonly checkpoints: Checkpoints;
  readonly worktrees: Worktrees;
  readonly installer: AgentInstaller;
}

export interface WorkbenchOptions extends WorkPlaces, Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  readonly database: Database<BridgeSchema>;
  readonly sessions: Pick<Sessions, 'summaries' | 'flush' | 'orchestrator' | 'conversations' | 'serverBox'>;
  readonly following: SessionFollowing;
  readonly nodes: NodeReports;
  readonly agents: readonly CatalogAgent[];
  readonly providers: ReadonlyMap<string, AgentProvider>;
  readonly permissions: Permissions;
  readonly attachments: WorkbenchParts['attachments'];
  readonly jobs: Pick<Jobs, 'onChange' | 'read' | 'sessionCalls'>;
  readonly probes: Pick<ProbeBoard, 'onChange' | 'results' | 'lookNow'>;
  readonly callsPerConnection: number;
  onUnexpectedError(error: unknown, requestId: string): void;
}

export function createWorkbench(options: WorkbenchOptions): Workbench {
  const { database, clock, makeId, logger, providers, probes, folders, nodes, following, permissions } = options;
  const { summaries, flush, orchestrator, conversations } = options.sessions;
  const store = createSummaryStore(database);
  const sessions = createSessionList({
    sessions: createSessionStore(database),
    store,
    summaries,
    permissions,
    offered: conversations.offered,
    serverBox: options.sessions.serverBox,
    nodeId: nodes.list().local_node_id,
    now: clock.now,
  });
  const changes = createSessionChanges({
    clock,
    read: sessions.read,
    readJob: options.jobs.read,
    onError: (error) => logger.warn({ err: error }, 'changes for the live socket could not be read'),
  });
  summaries.onChange(changes);
  options.jobs.onChange(changes.jobChanged);
  probes.onChange((id) => {
    const agent = options.agents.find((one) => one.id === id);
    if (agent !== undefined) changes.agentChanged(describeAgent(agent, probes.results()));
  });
  permissions.onChange((permission, sessionKey) => {
    changes.permissionChanged(permission);
    changes.changed(sessionKey);
  });
  const history = createHistory({ store: createHistoryStore(database), updates: createUpdateStore(database), flush });
  const live = createLiveSocket({
    clock,
    changes,
    following,
    sessions,
    callsPerConnection: options.callsPerConnection,
    makeRequestId: () => makeId('req_'),
    onUnexpectedError: options.onUnexpectedError,
  });
  const readFile = createFileReader(options.directories, options.confine);
  const fileChanges = createFileChanges({
    checkpoints: options.checkpoints,
    directories: options.directories,
    confine: options.confine,
    makeId,
    history,
    alone: orchestrator.alone,
    async noteTotals(sessionKey, totals) {
      const { files, added, removed } = totals;
      await store.change(sessionKey, { changed_files: files, lines_added: added, lines_removed: removed });
      summaries.stored(sessionKey);
    },
  });
  const merge: WorkbenchParts['merge'] = ({ key, owner, session_id: sessionId }, step) =>
    orchestrator.alone(owner, sessionId, () => options.worktrees.merge({ key, owner }, step));
  const { attachments } = options;
  const agentCare = createAgentCare({
    providers,
    probes,
    installer: options.installer,
    clock,
    makeId,
    sessionCalls: options.jobs.sessionCalls,
  });
  const agents = () => listAgents(options.agents, providers, probes);
  const parts = {
    sessions,
    history,
    fileChanges,
    folders,
    readFile,
    nodes,
    permissions,
    attachments,
    conversations,
    merge,
    agents,
    agentCare,
  };
  return {
    parts,
    live,
    stop() {
      changes.stop();
      agentCare.stop();
    },
  };
}
