import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, realpath, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { childEnvironment } from '../../platform/child-process/child-environment.ts';
import type { Fence, Sandbox } from '../../platform/child-process/sandbox.ts';
import { type ProcessOptions, type RunningProcess, startProcess } from '../../platform/child-process/start-process.ts';
import { setting } from '../../platform/config/setting.ts';
import { payerName } from '../../platform/identity/owner.ts';
import type { Environment } from '../../platform/runtime/runtime.ts';
import { isOperators, isPersons } from '../principal.ts';
import { identityKey } from '../sessions/private-places.ts';
import { agentProgramsFolder } from './agent-packages.ts';

/** What a program is started for. */
export interface FencedWork {
  /** Owner of the session. Undefined: the program only looks at an agent. */
  readonly owner: string | undefined;
  /** The member who asked for it, where the owner is a team. */
  readonly member?: string | undefined;
  /** Id of the agent, which has a home of its own for each owner. */
  readonly agent: string;
  /** The working directory of the session. */
  readonly folder: string;
  /** Where the program runs; inside `folder`. */
  readonly startIn?: string;
  /** The script that the program runs, where that is Node. */
  readonly script?: string | undefined;
  /** A caller or a model named the program, and not the operator: people do not see its folder in the sandbox. */
  readonly isCallers: boolean;
  /** For a turn that denies what needs permission: the working directory can only be read. */
  readonly isReadOnly?: boolean;
}

/** Starts programs for owners of sessions, inside the sandbox where there is one. */
export interface AgentFence {
  /** Whether programs of this owner run in the sandbox: then each working directory has processes of its own. */
  isFenced(owner: string | undefined): boolean;
  /** Where programs in the sandbox find their home. Undefined: there is no sandbox. */
  readonly home?: string;
  start(options: ProcessOptions, work: FencedWork): Promise<RunningProcess>;
}

/** Where there is no sandbox. */
export const NO_FENCE: AgentFence = { isFenced: () => false, start: (options) => startProcess(options) };

export interface AgentFenceOptions {
  /** Undefined: nothing is fenced in. */
  readonly sandbox: Sandbox | undefined;
  readonly permissions: 'allow' | 'deny';
  readonly dataDirectory: string;
  readonly homeDirectory: string;
  /** What must not be seen besides the data directory. */
  readonly privatePaths: { readonly folders: readonly string[]; readonly files: readonly string[] };
  readonly settings: {
    readonly sandbox_read_paths: readonly string[];
    readonly sandbox_write_paths: readonly string[];
  };
  /** `device:inode` of a folder that was just checked against the allowed roots. Throws when it is not one of them. */
  identify(folder: string, owner: string | undefined): Promise<string>;
}

/**
 * Where agents keep their settings, logins and conversations, from the home directory. The operator's own are shown to agents
 * that work for the operator; everyone else starts with an empty home.
 */
const STATE_FOLDERS: Readonly<Record<string, readonly string[]>> = {
  auggie: ['.augment'],
  claude: ['.claude', '.claude.json'],
  codex: ['.codex'],
  copilot: ['.copilot'],
  gemini: ['.gemini'],
  goose: ['.config/goose', '.local/share/goose', '.local/state/goose'],
  hermes: ['.hermes'],
  kilo: ['.config/kilo', '.local/share/kilo', '.local/state/kilo', '.cache/kilo'],
  kimi: ['.kimi'],
  pi: ['.pi'],
  opencode: ['.config/opencode', '.local/share/opencode', '.local/state/opencode', '.cache/opencode'],
  qoder: ['.qoder'],
  qwen: ['.qwen'],
};

export function createAgentFence(options: AgentFenceOptions): AgentFence {
  const { sandbox, dataDirectory, homeDirectory, privatePaths, settings } = options;
  if (sandbox === undefined) return NO_FENCE;
  const programs = agentProgramsFolder(dataDirectory);
  const secrets = SECRETS.map((name) => join(homeDirectory, name));
  const home = isOrdinaryHome(homeDirectory) ? homeDirectory : '/home/trestle';

  /** What a working directory may contain and must not show, as it is on the disk now. */
  async function findHidden(): Promise<Fence['hidden']> {
    const folders = [dataDirectory, ...privatePaths.folders];
    const files = [...privatePaths.files];
    for (const path of secrets) {
      const found = await stat(path).catch(() => undefined);
      if (found?.isDirectory() === true) folders.push(path);
      else if (found !== undefined) files.push(path);
    }
    return { folders, files: files.filter((file) => existsSync(file)) };
  }

  async function fenceOf(command: string, work: FencedWork): Promise<Fence> {
    const { owner = '', member, agent, folder, startIn = folder } = work;
    const source = await makeAgentHome(agentHomes(dataDirectory), owner, agent);
    const isOwn = owner === '' || isOperators(owner);
    const state = isOwn && Object.hasOwn(STATE_FOLDERS, agent) ? (STATE_FOLDERS[agent] ?? []) : [];
    const started = work.script === undefined ? [command] : [command, work.script];
    const installed = work.isCallers && !isOwn ? [] : (await Promise.all(started.map(installationOf))).flat();
    const shelf = fileShelf(dataDirectory, owner, folder);
    await mkdir(shelf, { recursive: true, mode: 0o700 });
    return {
      folder,
      startIn,
      identity: await options.identify(folder, work.owner),
      isReadOnly: options.permissions === 'deny' || work.isReadOnly === true,
      home: { path: home, source },
      readable: [...settings.sandbox_read_paths, ...installed],
      writable: [...state.map((name) => join(homeDirectory, name)), ...(isOwn ? settings.sandbox_write_paths : [])],
      hidden: await findHidden(),
      installation: [programs, shelf],
      network: payerName({ owner, member }),
    };
  }

  return {
    isFenced: () => true,
    home,
    start: async (given, work) => sandbox.start(given, await fenceOf(given.command, work)),
  };
}

