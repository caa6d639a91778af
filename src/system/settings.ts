import { join } from 'node:path';
import type { Static } from 'typebox';
import {
  type AccountsSettings,
  accountsSettings,
  checkAccountsSettings,
  FREE_PLAN,
  type LeftOpen,
  plansSettings,
} from '../accounts/settings.ts';
import { buildAgentCatalog } from '../bridge/agents/agent-catalog.ts';
import { checkBridgeSettings } from '../bridge/check-bridge-settings.ts';
import { refusalOfEndpoint } from '../bridge/forwarding/endpoints.ts';
import { agentsSettings, bridgeSettings, distributedSettings, gatewaySettings } from '../bridge/settings.ts';
import { jobsSettings } from '../bridge/work-settings.ts';
import { checkCompletionsSettings, completionsSettings } from '../completions/settings.ts';
import { type Complaint, nearestName } from '../platform/config/problem.ts';
import { setting } from '../platform/config/setting.ts';
import type { SettingsDeclaration } from '../platform/config/setting-declaration.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { isLoopbackBind } from '../platform/http/listen-address.ts';
import { isLoopbackHost } from '../platform/network-address/classify-address.ts';
import { type ListenAddress, parseListenAddress } from '../platform/network-address/ip-address.ts';

const kept = (fallback: string, what: string) =>
  setting.duration({
    default: fallback,
    minimum: '0s',
    maximum: '36500d',
    description: `How long ${what} are kept. 0s: forever.`,
  });

/** The whole of `trestle.yaml`. */
const settingsSchema = setting.group('Settings that all services share.', {
  listen: setting.listenAddress({
    default: '',
    flag: '--listen',
    description:
      'Address and port. Empty: `127.0.0.1:8787`; `serve completions` and `serve accounts` alone take ports 4000 and 8080.',
  }),
  data_dir: setting.path({
    default: '',
    flag: '--data-dir',
    description: 'Folder for all data. Empty: `trestle` in `$XDG_DATA_HOME`, which is `~/.local/share` by default.',
  }),
  allowed_hosts: setting.list(setting.hostName({}), {
    description: 'Host names, besides loopback ones, that requests may name while no token is configured.',
  }),
  trusted_proxies: setting.list(setting.cidr({}), {
    description: 'Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` count.',
  }),
  insecure: setting.flag({
    default: false,
    flag: '--insecure',
    description: 'Start on an address that others can reach although no token is configured.',
  }),
  metrics_token: setting.token({
    default: '',
    reload: true,
    description: 'Bearer token for `/metrics`. Empty: only callers on this machine may read them.',
  }),
  secret_key: setting.keyBytes({
    default: '',
    bytes: 32,
    description:
      'Key that encrypts stored secrets; several instances share it. Empty: created at the first start and kept in the data directory.',
  }),
  listener: setting.group('Limits of the listener, for all services.', {
    connections_per_address: setting.integer({
      default: 20_000,
      minimum: 1,
      maximum: 1_000_000,
      description: 'Open connections from one address, to any service.',
    }),
  }),
  database: setting.group('Where data is stored.', {
    url: setting.url({
      schemes: ['postgres', 'postgresql'],
      credentials: true,
      default: '',
      flag: '--database',
      description: 'PostgreSQL database. Empty: SQLite files in the data directory.',
    }),
    listen_url: setting.url({
      schemes: ['postgres', 'postgresql'],
      credentials: true,
      default: '',
      description:
        'Address of PostgreSQL itself, if `database.url` leads to a pooler in transaction mode such as PgBouncer. Used for messages between instances and for migrations. Empty: `database.url`.',
    }),
    connections: setting.integer({
      default: 10,
      minimum: 4,
      maximum: 1000,
      description:
        'Connections of this process to PostgreSQL, for all services and limits together; one more listens for messages between instances. Each worker has its own.',
    }),
  }),
  cluster: setting.group('Several instances on one PostgreSQL database.', {
    address: setting.url({
      schemes: ['http', 'https'],
      default: '',
      description:
        'Address at which other instances reach this one: loopback, private or link-local, or a host name that leads to such an address. Empty: the address that it listens on, or the first private address of this machine if it listens on all.',
    }),
    notice: setting.duration({
      default: '5s',
      minimum: '0s',
      maximum: '10m',
      reload: true,
      description:
        'How long a stopping instance continues to serve everything while `/readyz` returns 503, so that load balancers notice before calls are refused. Without PostgreSQL there is no notice.',
    }),
    outage: setting.duration({
      default: '60s',
      minimum: '0s',
      maximum: '1h',
      reload: true,
      description:
        'How long the database may be unavailable before `/readyz` returns 503. Until then it returns 200 with `store: away`, so that a load balancer does not remove all instances. After this time, and never before nine seconds, agents are stopped and their turns end as interrupted. Without PostgreSQL, `/readyz` returns 503 immediately, and agents continue.',
    }),
    limits_without_database: setting.choice(['refuse', 'pass'], {
      default: 'refuse',
      description:
        'What happens to calls with limits or budgets while the database, which counts them for all instances, is unavailable and this instance has used up its reservation: `refuse` returns HTTP 503, `pass` lets them through uncounted. Calls without limits always pass.',
    }),
    drain: setting.duration({
      default: '20s',
      minimum: '0s',
      maximum: '1h',
      reload: true,
      description:
        'How long the turns of a stopping instance may continue after the notice; then they end as interrupted. Without PostgreSQL it is 25 seconds.',
    }),
  }),
  log: setting.group('What is logged to standard error.', {
    level: setting.choice(['debug', 'info', 'warn', 'error', 'silent'], {
      default: 'info',
      flag: '--log-level',
      description:
        'Lines of this level and above are logged. A request is `info`; `/healthz`, `/readyz` and `/metrics` are `debug` unless they fail.',
    }),
    format: setting.choice(['auto', 'json', 'text'], {
      default: 'auto',
      description: 'Format of log lines; `auto` is text on a terminal and JSON elsewhere.',
    }),
  }),
  retention: setting.group('How long records are kept.', {
    events: kept(
      '30d',
      'updates of agent sessions, and unused sessions with everything that belongs to them (conversation, private folder, artifacts),',
    ),
    jobs: kept('90d', 'finished jobs'),
    usage: kept('400d', 'usage records'),
    content: kept('400d', 'requests and responses that are stored with usage records (never longer than the records)'),
    audit: kept('400d', 'audit records'),
  }),
  console: setting.group('The pages in the browser, under `/console`.', {
    enabled: setting.flag({ default: true, description: 'Serve the console.' }),
  }),
  telemetry: setting.group('Where traces go.', {
    otlp_endpoint: setting.url({
      schemes: ['http', 'https'],
      default: '',
      env: 'OTEL_EXPORTER_OTLP_ENDPOINT',
      description:
        'OpenTelemetry collector (OTLP over HTTP) that receives a span for each turn, tool call and model call. Empty: no spans.',
    }),
  }),
  bridge: bridgeSettings,
  agents: agentsSettings,
  jobs: jobsSettings,
  gateway: gatewaySettings,
  distributed: distributedSettings,
  completions: completionsSettings,
  accounts: accountsSettings,
  plans: plansSettings,
});

