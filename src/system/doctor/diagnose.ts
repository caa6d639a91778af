import { createIssuerKeys } from '../../accounts/issuer/issued-people.ts';
import { doesPay } from '../../accounts/owners.ts';
import { applyChoices, type SetupChoice } from '../../accounts/setup/setup-choices.ts';
import {
  agentPresets,
  buildAgentCatalog,
  type CatalogAgent,
  hasReadOnlyMode,
} from '../../bridge/agents/agent-catalog.ts';
import { connectAgent } from '../../bridge/agents/agent-launcher.ts';
import { installedAgents } from '../../bridge/agents/agent-packages.ts';
import { createAgentProbe, createBuiltinProbe } from '../../bridge/agents/agent-probe.ts';
import type { ProbeResult } from '../../bridge/agents/probe-board.ts';
import { buildNodeMap, usedNodes } from '../../bridge/forwarding/decide-forward.ts';
import { createGatewayProbe } from '../../bridge/gateway/gateway-connection.ts';
import type { Clock } from '../../platform/clock/clock.ts';
import { isLoopbackBind } from '../../platform/http/listen-address.ts';
import { isLoopbackHost } from '../../platform/network-address/classify-address.ts';
import type { Environment } from '../../platform/runtime/runtime.ts';
import { sameSecret, tokenWeakness } from '../../platform/secrets/tokens.ts';
import { modelAccessOfProbes, openAgentSandbox, refuseAll, sandboxFinding } from '../agent-sandbox.ts';
import { type DataFiles, dataFiles, lookIntoDataDirectory } from '../data-directory.ts';
import { PROGRAM_VERSION } from '../environment.ts';
import { builtinModelProblem, createProbeEffects } from '../service-wiring.ts';
import { accountsSettingsOf, dataDirectory, listenAddress, type Settings } from '../settings.ts';
import type { StoreAccessOptions } from '../stores.ts';
import {
  broken,
  clockFinding,
  databaseClockFindings,
  databaseFindings,
  dataDirectoryFinding,
  diskFinding,
  type Finding,
  fine,
  legacyPlanFindings,
  note,
  portFinding,
  runningServer,
  runtimeFinding,
  setupChoices,
  webhookFindings,
  workspaceFindings,
} from './findings.ts';

/** Checks everything that a server needs at its start. */
export function diagnose(options: StoreAccessOptions): Promise<readonly Finding[]> {
  const { settings, environment, homeDirectory } = options;
  const files = dataFiles(dataDirectory(settings, homeDirectory, environment.XDG_DATA_HOME));
  return lookIntoDataDirectory(files.folder, () => findAll(options, files));
}

async function findAll(options: StoreAccessOptions, files: DataFiles): Promise<readonly Finding[]> {
  const { settings, environment, homeDirectory, clock } = options;
  const folder = await dataDirectoryFinding(files.folder);
  const usable = folder.state !== 'broken';
  const server = usable ? await runningServer(settings, files) : undefined;
  const stored = usable
    ? [
        ...(server === undefined ? [] : [server.finding]),
        ...(await databaseFindings(settings, files)),
        ...(await legacyPlanFindings(settings, files)),
        ...(await webhookFindings(settings, files)),
        ...(await workspaceFindings(settings.bridge.workspace_roots, files.folder)),
        await diskFinding(files.folder),
        await clockFinding(files.folder, clock.now),
        ...(await databaseClockFindings(settings, files, clock.now)),
      ]
    : [];
  return [
    runtimeFinding(process.version),
    folder,
    ...stored,
    await portFinding(settings, server),
    ...accessFindings(settings, listenAddress(settings).host),
    registrationFinding(settings, usable ? await setupChoices(settings, files) : []),
    ...(await issuerFindings(settings, clock)),
    ...(await nodeFindings(settings)),
    await sandboxFinding(options),
    ...(await agentFindings(settings, environment, homeDirectory, files, clock)),
  ];
}

