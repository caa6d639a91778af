import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { childEnvironment, findExecutable } from '../../platform/child-process/child-environment.ts';
import { readProcess } from '../../platform/child-process/process-table.ts';
import { startProcess } from '../../platform/child-process/start-process.ts';
import { type Clock, deadline, onAbort } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Environment } from '../../platform/runtime/runtime.ts';
import { type AgentPackage, agentPackages, agentProgramsFolder, installAgent } from './agent-packages.ts';

/** Installs agents in the data directory: the only way, for `trestle agents install` and for the route. */
export interface AgentInstaller {
  /**
   * Installs the version of this release, and returns it. `say` gets what npm prints. Throws AGENT_UNKNOWN, and
   * AGENT_INSTALLING while the same agent is being installed, by this or by another process.
   */
  install(id: string, call: InstallCall): Promise<string>;
}

interface InstallCall {
  readonly timeoutMs: number;
  /** Ends npm when it aborts. */
  readonly signal?: AbortSignal;
  say?(text: string): void;
}

export interface AgentInstallerOptions {
  readonly dataDirectory: string;
  /** Our own, of which npm gets the allowed part, and its own variables. */
  readonly environment: Environment;
  readonly journalFolder: string;
  readonly clock: Clock;
}

const NPM_VARIABLES = /^npm_config_/i;
const STOP_MS = 1000;
const MAX_REASON = 2000;

export function createAgentInstaller(options: AgentInstallerOptions): AgentInstaller {
  const { dataDirectory, environment, journalFolder, clock } = options;

  async function runNpm(args: readonly string[], folder: string, { timeoutMs, signal, say }: InstallCall) {
    const npm = await findExecutable('npm', environment.PATH ?? '');
    if (npm === undefined) throw new AppError('NPM_MISSING');
    const own = Object.entries(environment).flatMap(([name, value]) =>
      NPM_VARIABLES.test(name) && value !== undefined ? [[name, value] as const] : [],
    );
    const env = childEnvironment(environment, Object.fromEntries(own), { isOperators: true });
    const limit = deadline(clock, timeoutMs, signal === undefined ? [] : [signal]);
    const child = await startProcess({ command: npm, args, cwd: folder, env, journalFolder });
    child.stdin.end();
    child.stdout.setEncoding('utf8').on('data', (text: string) => say?.(text));
    const release = onAbort(limit.signal, () => void child.stop({ graceMs: STOP_MS }));
    try {
      const { code, stderrTail } = await child.exited;
      if (limit.hasPassed()) throw failed(`it took longer than ${timeoutMs / 60_000} minutes`);
      if (limit.signal.aborted) throw failed('the server was stopped');
      if (code !== 0) throw failed(stderrTail.trim().slice(-MAX_REASON) || `exit code ${code}`);
    } finally {
      release();
      limit.release();
      await child.stop({ graceMs: STOP_MS });
    }
  }

  return {
    async install(id, call) {
      const agent = packageOf(id);
      const release = await lockInstall(id, agentProgramsFolder(dataDirectory));
      try {
        await installAgent(agent, { dataDirectory, runNpm: (args, folder) => runNpm(args, folder, call) });
      } finally {
        await release();
      }
      return agent.version;
    },
  };
}

function failed(reason: string): AppError {
  return new AppError('NPM_FAILED', { reason });
}

/** Throws AGENT_UNKNOWN. */
export function packageOf(id: string): AgentPackage {
  const agent = agentPackages.find((row) => row.id === id);
  if (agent !== undefined) return agent;
  throw new AppError('AGENT_UNKNOWN', {
    agent: id.slice(0, 100),
    known: agentPackages.map((row) => row.id).join(', '),
  });
}

/** Installations of this process, by the path of the lock. */
const held = new Set<string>();

/**
 * Lets one process install an agent at a time, by a file that names the process. The file of a process that has ended is taken
 * over. Throws AGENT_INSTALLING.
 */
async function lockInstall(id: string, programs: string): Promise<() => Promise<void>> {
  await mkdir(programs, { recursive: true, mode: 0o700 });
  const path = join(programs, `.${id}.installing`);
  if (held.has(path)) throw new AppError('AGENT_INSTALLING', { agent: id });
  held.add(path);
  try {
    if (!(await tryLock(path))) {
      if (await isHeldByOther(path)) throw new AppError('AGENT_INSTALLING', { agent: id });
      await rm(path, { force: true });
      if (!(await tryLock(path))) throw new AppError('AGENT_INSTALLING', { agent: id });
    }
  } catch (error) {
    held.delete(path);
    throw error;
  }
  return async () => {
    await rm(path, { force: true });
    held.delete(path);
  };
}

/** Returns false when the file exists. The file appears with its whole text. */
async function tryLock(path: string): Promise<boolean> {
  const whole = `${path}.${process.pid}`;
  await writeFile(whole, nameOf(process.pid), { mode: 0o600 });
  try {
    await link(whole, path);
    return true;
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return false;
    throw error;
  } finally {
    await rm(whole, { force: true });
  }
}

async function isHeldByOther(path: string): Promise<boolean> {
  const text = await readFile(path, 'utf8').catch(() => '');
  const pid = Number(text.split(' ')[0]);
  return pid !== process.pid && isAlive(pid) && text === nameOf(pid);
}

/** Tells a process from a later one with the same number, where the system says when it was started. */
function nameOf(pid: number): string {
  return `${pid} ${readProcess(pid)?.startTime ?? 0}`;
}

function isAlive(pid: number): boolean {
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return errorCode(error) === 'EPERM';
  }
}
