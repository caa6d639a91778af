import { join } from 'node:path';
import { type AgentPackage, agentPackages as everyPackage } from '../../src/bridge/agents/agent-packages.ts';

export type { AgentPackage };

const TESTED = ['codex', 'opencode', 'gemini', 'claude', 'qwen', 'kimi', 'pi'];

/** The agents that the tests run against, in the versions that `trestle agents install` installs. */
export const agentPackages: readonly AgentPackage[] = everyPackage.filter(({ id }) => TESTED.includes(id));

/** Where an agent is installed for tests. */
export function agentFolder(root: string, { id, version }: AgentPackage): string {
  return join(root, `${id}-${version}`);
}