interface NamedToken {
  readonly name: string;
  readonly value: string;
  /** Whether callers need no credential when the token is missing. */
  readonly needed: boolean;
}

/** Reports weak tokens, and missing ones if other machines can reach the address. */
export function accessFindings(settings: Settings, host: string): readonly Finding[] {
  const { accounts, bridge, completions, distributed } = settings;
  const tokens: readonly NamedToken[] = [
    { name: 'BRIDGE_AUTH_TOKEN', value: bridge.auth_token, needed: bridge.review_auth_token === '' },
    { name: 'BRIDGE_REVIEW_AUTH_TOKEN', value: bridge.review_auth_token, needed: false },
    { name: 'COMPLETIONS_MASTER_KEY', value: completions.master_key, needed: true },
    { name: 'metrics_token', value: settings.metrics_token, needed: false },
    { name: 'distributed.task_forward_token', value: distributed.task_forward_token, needed: false },
  ];
  const exposed = !isLoopbackBind(host);
  const findings = tokens.flatMap(({ name, value, needed }) => {
    if (value === '') return needed ? [missing(name, exposed, settings.insecure)] : [];
    const weakness = tokenWeakness(value);
    return [weakness === undefined ? fine(name, 'set') : note(name, `weak: ${weakness}`)];
  });
  const isOpen = bridge.auth_token === '' && bridge.review_auth_token === '';
  const isBehindProxy = !isLoopbackUrl(accounts.public_url);
  return [
    ...findings,
    ...(isOpen && bridge.allowed_origins.length === 0 ? [OPEN_TO_PAGES] : []),
    ...(isBehindProxy && !exposed && settings.trusted_proxies.length === 0 ? [UNKNOWN_PROXY] : []),
    ...((isBehindProxy || exposed) && accounts.smtp.host === '' && accounts.issuer === '' ? [NO_MAIL_SERVER] : []),
    ...consoleFindings(settings),
  ];
}

/** People reach a program that listens on loopback only through a proxy. */
const UNKNOWN_PROXY = note(
  'trusted_proxies',
  'accounts.public_url goes through a proxy, but no proxy is listed: everyone seems to come from one address, so one person can use up the limits of all; list the address of the proxy',
);

/** Codes and links are then for those who can read the folder: nobody else can register or set a forgotten password. */
const NO_MAIL_SERVER = note(
  'accounts.smtp.host',
  'not set: mails reach nobody, and become files in the outbox folder of the data directory; name a mail server',
);

function isLoopbackUrl(address: string): boolean {
  return address === '' || isLoopbackHost(URL.parse(address)?.host ?? '');
}

/** A web console of another origin whose pages could not call accounts. */
function consoleFindings({ accounts }: Settings): readonly Finding[] {
  const { frontend_url: console, public_url: own, allowed_origins: listed } = accounts;
  const origin = URL.parse(console)?.origin;
  if (origin === undefined || origin === URL.parse(own)?.origin || listed.includes(origin)) return [];
  const text = `pages of ${origin} (accounts.frontend_url) cannot call accounts; list the origin, unless a server calls for them`;
  return [note('accounts.allowed_origins', text)];
}

/** Who may create an account, and whether that costs the operator something. */
export function registrationFinding(settings: Settings, chosen: readonly SetupChoice[]): Finding {
  const accounts = applyChoices(accountsSettingsOf(settings), chosen);
  const { registration, default_plan: plan } = accounts;
  const name = 'accounts.registration';
  if (registration !== 'open' || !doesPay(plan, accounts)) return fine(name, registration);
  const what = 'set registration to invite, or name a default_plan that pays for nothing';
  return note(name, `open, and the plan "${plan}" pays: anyone who registers can spend its budget; ${what}`);
}

/** The default that the contract asks for, and that is too much where other programs serve pages. */
const OPEN_TO_PAGES = note(
  'bridge.allowed_origins',
  'any page that another program serves on localhost can use the bridge, because it has no token; set a token, or allowed_origins: [self]',
);

