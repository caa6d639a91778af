import { link, mkdir, readdir, readFile, readlink, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { type Static, Type } from 'typebox';
import { Check } from 'typebox/value';
import { childEnvironment, findExecutable } from '../../platform/child-process/child-environment.ts';
import { readProcess } from '../../platform/child-process/process-table.ts';
import { startProcess } from '../../platform/child-process/start-process.ts';
import { type Clock, deadline, onAbort } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { exists } from '../../platform/files/make-folder.ts';
import type { Environment } from '../../platform/runtime/runtime.ts';

/** An agent as npm has it: in the version that was tried with this release, or that a registry names. */
export interface InstallableAgent {
  readonly id: string;
  readonly name: string;
  readonly version: string;
  /** The name under which the bridge starts it. */
  readonly command: string;
  /** The package that holds the program for this machine; undefined where one package serves all machines. */
  readonly platformPackage?: string;
  /** The package of the agent itself, where the program is an adapter that starts the agent by its name. */
  readonly adapts?: string;
  /** The program, from the folder of the installation. Undefined: the one that the package itself names. */
  readonly program: string | undefined;
  /** How an agent of a registry is run. Undefined: this release knows the agent. */
  readonly preset?: RegistryPreset;
}

/** What is kept with the installation of an agent of a registry: it works on, whatever becomes of the registry. */
export const registryPreset = Type.Object({
  label: Type.String({ minLength: 1, maxLength: 100 }),
  args: Type.Array(Type.String({ maxLength: 1000, pattern: '^[^\\u0000]*$' }), { maxItems: 32 }),
  env: Type.Record(Type.String({ pattern: '^[A-Za-z_][A-Za-z0-9_]{0,99}$' }), Type.String({ maxLength: 1000 }), {
    maxProperties: 32,
    additionalProperties: false,
  }),
});
export type RegistryPreset = Static<typeof registryPreset>;

/** An agent of the table of this release. */
export type AgentPackage = InstallableAgent & { readonly program: string };

const REGISTRY = 'registry-';
const PRESET_FILE = 'trestle-agent.json';

/** The name under which an agent of a registry is started. It begins with a word of ours, so that none takes the place of another program. */
export function registryCommand(id: string): string {
  return `${REGISTRY}${id}`;
}

export function registryPackage(given: {
  readonly id: string;
  readonly name: string;
  readonly version: string;
  readonly cmd?: string;
  readonly preset: RegistryPreset;
}): InstallableAgent {
  const { id, name, version, cmd, preset } = given;
  const program = cmd === undefined ? undefined : fromBin(cmd).program;
  return { id, name, version, preset, command: registryCommand(id), program };
}

/** What the names of all installations of an agent begin with. */
function folderPrefix({ id, preset }: Pick<InstallableAgent, 'id' | 'preset'>): string {
  // The ids of registries have dashes in them, and no other sign.
  return preset === undefined ? `${id}-` : `${REGISTRY}${id}@`;
}

const MACHINE = `${process.platform}-${process.arch}`;
const OPENCODE_PLATFORM = `opencode-${MACHINE.replace('win32', 'windows')}`;
/** The registry lacks the newest version for this machine. */
const OPENCODE_VERSION = MACHINE === 'linux-arm64' ? '1.18.18' : '1.18.33';

const PI = '@earendil-works/pi-coding-agent@0.87.1';

const fromBin = (command: string) => ({ command, program: join('node_modules', '.bin', command) });

/** The agents that `trestle agents install` knows. None of them needs its install scripts. */
export const agentPackages: readonly AgentPackage[] = [
  {
    id: 'codex',
    name: '@openai/codex',
    version: '0.166.0',
    platformPackage: `@openai/codex-${MACHINE}`,
    ...fromBin('codex'),
  },
  {
    id: 'opencode',
    name: 'opencode-ai',
    version: OPENCODE_VERSION,
    platformPackage: OPENCODE_PLATFORM,
    command: 'opencode',
    // The package's own entry works only after its install script, which has nothing to do but to find this file.
    program: join('node_modules', OPENCODE_PLATFORM, 'bin', 'opencode'),
  },
  { id: 'gemini', name: '@google/gemini-cli', version: '0.61.0', ...fromBin('gemini') },
  { id: 'claude', name: '@agentclientprotocol/claude-agent-acp', version: '0.99.0', ...fromBin('claude-agent-acp') },
  { id: 'qwen', name: '@qwen-code/qwen-code', version: '0.24.4', ...fromBin('qwen') },
  { id: 'kimi', name: '@moonshot-ai/kimi-code', version: '2.1.0', ...fromBin('kimi') },
  { id: 'copilot', name: '@github/copilot', version: '1.0.102', ...fromBin('copilot') },
  { id: 'kilo', name: '@kilocode/cli', version: '7.7.7', ...fromBin('kilo') },
  { id: 'auggie', name: '@augmentcode/auggie', version: '0.36.0', ...fromBin('auggie') },
  { id: 'cline', name: 'cline', version: '3.0.65', ...fromBin('cline') },
  {
    id: 'droid',
    name: 'droid',
    version: '0.215.0',
    platformPackage: `@factory/cli-${MACHINE}`,
    ...fromBin('droid'),
  },
  { id: 'qoder', name: '@qoder-ai/qodercli', version: '1.1.52', ...fromBin('qodercli') },
  { id: 'pi', name: 'pi-acp', version: '0.0.34', adapts: PI, ...fromBin('pi-acp') },
];

/** Where `trestle agents install` keeps programs, in a data directory. */
export function agentProgramsFolder(dataDirectory: string): string {
  return join(dataDirectory, 'agent-programs');
}

/** The folder to look in for programs, before those of PATH. */
export function installedPrograms(dataDirectory: string): string {
  return join(agentProgramsFolder(dataDirectory), 'bin');
}

/** An agent that was installed with `trestle agents install`. */
export interface InstalledProgram {
  readonly version: string;
  readonly preset?: RegistryPreset;
}

/** The installed agents, by id. */
export async function installedAgents(dataDirectory: string): Promise<ReadonlyMap<string, InstalledProgram>> {
  const bin = installedPrograms(dataDirectory);
  const commands: readonly string[] = await readdir(bin).catch(() => []);
  const found = new Map<string, InstalledProgram>();
  const folderOf = async (command: string) => (await readlink(join(bin, command))).split('/')[1] ?? '';
  for (const agent of agentPackages) {
    if (!commands.includes(agent.command)) continue;
    found.set(agent.id, { version: (await folderOf(agent.command)).slice(folderPrefix(agent).length) });
  }
  for (const command of commands.filter((name) => name.startsWith(REGISTRY) && !name.endsWith('.new'))) {
    const folder = await folderOf(command);
    const preset = await readPreset(join(agentProgramsFolder(dataDirectory), folder));
    const [, version = ''] = folder.split('@');
    if (preset !== undefined) found.set(command.slice(REGISTRY.length), { version, preset });
  }
  return found;
}

async function readPreset(folder: string): Promise<RegistryPreset | undefined> {
  try {
    const preset: unknown = JSON.parse(await readFile(join(folder, PRESET_FILE), 'utf8'));
    return Check(registryPreset, preset) ? preset : undefined;
  } catch {
    return undefined;
  }
}

export interface InstallOptions {
  readonly dataDirectory: string;
  /** Runs npm with these arguments in a folder. Throws when npm fails. */
  runNpm(args: readonly string[], folder: string): Promise<void>;
}

/**
 * Installs an agent beside the installed version, without install scripts, and switches to it when it is complete. The
 * version before stays until the next one, because running agents may still read its files.
 */
export async function installAgent(agent: InstallableAgent, { dataDirectory, runNpm }: InstallOptions): Promise<void> {
  const programs = agentProgramsFolder(dataDirectory);
  const folder = join(programs, `${folderPrefix(agent)}${agent.version}`);
  if ((await findProgram(agent, folder)) === undefined) {
    const fresh = `${folder}.new`;
    await rm(fresh, { recursive: true, force: true });
    await mkdir(fresh, { recursive: true, mode: 0o700 });
    await writeFile(join(fresh, 'package.json'), '{"private":true}\n');
    const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--save-exact', '--loglevel=error'];
    await runNpm(['install', ...quiet, ...packagesOf(agent)], fresh);
    if (agent.preset !== undefined) await writeFile(join(fresh, PRESET_FILE), JSON.stringify(agent.preset));
    if ((await findProgram(agent, fresh)) === undefined) {
      await rm(fresh, { recursive: true, force: true });
      throw new AppError('AGENT_NOT_INSTALLABLE', { name: agent.name, version: agent.version, machine: MACHINE });
    }
    await rm(folder, { recursive: true, force: true });
    await rename(fresh, folder);
  }
  const program = (await findProgram(agent, folder)) ?? '';
  const before = await switchTo(agent, program, installedPrograms(dataDirectory));
  const kept = new Set([basename(folder), before]);
  for (const name of await readdir(programs)) {
    if (name.startsWith(folderPrefix(agent)) && !kept.has(name)) await rm(join(programs, name), { recursive: true });
  }
}

/** What npm installs for an agent. */
export const packagesOf = ({ name, version, adapts }: InstallableAgent): readonly string[] =>
  adapts === undefined ? [`${name}@${version}`] : [`${name}@${version}`, adapts];

/** The path of the program of an installation; undefined where it is not there. */
async function findProgram({ name, program }: InstallableAgent, folder: string): Promise<string | undefined> {
  const inside = program ?? (await programOf(name, folder));
  const path = inside === undefined ? undefined : join(folder, inside);
  return path !== undefined && (await exists(path)) ? path : undefined;
}

/** What `npx` would run: the only program of a package, or the one that is called as the package. */
async function programOf(name: string, folder: string): Promise<string | undefined> {
  const file = join(folder, 'node_modules', name, 'package.json');
  const text = await readFile(file, 'utf8').catch(() => '{}');
  const { bin } = JSON.parse(text) as { readonly bin?: unknown };
  const own = basename(name);
  if (typeof bin === 'string') return fromBin(own).program;
  if (typeof bin !== 'object' || bin === null) return undefined;
  const names = Object.keys(bin).map((each) => basename(each));
  const [found] = names.length === 1 ? names : names.filter((each) => each === own);
  return found === undefined ? undefined : fromBin(found).program;
}

/** Points the command to the program, and returns the folder that it pointed to before. */
async function switchTo({ command }: InstallableAgent, program: string, bin: string): Promise<string | undefined> {
  await mkdir(bin, { recursive: true, mode: 0o700 });
  const link = join(bin, command);
  const before = await readlink(link).catch(() => undefined);
  const fresh = `${link}.new`;
  await rm(fresh, { force: true });
  await symlink(relative(dirname(link), program), fresh);
  await rename(fresh, link);
  return before?.split('/')[1];
}

/** Removes an installed agent. Returns whether there was one. Throws AGENT_UNKNOWN. */
export async function removeAgent(id: string, dataDirectory: string): Promise<boolean> {
  const programs = agentProgramsFolder(dataDirectory);
  const preset = (await installedAgents(dataDirectory)).get(id)?.preset;
  const agent = preset === undefined ? packageOf(id) : { id, preset, command: registryCommand(id) };
  const names = (await readdir(programs).catch(() => [])).filter((name) => name.startsWith(folderPrefix(agent)));
  await rm(join(installedPrograms(dataDirectory), agent.command), { force: true });
  for (const name of names) await rm(join(programs, name), { recursive: true });
  return names.length > 0;
}

/** Installs agents in the data directory: the only way, for `trestle agents install` and for the route. */
export interface AgentInstaller {
  /**
   * Installs the version of this release, or of the registry, and returns it. `say` gets what npm prints. Throws AGENT_UNKNOWN, and
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
  /** Offers more agents than those of the table. */
  readonly registry?: {
    read(signal?: AbortSignal): Promise<{ readonly packages: readonly InstallableAgent[]; readonly problem?: string }>;
  };
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

  async function findPackage(id: string, signal: AbortSignal | undefined): Promise<InstallableAgent> {
    if (options.registry === undefined || agentPackages.some((row) => row.id === id)) return packageOf(id);
    const { packages, problem } = await options.registry.read(signal);
    const agent = packages.find((row) => row.id === id);
    if (agent === undefined && problem !== undefined) throw new AppError('AGENT_REGISTRY_FAILED', { reason: problem });
    return agent ?? packageOf(id, packages);
  }

  return {
    async install(id, call) {
      const agent = await findPackage(id, call.signal);
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
export function packageOf(id: string, others: readonly InstallableAgent[] = []): AgentPackage {
  const agent = agentPackages.find((row) => row.id === id);
  if (agent !== undefined) return agent;
  throw new AppError('AGENT_UNKNOWN', {
    agent: id.slice(0, 100),
    known: [...agentPackages, ...others].map((row) => row.id).join(', '),
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