/** Credentials that people keep in their home, for a working directory that contains the home. */
const SECRETS = '.ssh .gnupg .aws .azure .config/gcloud .kube .docker .netrc .npmrc .pypirc .git-credentials'.split(
  ' ',
);

/** Some system users have a home that the system itself needs. */
function isOrdinaryHome(path: string): boolean {
  return path !== '/' && path !== '/tmp' && !/^\/(?:usr|bin|sbin|lib\w*|etc|dev|proc|sys)(?:\/|$)/.test(path);
}

/** The folder of all shelves. */
export function fileShelves(dataDirectory: string): string {
  return join(dataDirectory, 'prompt-files');
}

/**
 * A folder with the files of prompts for the sessions of an owner in one working directory. Programs in the sandbox can read
 * it: one process serves all of these sessions, and nothing can be mounted once it runs.
 */
export function fileShelf(dataDirectory: string, owner: string, folder: string): string {
  return join(fileShelves(dataDirectory), shortHash(`${owner}\0${folder}`));
}

function shortHash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 32);
}

/** The folder of all homes that agents have for owners. */
export function agentHomes(dataDirectory: string): string {
  return join(dataDirectory, 'agent-homes');
}

/** The home of an agent for an owner. Owners have names of any length with any characters. */
export async function makeAgentHome(homes: string, owner: string, agent: string): Promise<string> {
  const home = join(homes, shortHash(owner), agent);
  await mkdir(home, { recursive: true, mode: 0o700 });
  return home;
}

/**
 * The environment of a program that works for an owner. What works for the operator may use the operator's ssh agent and proxy
 * password. Without a sandbox people get a home of their own in `homes`, and nothing that leads to folders or sockets of the operator.
 */
export async function environmentFor(
  environment: Environment,
  { isFenced }: Pick<AgentFence, 'isFenced'>,
  { owner, agent }: Pick<FencedWork, 'owner' | 'agent'>,
  homes: string | undefined,
): Promise<Record<string, string>> {
  const env = childEnvironment(environment, {}, { isOperators: isOperators(owner) && !isFenced(owner) });
  if (homes === undefined || !isPersons(owner) || isFenced(owner)) return env;
  for (const name of Object.keys(env)) if (name.startsWith('XDG_')) delete env[name];
  return { ...env, HOME: await makeAgentHome(homes, owner, agent) };
}

const PACKAGES = '/node_modules/';

/** The folders that a program needs: its own, with all packages that it may import; of links, both ends. */
async function installationOf(command: string): Promise<readonly string[]> {
  if (!command.startsWith('/')) return [];
  const real = await realpath(command).catch(() => command);
  const at = real.indexOf(PACKAGES);
  // A link can be shown only where its target is there already.
  return [at < 0 ? dirname(real) : real.slice(0, at + PACKAGES.length - 1), real, command];
}

/** `device:inode` of a folder of our own, which nobody can replace. */
export async function identityOf(folder: string): Promise<string> {
  return identityKey(await stat(folder, { bigint: true }));
}

const bytes = (fallback: number, description: string) =>
  setting.integer({ default: fallback, minimum: 1_048_576, maximum: Number.MAX_SAFE_INTEGER, description });
const MIB = 1024 ** 2;

/** The part of `bridge.*` about the sandbox. */
export const sandboxSettings = {
  sandbox: setting.choice(['auto', 'require', 'off'], {
    default: 'auto',
    description:
      'Whether agents and commands run in a sandbox (bubblewrap, on Linux). `auto`: if it works on this machine. `require`: Trestle refuses to start without it. `trestle doctor` shows the active mode.',
  }),
  sandbox_program: setting.path({
    default: '',
    description: 'The bubblewrap program. Empty: `bwrap` in PATH.',
  }),
  sandbox_hosts: setting.list(
    setting.text({
      pattern: '^(\\*|(\\*\\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,252}))$',
      expects: 'a host name, *.example.com, or * for all',
    }),
    {
      default: ['*'],
      description:
        'Hosts that programs in the sandbox, and `fetch_url` of the built-in agent, may reach through a proxy of this program: names, `*.example.com`, or `*` for all. Only public addresses can be reached. Empty: no host.',
    },
  ),
  sandbox_read_paths: setting.list(setting.path({}), {
    description:
      'More files and folders that programs in the sandbox may read, such as tools outside `/usr`, or `~/.gitconfig`.',
  }),
  sandbox_write_paths: setting.list(setting.path({}), {
    description: 'More files and folders that programs in the sandbox may change when they work for the operator.',
  }),
};

/** The part of `bridge.limits.*` about the sandbox. */
export const sandboxLimitSettings = {
  sandbox_processes: setting.integer({
    default: 1024,
    minimum: 16,
    maximum: 1_000_000,
    description: 'Processes of one program in the sandbox, including those that it starts.',
  }),
  sandbox_memory_bytes: bytes(
    8192 * MIB,
    'Memory of one program in the sandbox: with control groups, of all its processes together; without them, of each process.',
  ),
  sandbox_cpu_percent: setting.integer({
    default: 0,
    minimum: 0,
    maximum: 100_000,
    description:
      'Processor time of one program in the sandbox and all its processes, in percent of one core; 150 is one and a half cores. Needs control groups. 0: no limit.',
  }),
  sandbox_temporary_bytes: bytes(
    1024 * MIB,
    'Maximum size of the private folder for temporary files, which is in memory.',
  ),
};