function missing(name: string, exposed: boolean, insecure: boolean): Finding {
  if (!exposed) return fine(name, 'not set: open to programs on this machine only');
  if (insecure) return note(name, 'not set: open to anyone who reaches the address (--insecure)');
  return broken(name, 'not set, but the address can be reached from other machines: the server will not start');
}

/** Agents that are offered when their name is in `agents.catalog`. */
export const knownAgents: readonly string[] = agentPresets.map(({ id }) => id);

const PROBE_TIMEOUT_MS = 15_000;

/** Probes each agent and the gateway. A missing one is not a problem: nobody needs all of them. */
export async function agentFindings(
  settings: Settings,
  environment: Environment,
  homeDirectory: string,
  files: DataFiles,
  clock: Clock,
): Promise<readonly Finding[]> {
  const installed = await installedAgents(files.folder);
  const catalog = buildAgentCatalog(settings.agents, installed);
  // A server that does not start without a sandbox shows no agents either way: that is a finding of its own.
  const given = { settings, environment, clock, serveOwn: refuseAll };
  const sandbox = await openAgentSandbox(given).catch(() => undefined);
  const places = { dataFolder: files.folder, journalFolder: files.processes };
  const modelAccess = modelAccessOfProbes(listenAddress(settings));
  const effects = createProbeEffects({ settings, environment, homeDirectory, ...places, sandbox, modelAccess });
  const { permissions } = settings.bridge;
  const connected = { permissions, version: PROGRAM_VERSION, clock, logger: { error: () => undefined } };
  const problem = builtinModelProblem(settings, environment);
  const builtin = createBuiltinProbe(PROGRAM_VERSION, settings.agents.builtin.model, problem);
  const agents = catalog.map((agent) => ({
    name: `agent ${agent.id}`,
    probe: createAgentProbe({
      agent,
      effects,
      connect: (process, { protocol }) => connectAgent(process, { ...connected, protocol }),
      clock,
      builtin,
    }),
  }));
  const gateway = {
    name: `gateway ${settings.gateway.provider_id}`,
    probe: createGatewayProbe(settings.gateway.url),
  };
  const found = await Promise.all(
    [...agents, gateway].map(async ({ name, probe }) => {
      const result = await probe(AbortSignal.timeout(PROBE_TIMEOUT_MS)).catch(asFailure);
      return agentFinding(name, result);
    }),
  );
  await sandbox?.stop();
  return [...found, ...(sandbox === undefined ? readOnlyFindings(settings, catalog) : [])];
}

/** Describes the result of a probe. */
export function agentFinding(name: string, { status, version, model = '', advice = '' }: ProbeResult): Finding {
  if (status === 'ok') return fine(name, `${version || 'ok'}${model === '' ? '' : `, model ${model}`}`);
  return note(name, `${status.replaceAll('_', ' ')}${advice === '' ? '' : `: ${advice}`}`);
}

/** Without a sandbox: agents under `permissions: deny` whose read-only mode is not known. */
function readOnlyFindings({ bridge }: Settings, catalog: readonly CatalogAgent[]): readonly Finding[] {
  if (bridge.permissions === 'allow') return [];
  const unsure = catalog.filter(({ id, place }) => place.kind === 'program' && !hasReadOnlyMode(id));
  if (unsure.length === 0) return [];
  const names = unsure.map(({ id }) => id).join(', ');
  const text = `${names}: no read-only mode is known, so requests for permission are denied, but actions without a request are not prevented`;
  return [note('permissions', text)];
}

function asFailure(error: unknown): ProbeResult {
  return { status: `failed: ${error instanceof Error ? error.message : error}`, version: '' };
}

