import { realpath } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Randomness } from '../platform/clock/randomness.ts';
import type { Environment } from '../platform/runtime/runtime.ts';
import { buildAgentCatalog } from './agents/agent-catalog.ts';
import { createAgentLauncher } from './agents/agent-launcher.ts';
import type { ProbeEffects } from './agents/agent-probe.ts';
import type { AgentProvider } from './agents/agent-provider.ts';
import type { CompleteChat } from './agents/builtin/complete-chat.ts';
import { createCompleteOverHttp } from './agents/builtin/complete-over-http.ts';
import { createBuiltinAgent } from './agents/builtin/create-builtin-agent.ts';
import { createMcpTools } from './agents/builtin/mcp-tools.ts';
import { createConfinement } from './agents/builtin/tools/confinement.ts';
import { createAgentProviders } from './agents/create-agent-providers.ts';
import { createRemoteAgent } from './agents/remote/create-remote-agent.ts';
import { type Bridge, type BridgeOptions, createBridge } from './create-bridge.ts';
import { systemCallbackNetwork } from './jobs/callbacks.ts';
import { createPrivatePlaces, type PrivatePaths } from './sessions/private-places.ts';
import { createWorkingDirectories } from './sessions/working-directory.ts';
import { createBuiltinConversationStore } from './storage/builtin-conversation-store.ts';

export interface WiringOptions
  extends Omit<BridgeOptions, 'agents' | 'providers' | 'directories' | 'confine' | 'network'> {
  readonly dataDirectory: string;
  /** What callers must not reach besides the data directory. */
  readonly privatePaths: PrivatePaths;
  readonly homeDirectory: string;
  /** Our own, of which agents get the allowed part. */
  readonly environment: Environment;
  readonly processJournal: string;
  readonly probeEffects: ProbeEffects;
  /** Why the built-in agent's model cannot be used; undefined when it can. */
  readonly builtinModelProblem: string | undefined;
  readonly randomness: Randomness;
  /** The completions service of this program, for the built-in agent. */
  readonly complete: CompleteChat;
}

/** A tool may have another agent do something. */
const MCP_CALL_MS = 15 * 60_000;

/** The bridge with its real agents. */
export async function wireBridge(options: WiringOptions): Promise<Bridge> {
  const { settings, homeDirectory, environment, processJournal, clock, makeId, randomness, logger } = options;
  const { workspace_roots: roots, permissions } = settings.bridge;
  const dataDirectory = await realpath(options.dataDirectory);
  const { folders, files } = options.privatePaths;
  const places = createPrivatePlaces({
    folders: [dataDirectory, ...(await Promise.all(folders.map(realOrAsGiven)))],
    files: await Promise.all(files.map(realOrAsGiven)),
  });
  const directories = createWorkingDirectories({
    roots,
    defaultRoots: [homeDirectory, tmpdir()],
    dataDirectory,
    places,
  });
  const confine = createConfinement({ places, isScratch: directories.isScratch });

  const launch = createAgentLauncher({
    environment,
    folder: join(dataDirectory, 'agents'),
    journalFolder: processJournal,
  });

  function createBuiltin(): AgentProvider {
    const { base_url: baseUrl, api_key: apiKey, ...builtin } = settings.agents.builtin;
    return createBuiltinAgent({
      version: options.ping.version,
      complete: baseUrl === '' ? options.complete : createCompleteOverHttp({ baseUrl, apiKey, clock, randomness }),
      model: builtin.model,
      modelProblem: options.builtinModelProblem,
      store: createBuiltinConversationStore(options.database),
      clock,
      makeId,
      permissions,
      confine,
      environment,
      processJournal,
      maxRequests: builtin.max_requests,
      contextCharacters: builtin.context_characters,
      commandTimeoutMs: builtin.command_timeout,
      ...(builtin.mcp.length > 0 && {
        mcp: createMcpTools({
          servers: builtin.mcp,
          launch,
          version: options.ping.version,
          clock,
          callTimeoutMs: MCP_CALL_MS,
          logger,
        }),
      }),
    });
  }

  const agents = buildAgentCatalog(settings.agents);
  const providers = createAgentProviders({
    catalog: agents,
    permissions,
    version: options.ping.version,
    launch,
    probeEffects: options.probeEffects,
    maxProcesses: settings.agents.max_processes,
    createBuiltin,
    createRemote: (id, { url, token }) =>
      createRemoteAgent({
        id,
        url,
        token,
        clock,
        randomness,
        makeId,
        logger,
        isScratchFolder: directories.isScratch,
        hopLimit: settings.distributed.forwarding.hop_limit,
      }),
    clock,
    logger,
  });
  return createBridge({ ...options, agents, providers, directories, confine, network: systemCallbackNetwork });
}

function realOrAsGiven(path: string): Promise<string> {
  return realpath(path).catch(() => path);
}
