import {
  type AgentPackage,
  agentPackages,
  installAgent,
  installedAgents,
  removeAgent,
} from '../bridge/agents/agent-packages.ts';
import type { AgentEntry } from '../bridge/contract/surface.ts';
import { childEnvironment, findExecutable } from '../platform/child-process/child-environment.ts';
import { startProcess } from '../platform/child-process/start-process.ts';
import { withinTime } from '../platform/clock/clock.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { prepareDataDirectory } from './data-directory.ts';
import { agentFinding, agentFindings } from './doctor/diagnose.ts';
import { type Finding, note } from './doctor/findings.ts';
import { dataDirectory } from './settings.ts';
import type { StoreAccessOptions } from './stores.ts';

/** One line of `trestle agents`. */
export interface AgentLine extends Finding {
  readonly id: string;
  /** The version that `trestle agents install` has installed; undefined when it was found in another way, or is missing. */
  readonly installed?: string;
  /** The version that this release installs; undefined for agents that are installed by hand. */
  readonly offered?: string;
}

/** The agents that are installed by `trestle agents`, and what else is known of agents. */
export interface AgentPrograms {
  /**
   * Every agent of the catalog with its state, then the agents that can be installed. `served` is what a running server
   * knows of its agents; without it, each agent is started to learn its state. Of a server that is not on this machine
   * (`isHere` is false) nothing can be installed here.
   */
  list(served?: readonly AgentEntry[], isHere?: boolean): Promise<readonly AgentLine[]>;
  /** The agents that are installed in another version than that of this release. Starts none of them. */
  outdated(): Promise<readonly string[]>;
  /** Installs the version of this release. `say` gets what npm prints. */
  install(id: string, say: (text: string) => void): Promise<string>;
  /** Returns whether the agent was installed. */
  remove(id: string): Promise<boolean>;
}

const INSTALL_MS = 15 * 60_000;
const AGENT = 'agent ';
const OFFERED_LATER = 'installed; the running server offers it after a restart';
const NPM_VARIABLES = /^npm_config_/i;

export async function openAgentPrograms(options: StoreAccessOptions): Promise<AgentPrograms> {
  const { settings, environment, homeDirectory, clock } = options;
  const files = await prepareDataDirectory(dataDirectory(settings, homeDirectory, environment.XDG_DATA_HOME));

  async function runNpm(args: readonly string[], folder: string, say: (text: string) => void): Promise<void> {
    const npm = await findExecutable('npm', environment.PATH ?? '');
    if (npm === undefined) throw new AppError('NPM_MISSING');
    const own = Object.entries(environment).flatMap(([name, value]) =>
      NPM_VARIABLES.test(name) && value !== undefined ? [[name, value] as const] : [],
    );
    const env = childEnvironment(environment, Object.fromEntries(own), { isOperators: true });
    const child = await startProcess({ command: npm, args, cwd: folder, env, journalFolder: files.processes });
    child.stdin.end();
    child.stdout.setEncoding('utf8').on('data', say);
    try {
      const { code, stderrTail } = await withinTime(clock, INSTALL_MS, child.exited, () => {
        throw new AppError('NPM_FAILED', { reason: `it took longer than ${INSTALL_MS / 60_000} minutes` });
      });
      if (code !== 0) throw new AppError('NPM_FAILED', { reason: stderrTail.trim() || `exit code ${code}` });
    } finally {
      await child.stop({ graceMs: 1000 });
    }
  }

  async function probeAgents(): Promise<readonly Finding[]> {
    const found = await agentFindings(settings, environment, homeDirectory, files, clock);
    return found.flatMap((finding) =>
      finding.name.startsWith(AGENT) ? [{ ...finding, name: finding.name.slice(AGENT.length) }] : [],
    );
  }

  return {
    async list(served, isHere = true) {
      const installed = await installedAgents(files.folder);
      const found =
        served?.map((agent) => agentFinding(agent.providerId, { ...agent, status: agent.state })) ??
        (await probeAgents());
      const known = found.map((finding) => ({ ...finding, id: finding.name }));
      if (!isHere) return known;
      const lines = known.map((line) => ({ ...line, ...versionsOf(line.id, installed) }));
      const others = agentPackages.filter(({ id }) => !lines.some((line) => line.id === id));
      return [
        ...lines,
        ...others.map(({ id }) => ({
          ...note(id, installed.has(id) ? OFFERED_LATER : `not installed: trestle agents install ${id}`),
          id,
          ...versionsOf(id, installed),
        })),
      ];
    },
    async outdated() {
      const installed = await installedAgents(files.folder);
      return agentPackages
        .filter(({ id, version }) => ![undefined, version].includes(installed.get(id)))
        .map(({ id }) => id);
    },
    async install(id, say) {
      const agent = packageOf(id);
      await installAgent(agent, {
        dataDirectory: files.folder,
        runNpm: (args, folder) => runNpm(args, folder, say),
      });
      return agent.version;
    },
    remove: (id) => removeAgent(packageOf(id), files.folder),
  };
}

function versionsOf(id: string, installed: ReadonlyMap<string, string>): Pick<AgentLine, 'installed' | 'offered'> {
  const version = installed.get(id);
  const offered = agentPackages.find((row) => row.id === id)?.version;
  return { ...(version !== undefined && { installed: version }), ...(offered !== undefined && { offered }) };
}

function packageOf(id: string): AgentPackage {
  const agent = agentPackages.find((row) => row.id === id);
  if (agent !== undefined) return agent;
  throw new AppError('AGENT_UNKNOWN', { agent: id, known: agentPackages.map((row) => row.id).join(', ') });
}
