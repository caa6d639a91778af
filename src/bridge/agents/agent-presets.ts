import { basename } from 'node:path';

/** An agent that speaks the Agent Client Protocol and needs nothing but its name in `agents.catalog`. */
export interface AgentPreset {
  readonly id: string;
  readonly label: string;
  readonly command: string;
  readonly args: readonly string[];
  /** The npm package; absent for agents that are installed in another way. */
  readonly npmPackage?: string;
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
  {
    id: 'claude',
    label: 'Claude',
    command: 'claude-agent-acp',
    args: [],
    npmPackage: '@agentclientprotocol/claude-agent-acp',
  },
  { id: 'qwen', label: 'Qwen Code', command: 'qwen', args: ['--acp'], npmPackage: '@qwen-code/qwen-code' },
  { id: 'copilot', label: 'GitHub Copilot', command: 'copilot', args: ['--acp'], npmPackage: '@github/copilot' },
  { id: 'kilo', label: 'Kilo Code', command: 'kilo', args: ['acp'], npmPackage: '@kilocode/cli' },
  { id: 'hermes', label: 'Hermes', command: 'hermes', args: ['acp'] },
  { id: 'goose', label: 'Goose', command: 'goose', args: ['acp'] },
];

const SHIPPED_PACKAGES: Readonly<Record<string, string>> = {
  codex: '@openai/codex',
  opencode: 'opencode-ai',
  gemini: '@google/gemini-cli',
};

/** How to install an agent whose program is not there. */
export function installCommand(id: string, command: string): string {
  const shipped = Object.hasOwn(SHIPPED_PACKAGES, id) ? SHIPPED_PACKAGES[id] : undefined;
  const name = shipped ?? agentPresets.find((preset) => preset.id === id)?.npmPackage;
  if (name !== undefined && !command.includes('/')) return `npm install -g ${name}`;
  return `install "${command}", or correct the command of the agent in the settings`;
}
