import type { AgentCategory } from '../contract/capabilities.ts';
import type { AgentsSettings } from '../settings.ts';
import { agentPresets } from './agent-presets.ts';

/** How the bridge reaches an agent: inside this process, as a program of this machine, or at an address. */
export type AgentPlace =
  | { readonly kind: 'in-process' }
  | {
      readonly kind: 'program';
      readonly protocol: 'acp' | 'codex';
      readonly command: string;
      readonly args: readonly string[];
      readonly environment: Readonly<Record<string, string>>;
    }
  | { readonly kind: 'remote'; readonly url: string; readonly token: string };

/** One agent of the catalog, in routing order. */
export interface CatalogAgent {
  readonly id: string;
  readonly label: string;
  readonly category: AgentCategory;
  readonly place: AgentPlace;
}

/**
 * The catalog in the order of `agents.catalog`; custom agents that it does not name come after (contract/bridge 5).
 * Presets are there only when they are named.
 */
export function buildAgentCatalog(settings: AgentsSettings): readonly CatalogAgent[] {
  const known = new Map<string, CatalogAgent>();
  for (const agent of [...shippedAgents(settings), ...presetAgents(), ...customAgents(settings)]) {
    known.set(agent.id, agent);
  }
  const ids = new Set([...settings.catalog, ...settings.custom.map((custom) => custom.id)]);
  return [...ids].flatMap((id) => known.get(id) ?? []);
}

function shippedAgents({ codex, opencode, gemini }: AgentsSettings): readonly CatalogAgent[] {
  return [
    { id: 'builtin', label: 'Built-in', category: 'native', place: { kind: 'in-process' } },
    { id: 'codex', label: 'Codex', category: 'native', place: placeOf(codex, 'codex') },
    { id: 'opencode', label: 'OpenCode', category: 'protocol-adapter', place: placeOf(opencode, 'acp') },
    { id: 'gemini', label: 'Gemini', category: 'protocol-adapter', place: placeOf(gemini, 'acp') },
  ];
}

function presetAgents(): readonly CatalogAgent[] {
  return agentPresets.map(({ id, label, command, args }) => ({
    id,
    label,
    category: 'protocol-adapter',
    place: placeOf({ command, args, env: {} }, 'acp'),
  }));
}

/** What an entry leaves out comes from the preset of its id, if there is one. */
function customAgents({ custom }: AgentsSettings): readonly CatalogAgent[] {
  return custom.map(({ id, label, category, ...program }) => {
    const preset = agentPresets.find((row) => row.id === id);
    const ownCommand = program.command !== '' || preset === undefined;
    const command = ownCommand ? program.command : preset.command;
    const args = ownCommand || program.args.length > 0 ? program.args : preset.args;
    return {
      id,
      label: label === '' ? (preset?.label ?? id) : label,
      category,
      place: placeOf({ ...program, command, args }, 'acp'),
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

function placeOf({ command, args, env, url, token }: ConfiguredProgram, protocol: 'acp' | 'codex'): AgentPlace {
  if (url !== undefined && url !== '') return { kind: 'remote', url, token: token ?? '' };
  return { kind: 'program', protocol, command, args, environment: env };
}