/** Whether the keys of the server that people come from can be read. */
export async function issuerFindings({ accounts }: Settings, clock: Clock): Promise<readonly Finding[]> {
  const { issuer } = accounts;
  const name = 'accounts.issuer';
  if (issuer === '') return [];
  try {
    const count = await createIssuerKeys({ issuer: issuer.replace(/\/$/, ''), clock }).read();
    if (count > 0) return [fine(name, `${issuer}, ${count === 1 ? '1 key' : `${count} keys`}`)];
    return [note(name, `${issuer} has no keys yet: it creates one with its first token`)];
  } catch (error) {
    const { cause } = Object(error) as { readonly cause?: unknown };
    const reason = String(Object(cause).code ?? Object(error).message);
    return [broken(name, `the keys of ${issuer} cannot be read (${reason}): calls of its people are refused with 503`)];
  }
}

const NODE_TIMEOUT_MS = 3_000;

/** Checks the nodes that calls may be forwarded to, and the token between them. */
async function nodeFindings({ bridge, distributed }: Settings): Promise<readonly Finding[]> {
  const { task_forward_token: forwardToken } = distributed;
  const map = buildNodeMap(distributed);
  const used = usedNodes(distributed, map);
  if (used.length === 0) return [];
  const found = await Promise.all(
    used.map(async ({ id, endpoint }) => {
      const hop = map.nextHopOf(id);
      const way = hop === id ? endpoint : `${endpoint}, by way of ${hop}`;
      if (hop !== id) return fine(`node ${id}`, way);
      const problem = (await look(endpoint)) ?? (await lookAtToken(endpoint, id, forwardToken || bridge.auth_token));
      return problem === undefined ? fine(`node ${id}`, way) : note(`node ${id}`, `${way}: ${problem}`);
    }),
  );
  const local = map.localId === '' ? note('this node', 'has no id: set distributed.local_node_id') : undefined;
  const self = local ?? fine('this node', map.localId);
  const isShared = bridge.auth_token !== '' && (forwardToken === '' || sameSecret(forwardToken, bridge.auth_token));
  const shared = note(
    'distributed.task_forward_token',
    'is the main token: anyone who has it can pose as another bridge; give bridges their own token',
  );
  return [self, ...found, ...(isShared ? [shared] : [])];
}

/**
 * Whether the other bridge takes our token for its forward token. It refuses a malformed hop only then: with any other
 * credential it ignores the headers of forwarded requests, and would run calls that are meant for a node behind it.
 */
async function lookAtToken(endpoint: string, target: string, token: string): Promise<string | undefined> {
  if (token === '') return undefined;
  try {
    const response = await fetch(`${endpoint}/acp/rpc`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${token}`,
        'content-type': 'application/json',
        'x-app-bridge-forwarded': '1',
        'x-app-forward-source': 'doctor',
        'x-app-forward-target': target,
        'x-app-forward-hop': 'malformed',
      },
      body: '{"jsonrpc":"2.0","id":"1","method":"acp.capabilities","params":{}}',
      redirect: 'manual',
      signal: AbortSignal.timeout(NODE_TIMEOUT_MS),
    });
    await response.body?.cancel();
    if (response.status === 401)
      return 'it does not accept our forward token; set the same distributed.task_forward_token there';
    if (response.status !== 200) return undefined;
    return 'it accepts our forward token as an ordinary one, so it ignores which node a call is for; set the same distributed.task_forward_token there';
  } catch {
    return 'no response in time';
  }
}

/** Whether a server responds at the address. `GET /` needs no credential on any bridge. */
async function look(endpoint: string): Promise<string | undefined> {
  try {
    const response = await fetch(`${endpoint}/`, {
      headers: { accept: 'text/plain' },
      redirect: 'manual',
      signal: AbortSignal.timeout(NODE_TIMEOUT_MS),
    });
    await response.body?.cancel();
    return response.ok ? undefined : `it answers with status ${response.status}`;
  } catch (error) {
    return error instanceof Error && error.name === 'TimeoutError' ? 'no response in time' : 'cannot be reached';
  }
}
