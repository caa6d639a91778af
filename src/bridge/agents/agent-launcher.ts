import { mkdir } from 'node:fs/promises';
import { childEnvironment, findExecutable } from '../../platform/child-process/child-environment.ts';
import { type RunningProcess, startProcess } from '../../platform/child-process/start-process.ts';
import type { Clock } from '../../platform/clock/clock.ts';
import type { Logger } from '../../platform/log/logger.ts';
import type { Environment } from '../../platform/runtime/runtime.ts';
import { OPERATOR } from '../principal.ts';
import type { AgentConnection, PermissionPolicy } from './agent-connection.ts';

/** How long an agent program is waited for, and kept. */
export interface AgentLimits {
  /** From the start of the program until it answers; and once more until a conversation is open. */
  readonly startMs: number;
  /** A program that no turn has used for so long is ended. */
  readonly idleMs: number;
  /** The same for an agent whose conversations end with its process, because a caller may still continue them. */
  readonly idleWithConversationsMs: number;
  /** A turn in which nothing at all has happened for so long is given up. */
  readonly silenceMs: number;
  /** How long a cancelled turn may take to end by itself. With `killMs` it stays below five seconds (contract/bridge 4). */
  readonly cancelMs: number;
  /** How long an agent may take to delete a closed conversation. */
  readonly closeMs: number;
  /** Between SIGTERM and SIGKILL. */
  readonly killMs: number;
  /** The pause before a restart: doubled with each further failure, up to the longest. */
  readonly firstPauseMs: number;
  readonly longestPauseMs: number;
}

export const DEFAULT_AGENT_LIMITS: AgentLimits = {
  startMs: 60_000,
  idleMs: 10 * 60_000,
  idleWithConversationsMs: 6 * 3_600_000,
  silenceMs: 3_600_000,
  cancelMs: 3_000,
  closeMs: 3_000,
  killMs: 500,
  firstPauseMs: 250,
  longestPauseMs: 30_000,
};

/** A program as it is configured. */
export interface AgentProgram {
  readonly command: string;
  readonly args: readonly string[];
  /** Added to the few variables that every agent gets. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Starts an agent's program for an owner of sessions. Undefined: there is no such program on this machine. */
export type LaunchAgent = (program: AgentProgram, owner?: string) => Promise<RunningProcess | undefined>;

interface ConnectOptions {
  readonly protocol: 'acp' | 'codex';
  readonly permissions: PermissionPolicy;
  /** Of this program; agents may learn it. */
  readonly version: string;
  readonly clock: Clock;
  readonly logger: Pick<Logger, 'error'>;
}

/** Speaks the agent's protocol over the pipes of its process. The protocol is loaded with the first agent that speaks it. */
export async function connectAgent(process: RunningProcess, options: ConnectOptions): Promise<AgentConnection> {
  if (options.protocol === 'codex') {
    const { connectCodexAgent } = await import('./codex/connect-codex-agent.ts');
    return connectCodexAgent({ ...options, process });
  }
  const { connectAcpAgent } = await import('./acp/connect-acp-agent.ts');
  return connectAcpAgent({ ...options, process });
}

interface AgentLauncherOptions {
  /** Our own environment, of which the allowed part goes along. */
  readonly environment: Environment;
  /** Where programs are started. Conversations name folders of their own: nothing is ever done in this one. */
  readonly folder: string;
  readonly journalFolder: string;
}

export function createAgentLauncher({ environment, folder, journalFolder }: AgentLauncherOptions): LaunchAgent {
  return async ({ command, args, environment: own }, owner) => {
    const file = await findExecutable(command, environment.PATH ?? '');
    if (file === undefined) return undefined;
    await mkdir(folder, { recursive: true, mode: 0o700 });
    // What works for the operator may use the operator's ssh agent and proxy password.
    const env = childEnvironment(environment, own, { isOperators: owner === OPERATOR });
    return startProcess({ command: file, args, cwd: folder, env, journalFolder });
  };
}
