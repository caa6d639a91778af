import type { Clock } from '../../platform/clock/clock.ts';
import type { Randomness } from '../../platform/clock/randomness.ts';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { createToken } from '../../platform/secrets/tokens.ts';
import type { Audit } from '../audit.ts';
import type { Agent, NewAgent, ProxyNode } from '../contract/proxy-node.ts';
import { tokenKey } from '../flows.ts';
import type { AccountsSettings } from '../settings.ts';
import type { AccountsSchema, ProxyAgentRow } from '../storage/accounts-schema.ts';
import type { ProxyAgentStore } from '../storage/administration-stores.ts';
import { timeText } from '../user-object.ts';

/** An agent of a proxy node, from the settings or made by an administrator. */
interface ProxyAgent extends Omit<Agent, 'createdAt'> {
  readonly createdAt: number | null;
  readonly node: NodeAddress;
}

export interface AgentRegistry {
  /** By id. */
  list(): Promise<ProxyAgent[]>;
  /** Returns the agent of a token. Tokens in the settings change with a reload. */
  byToken(token: string): Promise<Pick<ProxyAgent, 'id'> | undefined>;
  /** The token is in this answer and nowhere else. */
  create(agent: NewAgent, actor: RegistryActor): Promise<{ agent: ProxyAgent; token: string }>;
  /** The token stops working before this resolves. */
  revoke(id: string, actor: RegistryActor): Promise<void>;
}

interface RegistryActor {
  readonly id: string;
  readonly head?: RequestHead;
}

interface AgentRegistryOptions {
  readonly database: Pick<Database<AccountsSchema>, 'write'>;
  readonly store: ProxyAgentStore;
  readonly audit: Audit;
  settings(): AccountsSettings;
  readonly clock: Pick<Clock, 'now'>;
  readonly randomness: Pick<Randomness, 'bytes'>;
}

type ConfiguredAgent = AccountsSettings['agents'][number];

const AGENT_TOKEN_PREFIX = 'agt_';
const MAX_TOKEN = 512;

export function createAgentRegistry(options: AgentRegistryOptions): AgentRegistry {
  const { database, store, audit, settings, clock, randomness } = options;
  const byConfiguredToken = rememberLast((configured: readonly ConfiguredAgent[]) => {
    const withToken = configured.filter(({ token }) => token !== '');
    return new Map(withToken.map(({ id, token }) => [tokenKey(token), id]));
  });

  const entryOf = (event: string, id: string, { id: actor, head }: RegistryActor) => ({
    event,
    actor,
    subject: `agent:${id}`,
    ...(head !== undefined && { head }),
  });

  return {
    async list() {
      const stored = new Map((await store.list()).map((row) => [row.id, row]));
      const configured = settings().agents.map((agent) => describeConfigured(agent, stored.get(agent.id)));
      for (const { id } of configured) stored.delete(id);
      return [...configured, ...[...stored.values()].map(describeStored)].sort((left, right) =>
        left.id < right.id ? -1 : 1,
      );
    },
    async byToken(token) {
      if (token === '' || token.length > MAX_TOKEN) return undefined;
      const key = tokenKey(token);
      const id = byConfiguredToken(settings().agents).get(key);
      return id === undefined ? store.byTokenHash(key) : { id };
    },
    async create({ id, name = id, groups = [], ...node }, actor) {
      const configured = settings().agents.find((agent) => agent.id === id);
      if (configured !== undefined && configured.token !== '') throw new AppError('AGENT_CONFIGURED', { id });
      const token = createToken(randomness, AGENT_TOKEN_PREFIX);
      const row: ProxyAgentRow = {
        id,
        name,
        token_hash: tokenKey(token),
        groups: JSON.stringify(groups),
        node: JSON.stringify(node),
        created_at: clock.now(),
      };
      const created = audit.statement(entryOf('agent.created', id, actor));
      await database.write([store.add(row), created], { duplicate: 'AGENT_EXISTS', details: { id } });
      const agent = configured === undefined ? describeStored(row) : describeConfigured(configured, row);
      return { agent, token };
    },
    async revoke(id, actor) {
      const configured = settings().agents.find((agent) => agent.id === id);
      if (configured !== undefined && configured.token !== '') throw new AppError('AGENT_CONFIGURED', { id });
      const shown = id.slice(0, 64);
      const [remove, ...others] = store.remove(id);
      const revoked = audit.statement(entryOf('agent.revoked', shown, actor));
      await database.write([expectChanges(remove, 1), ...others, revoked], {
        conflict: 'AGENT_NOT_FOUND',
        details: { id: shown },
      });
    },
  };
}

