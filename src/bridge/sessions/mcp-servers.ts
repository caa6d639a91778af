import { AppError } from '../../platform/errors/app-error.ts';
import type { SecretBox } from '../../platform/secrets/secret-keys.ts';
import { MAX_MCP_BYTES, MAX_MCP_SERVERS, type McpServer, type ShownMcpServer } from '../contract/session.ts';
import type { BridgeGroups } from '../settings.ts';

interface Pair {
  readonly name: string;
  readonly value: string;
}

/** An MCP server of a session, with all that its agent needs to use it. It holds secrets. */
export type SessionMcpServer =
  | {
      readonly type: 'stdio';
      readonly name: string;
      readonly command: string;
      readonly args: readonly string[];
      readonly env: readonly Pair[];
    }
  | { readonly type: 'http' | 'sse'; readonly name: string; readonly url: string; readonly headers: readonly Pair[] };

/** Checks what the schema cannot, and fills in what was left out. Throws INVALID_PARAMS, which names the member. */
export function readMcpServers(given: readonly McpServer[] = []): readonly SessionMcpServer[] {
  if (given.length > MAX_MCP_SERVERS) throw invalid('', `has at most ${MAX_MCP_SERVERS} servers`);
  const names = new Set<string>();
  const servers = given.map((server, index) => {
    if (names.has(server.name)) throw invalid(`/${index}/name`, 'is the name of another server; give each its own');
    names.add(server.name);
    return readServer(server, index);
  });
  if (JSON.stringify(servers).length > MAX_MCP_BYTES) throw invalid('', `has at most ${MAX_MCP_BYTES} bytes`);
  return servers;
}

function readServer({ name, type = 'stdio', ...given }: McpServer, index: number): SessionMcpServer {
  const refuse = (member: 'command' | 'args' | 'env' | 'url' | 'headers') => {
    if (given[member] !== undefined) throw invalid(`/${index}/${member}`, `is not for a server of type ${type}`);
  };
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
    ({ owners, name, command, args, env, type, url, headers }) => ({
      owners: new Set(owners),
      server: (command === ''
        ? { type, name, url, headers: pairs(headers) }
        : { type: 'stdio', name, command, args, env: pairs(env) }) satisfies SessionMcpServer,
    }),
  );
  return (owner, given) => {
    const names = new Set(given.map(({ name }) => name));
    const added = servers.filter(
      ({ owners, server }) => (owners.has('*') || owners.has(owner)) && !names.has(server.name),
    );
    return [...added.map(({ server }) => server), ...given];
  };
}

export function shownServers(servers: readonly SessionMcpServer[]): ShownMcpServer[] {
  return servers.map((server) => ({
    name: server.name,
    type: server.type,
    target: server.type === 'stdio' ? server.command : new URL(server.url).origin,
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

const isTaken = (kinds: TakenKinds, { type }: SessionMcpServer) => type === 'stdio' || kinds[type];

export function takenServers(kinds: TakenKinds, servers: readonly SessionMcpServer[]): readonly SessionMcpServer[] {
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
  const values = servers.flatMap((server) => (server.type === 'stdio' ? server.env : server.headers));
  return values
    .filter(({ value }) => value.length >= MIN_HIDDEN_LENGTH)
    .reduce((shown, { value }) => shown.replaceAll(value, '[hidden]'), text);
}
