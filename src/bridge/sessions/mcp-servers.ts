import { AppError } from '../../platform/errors/app-error.ts';
import type { SecretBox } from '../../platform/secrets/secret-keys.ts';
import { MAX_MCP_BYTES, MAX_MCP_SERVERS, type McpServer, type ShownMcpServer } from '../contract/session.ts';
import type { BridgeGroups } from '../settings.ts';

interface Pair {
  readonly name: string;
  readonly value: string;
}

/** An MCP server with all that an agent needs to use it. It holds secrets. */
export type ReachableMcpServer =
  | {
      readonly type: 'stdio';
      readonly name: string;
      readonly command: string;
      readonly args: readonly string[];
      readonly env: readonly Pair[];
    }
  | {
      readonly type: 'http' | 'sse';
      readonly name: string;
      readonly url: string;
      readonly headers: readonly Pair[];
      /** Set for an address of this process: that of its own tools. Callers cannot set it. */
      readonly isOurs?: true;
    };

/** An MCP server of a session. Our own tools are reached in another way in each process: see `createSessionTools`. */
export type SessionMcpServer = ReachableMcpServer | { readonly type: 'trestle'; readonly name: string };

/** Whether a server is this program, with an address or before it has one. */
export function isOurs(server: SessionMcpServer): boolean {
  return server.type === 'trestle' || (server.type !== 'stdio' && server.isOurs === true);
}

/** Checks what the schema cannot, and fills in what was left out. Throws INVALID_PARAMS, which names the member. */
export function readMcpServers(given: readonly McpServer[] = []): readonly SessionMcpServer[] {
  if (given.length > MAX_MCP_SERVERS) throw invalid('', `has at most ${MAX_MCP_SERVERS} servers`);
  const names = new Set<string>();
  const servers = given.map((server, index) => {
    const { name = server.trestle === true || server.type === 'trestle' ? OURS : undefined } = server;
    if (name === undefined) throw invalid(`/${index}/name`, 'is needed: a name for people and for the agent');
    if (names.has(name)) throw invalid(`/${index}/name`, 'is the name of another server; give each its own');
    names.add(name);
    return readServer({ ...server, name }, index);
  });
  const ours = servers.findLastIndex(isOurs);
  if (ours > servers.findIndex(isOurs)) throw invalid(`/${ours}`, 'gives the tools of this program a second time');
  if (JSON.stringify(servers).length > MAX_MCP_BYTES) throw invalid('', `has at most ${MAX_MCP_BYTES} bytes`);
  return servers;
}

/** The name of our own tools, unless another one is given. */
const OURS = 'trestle';

function readServer(server: McpServer & { readonly name: string }, index: number): SessionMcpServer {
  const { name, trestle, type = trestle === true ? 'trestle' : 'stdio', ...given } = server;
  if (trestle !== undefined && trestle !== (type === 'trestle')) {
    throw invalid(`/${index}/trestle`, `is not for a server of type ${type}; leave it out`);
  }
  const refuse = (member: 'command' | 'args' | 'env' | 'url' | 'headers') => {
    if (given[member] !== undefined) throw invalid(`/${index}/${member}`, `is not for a server of type ${type}`);
  };
  if (type === 'trestle') {
    for (const member of ['command', 'args', 'env', 'url', 'headers'] as const) refuse(member);
    return { type, name };
  }
  if (type === 'stdio') {
    refuse('url');
    refuse('headers');
    const { command = '', args = [], env = [] } = given;
    if (command === '') throw invalid(`/${index}/command`, 'is needed: the program of the server');
    return { type, name, command, args, env };
  }
  for (const member of ['command', 'args', 'env'] as const) refuse(member);
  const { url = '', headers = [] } = given;
  const address = URL.parse(url);
  if (address === null || !/^https?:$/.test(address.protocol)) {
    throw invalid(`/${index}/url`, 'is needed: an address that begins with http:// or https://');
  }
  if (address.username !== '' || address.password !== '') {
    throw invalid(`/${index}/url`, 'must not have a user or password in it; send a header instead');
  }
  return { type, name, url, headers };
}

