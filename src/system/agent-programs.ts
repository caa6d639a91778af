import {
  agentPackages,
  createAgentInstaller,
  type InstallableAgent,
  type InstalledProgram,
  installedAgents,
  removeAgent,
} from '../bridge/agents/agent-packages.ts';
import { createAgentRegistry } from '../bridge/agents/agent-registry.ts';
import type { AgentEntry } from '../bridge/contract/surface.ts';
import { dataFiles, lookIntoDataDirectory, prepareDataDirectory } from './data-directory.ts';
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
const REGISTRY = 'agents.registry';
const LAST_ONE = 'the agents of the last time that it could be read are listed';
const OFFERED_LATER = 'installed; the running server offers it after a restart';

export async function openAgentPrograms(options: StoreAccessOptions): Promise<AgentPrograms> {
  const { settings, environment, homeDirectory, clock } = options;
  const files = dataFiles(dataDirectory(settings, homeDirectory, environment.XDG_DATA_HOME));

  const registry = createAgentRegistry({ source: settings.agents.registry, dataDirectory: files.folder });
  const installer = createAgentInstaller({
    dataDirectory: files.folder,
    environment,
    journalFolder: files.processes,
    clock,
    registry,
  });

  async function probeAgents(): Promise<readonly Finding[]> {
    const find = () => agentFindings(settings, environment, homeDirectory, files, clock);
    const found = await lookIntoDataDirectory(files.folder, find);
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
      const { packages, problem } = await registry.read();
      const offered = [...agentPackages, ...packages];
      const lines = known.map((line) => ({ ...line, ...versionsOf(line.id, installed, offered) }));
      const others = offered.filter(({ id }) => !lines.some((line) => line.id === id));
      return [
        ...lines,
        ...others.map(({ id }) => ({
          ...note(id, installed.has(id) ? OFFERED_LATER : `not installed: trestle agents install ${id}`),
          id,
          ...versionsOf(id, installed, offered),
        })),
        ...(problem === undefined ? [] : [{ ...note(REGISTRY, `${problem}; ${LAST_ONE}`), id: REGISTRY }]),
      ];
    },
    async outdated() {
      const installed = await installedAgents(files.folder);
      const { packages } = await registry.read();
      return [...agentPackages, ...packages]
        .filter(({ id, version }) => ![undefined, version].includes(installed.get(id)?.version))
        .map(({ id }) => id);
    },
    async install(id, say) {
      await prepareDataDirectory(files.folder);
      return installer.install(id, { timeoutMs: INSTALL_MS, say });
    },
    remove: (id) => removeAgent(id, files.folder),
  };
}

function versionsOf(
  id: string,
  installed: ReadonlyMap<string, InstalledProgram>,
  offered: readonly InstallableAgent[],
): Pick<AgentLine, 'installed' | 'offered'> {
  const version = installed.get(id)?.version;
  const newest = offered.find((row) => row.id === id)?.version;
  return { ...(version !== undefined && { installed: version }), ...(newest !== undefined && { offered: newest }) };
}
