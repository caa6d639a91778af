import { mkdir } from 'node:fs/promises';
import { childEnvironment, type Environment, findExecutable } from '../../platform/child-process/child-environment.ts';
import { type RunningProcess, startProcess } from '../../platform/child-process/start-process.ts';
import type { Clock } from '../../platform/clock/clock.ts';
import type { Logger } from '../../platform/log/logger.ts';
import { OPERATOR } from '../principal.ts';
import type { AgentConnection, PermissionPolicy } from './agent-connection.ts';

/** A program as it is configured. */
export interface AgentProgram {
  readonly command: string;
  readonly args: readonly string[];
  /** Added to the few variables that every agent gets. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Starts an agent's program for an owner of sessions. Undefined: there is no such program on this machine. */
export type LaunchAgent = (program: AgentProgram, owner?: string) => Promise<RunningProcess | undefined>;

export interface ConnectOptions {
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

export interface AgentLauncherOptions {
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