function invalid(path: string, message: string): AppError {
  const issues = [{ path: `/mcpServers${path}`, message }];
  return new AppError('INVALID_PARAMS', { reason: `mcpServers${path.replaceAll('/', '.')} ${message}`, issues });
}

/** Adds the servers that the settings give to the sessions of an owner. One of the call replaces one of the same name. */
export type WithConfigured = (owner: string, given: readonly SessionMcpServer[]) => readonly SessionMcpServer[];

export function createWithConfigured({
  mcp_servers: configured,
  permissions,
}: Pick<BridgeGroups['bridge'], 'mcp_servers' | 'permissions'>): WithConfigured {
  const pairs = (values: Readonly<Record<string, string>>) =>
    Object.entries(values).map(([name, value]) => ({ name, value }));
  // Where agents may only read, they have no servers.
  const servers = (permissions === 'deny' ? [] : configured).map(
    ({ owners, name, command, args, env, type, url, headers, trestle }) => ({
      owners: new Set(owners),
      server: (trestle
        ? { type: 'trestle', name }
        : command === ''
          ? { type, name, url, headers: pairs(headers) }
          : { type: 'stdio', name, command, args, env: pairs(env) }) satisfies SessionMcpServer,
    }),
  );
  return (owner, given) => {
    const names = new Set(given.map(({ name }) => name));
    const hasOurs = given.some(isOurs);
    const added = servers.filter(
      ({ owners, server }) =>
        (owners.has('*') || owners.has(owner)) && !names.has(server.name) && !(hasOurs && isOurs(server)),
    );
    return [...added.map(({ server }) => server), ...given];
  };
}

export function shownServers(servers: readonly SessionMcpServer[]): ShownMcpServer[] {
  return servers.map((server) => ({
    name: server.name,
    type: server.type,
    target: server.type === 'stdio' ? server.command : server.type === 'trestle' ? '' : new URL(server.url).origin,
  }));
}

/** Keeps the servers of sessions encrypted: their variables and headers are secrets. */
export interface ServerBox {
  /** Empty: there are none. */
  seal(sessionKey: string, servers: readonly SessionMcpServer[]): string;
  open(sessionKey: string, sealed: string): readonly SessionMcpServer[];
}

export function createServerBox(box: SecretBox): ServerBox {
  const contextOf = (sessionKey: string) => `mcp-servers:${sessionKey}`;
  return {
    seal: (key, servers) => (servers.length === 0 ? '' : box.seal(JSON.stringify(servers), contextOf(key))),
    open(key, sealed) {
      if (sealed === '') return [];
      return JSON.parse(Buffer.from(box.open(sealed, contextOf(key))).toString('utf8')) as SessionMcpServer[];
    },
  };
}

/** The kinds of servers that an agent takes. All take programs. */
type TakenKinds = Readonly<Record<'http' | 'sse', boolean>>;

const isTaken = (kinds: TakenKinds, server: SessionMcpServer): server is ReachableMcpServer =>
  server.type === 'stdio' || (server.type !== 'trestle' && kinds[server.type]);

export function takenServers(kinds: TakenKinds, servers: readonly SessionMcpServer[]): readonly ReachableMcpServer[] {
  return servers.filter((server) => isTaken(kinds, server));
}

/** What people read about the others. */
export function untakenServers(kinds: TakenKinds, servers: readonly SessionMcpServer[]): readonly string[] {
  const others = servers.filter((server) => !isTaken(kinds, server));
  return others.map(({ name, type }) => `This agent does not take MCP servers of type ${type}: "${name}" is not used.`);
}

const MIN_HIDDEN_LENGTH = 6;

/** Takes the secrets of servers out of a text of an agent. */
export function withoutSecrets(text: string, servers: readonly SessionMcpServer[] = []): string {
  const values = servers.flatMap((server) =>
    server.type === 'stdio' ? server.env : server.type === 'trestle' ? [] : server.headers,
  );
  return values
    .filter(({ value }) => value.length >= MIN_HIDDEN_LENGTH)
    .reduce((shown, { value }) => shown.replaceAll(value, '[hidden]'), text);
}