function describeStored(row: ProxyAgentRow): ProxyAgent {
  return {
    id: row.id,
    name: row.name,
    groups: JSON.parse(row.groups) as string[],
    node: JSON.parse(row.node) as NodeAddress,
    configured: false,
    hasToken: true,
    createdAt: row.created_at,
  };
}

/** Describes an agent by the settings, and by its row if a token was issued for it here. */
function describeConfigured(agent: ConfiguredAgent, row: ProxyAgentRow | undefined): ProxyAgent {
  const { id, name, token, groups, ...node } = agent;
  return {
    id,
    name: name === '' ? id : name,
    groups: [...groups],
    node,
    configured: true,
    hasToken: token !== '' || row !== undefined,
    createdAt: row?.created_at ?? null,
  };
}

/** Describes an agent without the address of its node, which only the list of nodes has. */
export function describeAgent({ node: _, createdAt, ...agent }: ProxyAgent): Agent {
  return { ...agent, createdAt: createdAt === null ? null : timeText(createdAt) };
}

/** Caches the output for the last input. */
function rememberLast<Input extends object, Output>(compute: (input: Input) => Output): (input: Input) => Output {
  let last: { readonly input: Input; readonly output: Output } | undefined;
  return (input) => {
    if (last?.input !== input) last = { input, output: compute(input) };
    return last.output;
  };
}

/** Where a node can be reached; what is missing or empty has a default. */
interface NodeAddress {
  readonly address?: string | undefined;
  readonly port?: number | undefined;
  readonly server_name?: string | undefined;
  readonly path?: string | undefined;
  readonly mode?: string | undefined;
  readonly xhttp_port?: number | undefined;
  readonly tcp_port?: number | undefined;
}

export const FLOW = 'xtls-rprx-vision';

/** A node as the user with this proxy UUID connects to it. */
export function describeNode(
  agent: { readonly id: string; readonly name: string; readonly node: NodeAddress },
  proxyUuid: string,
): ProxyNode {
  const { node } = agent;
  const plain = {
    name: agent.name,
    address: node.address || agent.id,
    port: node.port ?? 443,
    users: [proxyUuid],
    transport: 'xhttp',
    path: node.path || '/split',
    mode: node.mode || 'auto',
    security: 'tls',
    flow: FLOW,
    server_name: node.server_name || agent.id,
    xhttp_port: node.xhttp_port ?? 443,
    tcp_port: node.tcp_port ?? 1443,
  };
  const { server_name: sni, path, mode } = plain;
  return {
    ...plain,
    uri_scheme_xhttp: vlessUri(plain, proxyUuid, plain.xhttp_port, {
      encryption: 'none',
      type: 'xhttp',
      security: 'tls',
      host: sni,
      path,
      mode,
      sni,
      fp: 'chrome',
      alpn: 'h2',
    }),
    uri_scheme_tcp: vlessUri(plain, proxyUuid, plain.tcp_port, {
      encryption: 'none',
      type: 'tcp',
      security: 'tls',
      sni,
      fp: 'chrome',
      flow: FLOW,
    }),
  };
}

function vlessUri(
  { address, name }: { readonly address: string; readonly name: string },
  uuid: string,
  port: number,
  parameters: Readonly<Record<string, string>>,
): string {
  const host = address.includes(':') ? `[${address}]` : address;
  const query = Object.entries(parameters).map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
  return `vless://${uuid}@${host}:${port}?${query.join('&')}#${encodeURIComponent(name)}`;
}
