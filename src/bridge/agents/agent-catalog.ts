import { basename } from 'node:path';
import type { AgentCategory } from '../contract/surface.ts';
import type { AgentsSettings } from '../settings.ts';
import { agentPackages, type InstalledProgram, registryCommand } from './agent-packages.ts';

/** An agent that speaks the Agent Client Protocol and needs nothing but its name in `agents.catalog`. */
interface AgentPreset {
  readonly id: string;
  readonly label: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/**
 * What makes an agent read-only by its environment, besides its modes: OpenCode merges this over all of its settings.
 * The last rule that matches counts there, so that everything is denied but what only reads.
 */
const READ_ONLY_ENVIRONMENTS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  opencode: {
    OPENCODE_PERMISSION: JSON.stringify({
      '*': 'deny',
      edit: 'deny',
      bash: 'deny',
      task: 'deny',
      external_directory: 'deny',
      read: { '*': 'allow', '*.env': 'deny', '*.env.*': 'deny', '*.env.example': 'allow' },
      ...Object.fromEntries(
        ['glob', 'grep', 'list', 'lsp', 'skill', 'todoread', 'todowrite', 'webfetch'].map((tool) => [tool, 'allow']),
      ),
    }),
  },
};

/** The variables that keep an agent from writing, by the name of its program; none for agents that know no such thing. */
export function readOnlyEnvironment(command: string): Readonly<Record<string, string>> {
  const name = basename(command);
  return Object.hasOwn(READ_ONLY_ENVIRONMENTS, name) ? (READ_ONLY_ENVIRONMENTS[name] ?? {}) : {};
}

/** Agents of which it is known that they can be kept from writing, by whatever means. */
const READ_ONLY_AGENTS: ReadonlySet<string> = new Set([
  'builtin',
  'codex',
  'opencode',
  'gemini',
  'claude',
  'qwen',
  'copilot',
  'kilo',
]);

export function hasReadOnlyMode(agentId: string): boolean {
  return READ_ONLY_AGENTS.has(agentId);
}

/** Agents that are not offered unless asked for. An entry of the same id under `agents.custom` may change any of it. */
export const agentPresets: readonly AgentPreset[] = [
  { id: 'claude', label: 'Claude', command: 'claude-agent-acp', args: [] },
  {
    id: 'qwen',
    label: 'Qwen Code',
    command: 'qwen',
    args: ['--acp'],
    // A session opens when its MCP servers are known. Otherwise the first prompt does not wait for them, and has no tools of theirs.
    env: { QWEN_CODE_LEGACY_MCP_BLOCKING: '1' },
  },
  { id: 'kimi', label: 'Kimi Code', command: 'kimi', args: ['acp'] },
  { id: 'copilot', label: 'GitHub Copilot', command: 'copilot', args: ['--acp'] },
  { id: 'kilo', label: 'Kilo Code', command: 'kilo', args: ['acp'] },
  {
    id: 'auggie',
    label: 'Auggie',
    command: 'auggie',
    args: ['--acp'],
    env: { AUGMENT_DISABLE_AUTO_UPDATE: '1' },
  },
  { id: 'cline', label: 'Cline', command: 'cline', args: ['--acp'] },
  {
    id: 'droid',
    label: 'Factory Droid',
    command: 'droid',
    args: ['exec', '--output-format', 'acp'],
    env: { DROID_DISABLE_AUTO_UPDATE: 'true', FACTORY_DROID_AUTO_UPDATE_ENABLED: 'false' },
  },
  { id: 'qoder', label: 'Qoder CLI', command: 'qodercli', args: ['--acp'] },
  { id: 'pi', label: 'Pi', command: 'pi-acp', args: [], env: { PI_SKIP_VERSION_CHECK: '1', PI_TELEMETRY: '0' } },
  { id: 'amp', label: 'Amp', command: 'amp-acp', args: [] },
  { id: 'hermes', label: 'Hermes', command: 'hermes', args: ['acp'] },
  { id: 'goose', label: 'Goose', command: 'goose', args: ['acp'] },
];

/** How to install an agent whose program was not found. */
export function installCommand(id: string, command: string): string {
  const isOurs = agentPackages.some((row) => row.id === id && row.command === command);
  if (isOurs || command === registryCommand(id)) return `trestle agents install ${id}`;
  return `install "${command}", or correct the command of the agent in the settings`;
}

