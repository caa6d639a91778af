import { basename } from 'node:path';

/** An agent that speaks the Agent Client Protocol and needs nothing but its name in `agents.catalog`. */
export interface AgentPreset {
  readonly id: string;
  readonly label: string;
  readonly command: string;
  readonly args: readonly string[];
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
  { id: 'claude', label: 'Claude', command: 'claude-agent-acp', args: [] },
  { id: 'qwen', label: 'Qwen Code', command: 'qwen', args: ['--acp'] },
  { id: 'copilot', label: 'GitHub Copilot', command: 'copilot', args: ['--acp'] },
  { id: 'kilo', label: 'Kilo Code', command: 'kilo', args: ['acp'] },
  { id: 'hermes', label: 'Hermes', command: 'hermes', args: ['acp'] },
  { id: 'goose', label: 'Goose', command: 'goose', args: ['acp'] },
];
