import { mkdir } from 'node:fs/promises';
import { childEnvironment, type Environment } from '../../platform/child-process/child-environment.ts';
import { findExecutable } from '../../platform/child-process/find-executable.ts';
import { type RunningProcess, startProcess } from '../../platform/child-process/start-process.ts';

/** A program as it is configured. */
export interface AgentProgram {
  readonly command: string;
  readonly args: readonly string[];
  /** Added to the few variables that every agent gets. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Starts an agent's program. Undefined: there is no such program on this machine. */
export type LaunchAgent = (program: AgentProgram) => Promise<RunningProcess | undefined>;

export interface AgentLauncherOptions {
  /** Our own environment, of which the allowed part goes along. */
  readonly environment: Environment;
  /** Where programs are started. Conversations name folders of their own: nothing is ever done in this one. */
  readonly folder: string;
  readonly journalFolder: string;
}

export function createAgentLauncher({ environment, folder, journalFolder }: AgentLauncherOptions): LaunchAgent {
  return async ({ command, args, environment: own }) => {
    const file = await findExecutable(command, environment.PATH ?? '');
    if (file === undefined) return undefined;
    await mkdir(folder, { recursive: true, mode: 0o700 });
    return startProcess({ command: file, args, cwd: folder, env: childEnvironment(environment, own), journalFolder });
  };
}