/** How the bridge reaches an agent: inside this process, as a program of this machine, at an address, or on runners. */
export type AgentPlace =
  | { readonly kind: 'in-process' }
  | {
      readonly kind: 'program';
      readonly protocol: 'acp' | 'codex';
      readonly command: string;
      readonly args: readonly string[];
      readonly environment: Readonly<Record<string, string>>;
      /** The preset that the program is; undefined for another one. */
      readonly preset?: string | undefined;
    }
  | { readonly kind: 'remote'; readonly url: string; readonly token: string }
  | {
      readonly kind: 'runner';
      /** The id of the agent on the runner. */
      readonly agent: string;
      /** Labels that the runner must have. */
      readonly requires: readonly string[];
    };

/** One agent of the catalog, in routing order. */
export interface CatalogAgent {
  readonly id: string;
  readonly label: string;
  readonly category: AgentCategory;
  readonly place: AgentPlace;
}

/**
 * The catalog in the order of `agents.catalog`; custom agents that it does not name come after, then
 * the agents that `trestle agents install` has installed. Other presets are there only when they are named.
 */
export function buildAgentCatalog(
  settings: AgentsSettings,
  installed: ReadonlyMap<string, InstalledProgram> = new Map(),
): readonly CatalogAgent[] {
  const known = new Map<string, CatalogAgent>();
  const others = [...registryAgents(installed), ...customAgents(settings)];
  for (const agent of [...shippedAgents(settings), ...presetAgents(), ...others]) known.set(agent.id, agent);
  const ids = new Set([...settings.catalog, ...settings.custom.map((custom) => custom.id), ...installed.keys()]);
  return [...ids].flatMap((id) => known.get(id) ?? []);
}

function shippedAgents({ codex, opencode, gemini }: AgentsSettings): readonly CatalogAgent[] {
  return [
    { id: 'builtin', label: 'Built-in', category: 'native', place: { kind: 'in-process' } },
    {
      id: 'codex',
      label: 'Codex',
      category: 'native',
      place: placeOf(codex, 'codex', presetOf('codex', codex.command)),
    },
    {
      id: 'opencode',
      label: 'OpenCode',
      category: 'protocol-adapter',
      place: placeOf(opencode, 'acp', presetOf('opencode', opencode.command)),
    },
    {
      id: 'gemini',
      label: 'Gemini',
      category: 'protocol-adapter',
      place: placeOf(gemini, 'acp', presetOf('gemini', gemini.command)),
    },
  ];
}

function presetAgents(): readonly CatalogAgent[] {
  return agentPresets.map(({ id, label, command, args, env = {} }) => ({
    id,
    label,
    category: 'protocol-adapter',
    place: placeOf({ command, args, env }, 'acp', id),
  }));
}

function registryAgents(installed: ReadonlyMap<string, InstalledProgram>): readonly CatalogAgent[] {
  return [...installed].flatMap(([id, { preset }]) => {
    if (preset === undefined || isShippedAgent(id)) return [];
    const { label, args, env } = preset;
    const place = placeOf({ command: registryCommand(id), args, env }, 'acp', undefined);
    return [{ id, label, category: 'protocol-adapter', place }];
  });
}

/** Whether this release knows an agent of this id: a registry cannot replace it. */
export function isShippedAgent(id: string): boolean {
  return ['builtin', 'codex', 'opencode', 'gemini'].includes(id) || agentPresets.some((row) => row.id === id);
}

/** What an entry leaves out comes from the preset of its id, if there is one. */
function customAgents({ custom }: AgentsSettings): readonly CatalogAgent[] {
  return custom.map(({ id, label, category, runner_agent: agent, requires, ...program }) => {
    const preset = agentPresets.find((row) => row.id === id);
    const ownCommand = program.command !== '' || preset === undefined;
    const command = ownCommand ? program.command : preset.command;
    const isPreset = preset !== undefined && basename(command) === preset.command;
    const args = ownCommand || program.args.length > 0 ? program.args : preset.args;
    const env = isPreset ? { ...preset.env, ...program.env } : program.env;
    return {
      id,
      label: label === '' ? (preset?.label ?? id) : label,
      category,
      place:
        agent === ''
          ? placeOf({ ...program, command, args, env }, 'acp', isPreset ? id : undefined)
          : { kind: 'runner', agent, requires },
    };
  });
}

interface ConfiguredProgram {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly url?: string;
  readonly token?: string;
}

function placeOf(
  { command, args, env, url, token }: ConfiguredProgram,
  protocol: 'acp' | 'codex',
  preset: string | undefined,
): AgentPlace {
  if (url !== undefined && url !== '') return { kind: 'remote', url, token: token ?? '' };
  return { kind: 'program', protocol, command, args, environment: env, ...(preset !== undefined && { preset }) };
}

/** A path to the program of an agent is still that agent; a program of another name may be anything. */
function presetOf(id: string, command: string): string | undefined {
  return basename(command) === id ? id : undefined;
}
