import { join } from 'node:path';
import { buildAgentCatalog } from '../bridge/agents/agent-catalog.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { dataDirectory, type Settings } from './settings.ts';

export interface AdapterPlace {
  readonly homeDirectory: string;
  readonly xdgDataHome: string | undefined;
}

/** What an adapter serves (contract/bridge 10); anything else is for the bridge that uses it. */
export const ADAPTER_METHODS: readonly string[] = [
  'acp.capabilities',
  'app.routing.resolve',
  'session.start',
  'session.message',
  'session.cancel',
  'session.close',
];

/** Beside the ports of the services, so that an adapter can run on the machine of its bridge. */
const DEFAULT_ADDRESSES: Readonly<Record<string, string>> = { opencode: '127.0.0.1:8788', gemini: '127.0.0.1:8789' };
const OTHER_ADDRESS = '127.0.0.1:8790';

/**
 * The settings of a bridge that offers one agent and nothing else: `trestle adapter NAME`. It has a data directory of its
 * own inside the configured one, runs the agent's program even where the settings name an address for it, and hands
 * nothing on to other bridges or to a gateway.
 */
export function adapterSettings(settings: Settings, name: string, place: AdapterPlace): Settings {
  const { agents, distributed, gateway, database } = settings;
  const { opencode, gemini } = agents;
  const own = {
    ...agents,
    catalog: [name],
    default: name,
    opencode: { ...opencode, url: '' },
    gemini: { ...gemini, url: '' },
    custom: agents.custom.filter(({ id }) => id === name).map((agent) => ({ ...agent, url: '' })),
  };
  const [agent] = buildAgentCatalog(own);
  if (agent?.category !== 'protocol-adapter' || agent.place.kind !== 'program' || agent.place.command === '') {
    throw new AppError('ADAPTER_UNKNOWN', { name, known: adaptable(settings).join(', ') });
  }
  return {
    ...settings,
    agents: own,
    listen: settings.listen === '' ? (DEFAULT_ADDRESSES[name] ?? OTHER_ADDRESS) : settings.listen,
    data_dir: join(dataDirectory(settings, place.homeDirectory, place.xdgDataHome), 'adapters', name),
    database: { ...database, url: '' },
    gateway: { ...gateway, url: '', tools_url: '' },
    distributed: {
      ...distributed,
      task_forward_peer_id: '',
      nodes: [],
      forwarding: { ...distributed.forwarding, default_action: 'execute_local', rules: [], routes: [] },
    },
  };
}

function adaptable({ agents }: Settings): readonly string[] {
  return buildAgentCatalog({ ...agents, catalog: ['opencode', 'gemini'] })
    .filter(({ category }) => category === 'protocol-adapter')
    .map(({ id }) => id);
}
