import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { lstat, mkdir, open, readlink, rename, rm, writeFile } from 'node:fs/promises';
import { basename, delimiter, dirname, join, resolve, sep } from 'node:path';
import { findExecutable } from '../../platform/child-process/child-environment.ts';
import type { RunningProcess } from '../../platform/child-process/start-process.ts';
import type { Clock } from '../../platform/clock/clock.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { Payer } from '../../platform/identity/owner.ts';
import type { Logger } from '../../platform/log/logger.ts';
import type { Environment } from '../../platform/runtime/runtime.ts';
import { type HeldFolder, holdFolder } from '../sessions/private-places.ts';
import type { AgentConnection } from './agent-connection.ts';
import { type AgentFence, environmentFor, makeAgentHome } from './agent-fence.ts';
import {
  type AgentProgram,
  getsOurModels,
  type ModelAccess,
  type OfferedModels,
  withOurModels,
} from './agent-models.ts';
import { agentPackages } from './agent-packages.ts';
import type { PermissionPolicy } from './agent-provider.ts';

/** How long an agent program is waited for, and kept. */
export interface AgentLimits {
  /** From the start of the program until its first response; then the same time again until a conversation is open. */
  readonly startMs: number;
  /** A program that no turn has used for this long is ended. */
  readonly idleMs: number;
  /** The same for an agent whose conversations end with its process, because a caller may still continue them. */
  readonly idleWithConversationsMs: number;
  /** A turn without any event for this long is stopped. */
  readonly silenceMs: number;
  /** How long a cancelled turn may take to end by itself. With `killMs` it stays below five seconds. */
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
  idleMs: 5 * 60_000,
  idleWithConversationsMs: 6 * 3_600_000,
  silenceMs: 3_600_000,
  cancelMs: 3_000,
  closeMs: 3_000,
  killMs: 500,
  firstPauseMs: 250,
  longestPauseMs: 30_000,
};

/** For whom and where an agent's program works. */
export interface AgentWork extends Payer {
  /** Id of the agent. */
  readonly agent: string;
  /** The working directory, where the program runs in the sandbox. */
  readonly folder: string;
  /** A caller named the program: it starts in the working directory, also without a sandbox. */
  readonly isCallers?: true;
  /** As that of `FencedWork`. */
  readonly isReadOnly?: boolean;
}

/** Starts an agent's program; without `work`, to look at it. Undefined: there is no such program on this machine. */
export type LaunchAgent = (program: AgentProgram, work?: AgentWork) => Promise<AgentProcess | undefined>;

/** A running program, and where it calls our models, what its turns cost and which trace they are part of. */
export type AgentProcess = RunningProcess & Pick<ModelAccess, 'meter' | 'follow'>;

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

/** Lets a program call our models for an owner; undefined for one that is only looked at. */
export type AccessModels = (payer: Payer | undefined, isFenced: boolean) => ModelAccess | undefined;

interface AgentLauncherOptions {
  /** Our own environment. Programs get the allowed part of it. */
  readonly environment: Environment;
  /** Where programs are started. They do not work in this folder, because each conversation names its own. */
  readonly folder: string;
  readonly journalFolder: string;
  /** Where programs are looked for, before the folders of PATH. */
  readonly programs: string;
  readonly fence: AgentFence;
  /** Where agents have homes: those of people without a sandbox, and those with settings of ours. Undefined: all use that of this program. */
  readonly homes?: string | undefined;
  /** Undefined: no program gets a key. */
  readonly modelAccess?: AccessModels | undefined;
  readonly offered?: OfferedModels | undefined;
}

/** Finds a program in a folder of ours, otherwise in the folders of PATH. */
export function createFindProgram(programs: string, { PATH = '' }: Environment) {
  return (command: string): Promise<string | undefined> => findExecutable(command, `${programs}${delimiter}${PATH}`);
}