export type Settings = Static<typeof settingsSchema>;

export const settingsDeclaration: SettingsDeclaration<Settings> = {
  schema: settingsSchema,
  environmentPrefix: 'TRESTLE_',
  fileVariable: 'TRESTLE_CONFIG',
  fileName: 'trestle.yaml',
  otherVariables: [
    'TRESTLE_BUILD_COMMIT',
    'TRESTLE_BUILD_DATE',
    'TRESTLE_BUILD_IMAGE',
    'TRESTLE_BUILD_TAG',
    // Read by development scripts, not by the program.
    'TRESTLE_AGENTS_FOLDER',
    // The server that commands talk to; see `trestle login --help`.
    'TRESTLE_URL',
    'TRESTLE_JOINED_PACKAGES',
  ],
  check: (settings) => [
    ...checkBridgeSettings(settings),
    ...checkCompletionsSettings(settings.completions),
    ...checkAccountsSettings(settings.accounts, settings.plans),
    ...checkBuiltinModel(settings),
    ...checkPlans(settings),
    ...checkCluster(settings),
  ],
};

/** Requires a private address for requests between instances, as between bridges. */
function checkCluster({ cluster }: Settings): readonly Complaint[] {
  const wrong = cluster.address === '' ? undefined : refusalOfEndpoint(cluster.address);
  return wrong === undefined ? [] : [{ path: 'cluster.address', wrong, right: 'name an address of a private network' }];
}

/** Agents work for users only in the sandbox, unless the operator trusts them like users of this machine. */
function checkPlans({ plans, bridge }: Settings): readonly Complaint[] {
  if (bridge.trust_users || bridge.sandbox !== 'off') return [];
  return Object.entries(plans).flatMap(([name, plan]) =>
    plan.bridge
      ? [
          {
            path: `plans.${name}.bridge`,
            wrong: 'agents would work for people whom nothing separates from this machine and from each other',
            right:
              'remove it, set bridge.sandbox to auto, or set bridge.trust_users to true if these people could have a login on this machine',
            involves: ['bridge.trust_users', 'bridge.sandbox'],
          },
        ]
      : [],
  );
}

/** A name without an API in front must be an alias: nothing else is found by it when the first turn runs. */
function checkBuiltinModel({ agents, completions }: Settings): readonly Complaint[] {
  const { model, base_url: baseUrl } = agents.builtin;
  const names = completions.models.map(({ name }) => name);
  if (baseUrl !== '' || model === '' || model.includes('/') || names.includes(model)) return [];
  const near = nearestName(model, names);
  return [
    {
      path: 'agents.builtin.model',
      wrong: `there is no model "${model}"`,
      right:
        near === undefined
          ? `name an alias of completions.models, or a model as <api>/<model>, such as openai/${model}`
          : `did you mean "${near}"?`,
      involves: ['completions.models', 'agents.builtin.base_url'],
    },
  ];
}

