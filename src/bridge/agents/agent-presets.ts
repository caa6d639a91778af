/** An agent that speaks the Agent Client Protocol and needs nothing but its name in `agents.catalog`. */
export interface AgentPreset {
  readonly id: string;
  readonly label: string;
  readonly command: string;
  readonly args: readonly string[];
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
