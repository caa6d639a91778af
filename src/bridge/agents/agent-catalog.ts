import type { AgentCategory } from '../contract/capabilities.ts';
import type { AgentsSettings } from '../settings.ts';

/** How the bridge reaches an agent: inside this process, as a program of this machine, or at an address. */
export type AgentPlace =
  | { readonly kind: 'in-process' }
  | { readonly kind: 'program'; readonly command: string; readonly environment: Readonly<Record<string, string>> }
  | { readonly kind: 'remote'; readonly url: string };

/** One agent of the catalog, in routing order. */
export interface CatalogAgent {
  readonly id: string;
  readonly label: string;
  readonly category: AgentCategory;
  readonly place: AgentPlace;
}

/** The catalog in the order of `agents.catalog`; custom agents that it does not name come after (contract/bridge 5). */
export function buildAgentCatalog(settings: AgentsSettings): readonly CatalogAgent[] {
  const known = new Map<string, CatalogAgent>();
  for (const agent of shippedAgents(settings)) known.set(agent.id, agent);
  for (const custom of settings.custom) {
    known.set(custom.id, {
      id: custom.id,
      label: custom.label === '' ? custom.id : custom.label,
      category: custom.category,
      place: programOrRemote(custom),
    });
  }
  const ids = new Set([...settings.catalog, ...settings.custom.map((custom) => custom.id)]);
  return [...ids].flatMap((id) => known.get(id) ?? []);
}

function shippedAgents(settings: AgentsSettings): readonly CatalogAgent[] {
  return [
    { id: 'builtin', label: 'Built-in', category: 'native', place: { kind: 'in-process' } },
    { id: 'codex', label: 'Codex', category: 'native', place: programOrRemote(settings.codex) },
    { id: 'opencode', label: 'OpenCode', category: 'protocol-adapter', place: programOrRemote(settings.opencode) },
    { id: 'gemini', label: 'Gemini', category: 'protocol-adapter', place: programOrRemote(settings.gemini) },
  ];
}

interface AgentProgram {
  readonly command: string;
  readonly env: Readonly<Record<string, string>>;
  readonly url?: string;
}

function programOrRemote(program: AgentProgram): AgentPlace {
  if (program.url !== undefined && program.url !== '') return { kind: 'remote', url: program.url };
  return { kind: 'program', command: program.command, environment: program.env };
}