/** In the order in which they are shown. */
export const SERVICE_NAMES = ['bridge', 'completions', 'accounts'] as const;

export type ServiceName = (typeof SERVICE_NAMES)[number];

const DEFAULT_PORTS: Readonly<Record<ServiceName, number>> = { bridge: 8787, completions: 4000, accounts: 8080 };

/** Where to listen: as configured, else on loopback with the port of the service that runs alone, or of all together. */
export function listenAddress({ listen }: Settings, alone?: ServiceName): ListenAddress {
  const configured = parseListenAddress(listen);
  if ('host' in configured) return configured;
  return { host: '127.0.0.1', port: DEFAULT_PORTS[alone ?? 'bridge'] };
}

/** Whether the program can be reached from this machine only, as far as its settings say. */
function isLocalOnly(settings: Settings): boolean {
  const { allowed_hosts: hosts, trusted_proxies: proxies, accounts } = settings;
  const publicHost = URL.parse(accounts.public_url)?.host;
  return (
    isLoopbackBind(listenAddress(settings).host) &&
    proxies.length === 0 &&
    hosts.every(isLoopbackHost) &&
    (publicHost === undefined || isLoopbackHost(publicHost))
  );
}

/** The settings of accounts as they apply. */
export function accountsSettingsOf(settings: Settings): AccountsSettings {
  const { accounts, plans } = settings;
  const { registration, default_plan } = accounts;
  const leftOpen = new Set<LeftOpen>();
  if (registration === '') leftOpen.add('registration');
  if (default_plan === '') leftOpen.add('default_plan');
  const fallback = isLocalOnly(settings) ? 'open' : 'invite';
  return {
    ...accounts,
    plans,
    leftOpen,
    registration: registration === '' ? fallback : registration,
    default_plan: default_plan === '' ? FREE_PLAN : default_plan,
  };
}

/** The data directory: as configured, else in the XDG data home, which must be absolute to count. */
export function dataDirectory(
  { data_dir: configured }: Settings,
  homeDirectory: string,
  xdgDataHome: string | undefined,
): string {
  if (configured !== '') return configured;
  return join(xdgDataHome?.startsWith('/') === true ? xdgDataHome : join(homeDirectory, '.local', 'share'), 'trestle');
}

export interface AdapterPlace {
  readonly homeDirectory: string;
  readonly xdgDataHome: string | undefined;
}

/** The methods that an adapter serves. The bridge that uses it serves all others. */
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
 * own inside the configured one, runs the agent's program even where the settings name an address for it, and forwards
 * nothing to other bridges or to a gateway.
 */
export function adapterSettings(settings: Settings, name: string, place: AdapterPlace): Settings {
  const { agents } = settings;
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
    ...withoutOthers(settings),
    agents: own,
    listen: settings.listen === '' ? (DEFAULT_ADDRESSES[name] ?? OTHER_ADDRESS) : settings.listen,
    data_dir: join(dataDirectory(settings, place.homeDirectory, place.xdgDataHome), 'adapters', name),
  };
}

/** The settings of a bridge with a database of its own that forwards nothing. */
function withoutOthers({ database, gateway, distributed, ...settings }: Settings): Settings {
  return {
    ...settings,
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

/**
 * The settings of the bridge of a runner: `trestle runner`. It offers the agents of this machine to the instances alone, which
 * have the token, and keeps its data in a folder of its own inside the configured one.
 */
export function runnerSettings(settings: Settings, token: string, place: AdapterPlace): Settings {
  const { agents, bridge, console: pages } = settings;
  const custom = agents.custom.filter((agent) => agent.runner_agent === '' && agent.url === '');
  const ids = new Set([...custom.map(({ id }) => id), ...agents.catalog]);
  const elsewhere = agents.custom.filter((agent) => !custom.includes(agent)).map(({ id }) => id);
  const catalog = agents.catalog.filter((id) => !elsewhere.includes(id));
  return {
    ...withoutOthers(settings),
    agents: { ...agents, custom, catalog, default: ids.has(agents.default) ? agents.default : (catalog[0] ?? '') },
    bridge: { ...bridge, auth_token: token, review_auth_token: '' },
    console: { ...pages, enabled: false },
    listen: '127.0.0.1:0',
    data_dir: join(dataDirectory(settings, place.homeDirectory, place.xdgDataHome), 'runner'),
  };
}

function adaptable({ agents }: Settings): readonly string[] {
  return buildAgentCatalog({ ...agents, catalog: ['opencode', 'gemini'] })
    .filter(({ category }) => category === 'protocol-adapter')
    .map(({ id }) => id);
}
