import { mkdir, readdir, readlink, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { AppError } from '../../platform/errors/app-error.ts';
import { exists } from '../../platform/files/make-folder.ts';

/** An agent as npm has it, in the version that was tried with this release. */
export interface AgentPackage {
  readonly id: string;
  readonly name: string;
  readonly version: string;
  /** The name under which the bridge starts it. */
  readonly command: string;
  /** The package that holds the program for this machine; undefined where one package serves all machines. */
  readonly platformPackage?: string;
  /** The program, from the folder of the installation. */
  readonly program: string;
}

const MACHINE = `${process.platform}-${process.arch}`;
const OPENCODE_PLATFORM = `opencode-${MACHINE.replace('win32', 'windows')}`;
/** The registry lacks the newest version for this machine. */
const OPENCODE_VERSION = MACHINE === 'linux-arm64' ? '1.18.18' : '1.18.33';

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
  {
    id: 'claude',
    name: '@agentclientprotocol/claude-agent-acp',
    version: '0.99.0',
    ...fromBin('claude-agent-acp'),
  },
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
];

/** Where `trestle agents install` keeps programs, in a data directory. */
export function agentProgramsFolder(dataDirectory: string): string {
  return join(dataDirectory, 'agent-programs');
}

/** The folder to look in for programs, before those of PATH. */
export function installedPrograms(dataDirectory: string): string {
  return join(agentProgramsFolder(dataDirectory), 'bin');
}

/** The installed agents with their versions, by id. */
export async function installedAgents(dataDirectory: string): Promise<ReadonlyMap<string, string>> {
  const bin = installedPrograms(dataDirectory);
  const commands: readonly string[] = await readdir(bin).catch(() => []);
  const found = new Map<string, string>();
  for (const agent of agentPackages) {
    if (!commands.includes(agent.command)) continue;
    const target = await readlink(join(bin, agent.command));
    const [, folder = ''] = target.split('/');
    found.set(agent.id, folder.slice(agent.id.length + 1));
  }
  return found;
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
export async function installAgent(agent: AgentPackage, { dataDirectory, runNpm }: InstallOptions): Promise<void> {
  const programs = agentProgramsFolder(dataDirectory);
  const folder = join(programs, `${agent.id}-${agent.version}`);
  const program = join(folder, agent.program);
  if (!(await exists(program))) {
    const fresh = `${folder}.new`;
    await rm(fresh, { recursive: true, force: true });
    await mkdir(fresh, { recursive: true, mode: 0o700 });
    await writeFile(join(fresh, 'package.json'), '{"private":true}\n');
    const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--save-exact', '--loglevel=error'];
    await runNpm(['install', ...quiet, `${agent.name}@${agent.version}`], fresh);
    if (!(await exists(join(fresh, agent.program)))) {
      await rm(fresh, { recursive: true, force: true });
      throw new AppError('AGENT_NOT_INSTALLABLE', { name: agent.name, version: agent.version, machine: MACHINE });
    }
    await rm(folder, { recursive: true, force: true });
    await rename(fresh, folder);
  }
  const before = await switchTo(agent, program, installedPrograms(dataDirectory));
  const kept = new Set([basename(folder), before]);
  for (const name of await readdir(programs)) {
    if (name.startsWith(`${agent.id}-`) && !kept.has(name)) await rm(join(programs, name), { recursive: true });
  }
}

/** Points the command to the program, and returns the folder that it pointed to before. */
async function switchTo({ command }: AgentPackage, program: string, bin: string): Promise<string | undefined> {
  await mkdir(bin, { recursive: true, mode: 0o700 });
  const link = join(bin, command);
  const before = await readlink(link).catch(() => undefined);
  const fresh = `${link}.new`;
  await rm(fresh, { force: true });
  await symlink(relative(dirname(link), program), fresh);
  await rename(fresh, link);
  return before?.split('/')[1];
}

/** Removes an installed agent. Returns whether there was one. */
export async function removeAgent({ id, command }: AgentPackage, dataDirectory: string): Promise<boolean> {
  const programs = agentProgramsFolder(dataDirectory);
  const names = (await readdir(programs).catch(() => [])).filter((name) => name.startsWith(`${id}-`));
  await rm(join(installedPrograms(dataDirectory), command), { force: true });
  for (const name of names) await rm(join(programs, name), { recursive: true });
  return names.length > 0;
}