export function createAgentLauncher(options: AgentLauncherOptions): LaunchAgent {
  const { environment, folder, journalFolder, programs, fence, homes, offered } = options;
  const findProgram = createFindProgram(programs, environment);
  return async (program, work) => {
    const { command } = program;
    const file = await findProgram(command);
    if (file === undefined) return undefined;
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const { owner, member, isCallers = false, isReadOnly = false } = work ?? {};
    const agent = work?.agent ?? basename(command);
    const place = work !== undefined && existsSync(work.folder) ? work.folder : folder;
    const general = await environmentFor(environment, fence, { owner, agent }, homes);
    const isFenced = fence.isFenced(owner);
    const isOurs = getsOurModels(program, owner, isFenced, offered);
    const models = isOurs
      ? options.modelAccess?.(owner === undefined ? undefined : { owner, member }, isFenced)
      : undefined;
    const home = isOurs && homes !== undefined ? await makeAgentHome(homes, owner ?? '', agent) : '';
    const seen = join((isFenced ? fence.home : undefined) ?? home, SETTINGS_FOLDER);
    const { args, environment: own, files } = withOurModels(program, models, offered, seen);
    if (home !== '') await writeSettings(home, files);
    const script = file.startsWith(programs + sep) && (await isNodeScript(file)) ? file : undefined;
    const env = {
      ...general,
      ...own,
      ...(script !== undefined && (await pathOfAdapter(command, script, general.PATH))),
    };
    const started =
      script === undefined ? { command: file, args } : { command: process.execPath, args: [file, ...args] };
    try {
      const running = await fence.start(
        { ...started, cwd: isCallers ? place : folder, env, journalFolder },
        { owner, member, agent, folder: place, isCallers, isReadOnly, script },
      );
      void running.exited.then(() => models?.end());
      const { meter, follow } = models ?? {};
      return Object.assign(running, { ...(meter && { meter }), ...(follow && { follow }) });
    } catch (error) {
      models?.end();
      throw error;
    }
  };
}

/** Where an agent finds settings that we write, in a home that we have made for it. */
const SETTINGS_FOLDER = '.trestle-settings';

/** Writes our settings for an agent. Follows no links: the home belongs to the agent, which may have put some there. */
async function writeSettings(home: string, files: Readonly<Record<string, string>>): Promise<void> {
  if (Object.keys(files).length === 0) return;
  const top = await holdFolder(home, home);
  try {
    const folder = await makeFolder(top, SETTINGS_FOLDER);
    try {
      for (const [name, text] of Object.entries(files)) {
        const draft = folder.entry(`${name}.${randomUUID()}`);
        await writeFile(draft, text, { mode: 0o600, flag: 'wx' });
        await rename(draft, folder.entry(name));
      }
    } finally {
      await folder.close();
    }
  } finally {
    await top.close();
  }
}

/** Opens a folder, and makes it first where there is none, or something else has its name. */
async function makeFolder(above: HeldFolder, name: string): Promise<HeldFolder> {
  const place = above.entry(name);
  const found = await lstat(place).catch(() => undefined);
  if (found?.isDirectory() === false) await rm(place, { force: true });
  await mkdir(place, { mode: 0o700 }).catch((error: unknown) => {
    if (errorCode(error) !== 'EEXIST') throw error;
  });
  return holdFolder(place, place, above);
}

/** Returns a PATH with which an adapter finds the agent that was installed with it, and our own Node. */
async function pathOfAdapter(command: string, link: string, path = ''): Promise<{ readonly PATH?: string }> {
  if (!agentPackages.some((row) => row.command === command && row.adapts !== undefined)) return {};
  const folder = dirname(resolve(dirname(link), await readlink(link)));
  return { PATH: [folder, dirname(process.execPath), path].join(delimiter) };
}

const SHEBANG_BYTES = 64;

/** Whether a program is a script for Node. Installed agents run on our own Node, because the user's may be too old or missing. */
async function isNodeScript(file: string): Promise<boolean> {
  const handle = await open(file, 'r');
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(SHEBANG_BYTES), 0, SHEBANG_BYTES, 0);
    return /^#!.*\bnode\b/.test(buffer.toString('latin1', 0, bytesRead));
  } finally {
    await handle.close();
  }
}
