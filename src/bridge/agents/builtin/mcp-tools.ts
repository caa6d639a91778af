import { createHash } from 'node:crypto';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { type TSchema, Type } from 'typebox';
import type { RunningProcess } from '../../../platform/child-process/start-process.ts';
import type { Clock } from '../../../platform/clock/clock.ts';
import { type Payer, payerName } from '../../../platform/identity/owner.ts';
import type { Logger } from '../../../platform/log/logger.ts';
import type { SessionMcpServer } from '../../sessions/mcp-servers.ts';
import { createAgentChannel } from '../agent-connection.ts';
import type { AgentWork, LaunchAgent } from '../agent-launcher.ts';
import { asObject, textOf } from '../agent-text.ts';
import { refuse } from './tools/confinement.ts';
import type { Tool } from './tools/tool.ts';

/** An MCP server of the settings, for all sessions. */
interface McpServer {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Runs outside of the sandbox, in one process for all sessions. */
  readonly trusted: boolean;
}

/** What a turn can use until it calls `release`. */
export interface FoundTools {
  readonly tools: readonly Tool[];
  /** What is wrong with servers that do not run. */
  readonly problems: readonly string[];
  release(): void;
}

export interface McpTools {
  /** The tools for a turn of an owner in a folder; `own` are the servers of its session. Servers are started on first use. */
  find(payer: Payer, folder: string, own?: readonly SessionMcpServer[]): Promise<FoundTools>;
  /** Ends the servers that run for those who may not work any more. */
  endWhere(isMeant: (payer: Payer) => boolean): void;
  stop(): Promise<void>;
}

type Program = Pick<McpServer, 'command' | 'args' | 'env'>;

interface McpToolsOptions {
  readonly servers: readonly McpServer[];
  readonly launch: LaunchAgent;
  /** Starts servers outside of the sandbox. */
  readonly launchTrusted: LaunchAgent;
  /** Whether what works for an owner sees one working directory only. */
  isFenced(owner: string): boolean;
  /** What may be called over HTTP on behalf of an owner. */
  fetchFor(owner: string): typeof fetch;
  readonly version: string;
  readonly clock: Pick<Clock, 'after'>;
  readonly callTimeoutMs: number;
  readonly logger: Pick<Logger, 'warn'>;
}

const CONNECT_MS = 15_000;
/** A server in the sandbox that no turn uses is ended after this long. */
const IDLE_MS = 5 * 60_000;
const MAX_NAME = 64;
const MAX_DESCRIPTION = 4_000;
/** Servers of sessions that run at the same time, in all and of one owner. */
const MAX_OWN_SERVERS = 256;
const MAX_OWN_SERVERS_OF_ONE = 192;
const MAX_RESPONSE_BYTES = 64 * 1024 * 1024;
/** Any object: what the tool wants of it is checked by its server. */
const AnyInput = Type.Object({});

/** A server that runs for one owner in one folder, or for all. */
interface Place {
  readonly name: string;
  readonly key: string;
  /** For whom it runs. Undefined: for all. */
  readonly payer: Payer | undefined;
  connect(): Promise<Transport>;
}

interface Kept {
  readonly payer: Payer | undefined;
  readonly made: Promise<McpConnection>;
}

/** The turns that use a place, whose server may end and start again during a turn. */
interface Users {
  count: number;
  /** Stops the timer that ends the server; set while no turn uses it. */
  stopTimer: (() => void) | undefined;
}

export function createMcpTools(options: McpToolsOptions): McpTools {
  const { servers, version, clock, callTimeoutMs, logger } = options;
  const connections = new Map<string, Kept>();
  const users = new Map<string, Users>();
  let isStopped = false;

  async function start({ command, args, env }: Program, work: AgentWork | undefined): Promise<Transport> {
    const launch = work === undefined ? options.launchTrusted : options.launch;
    const process = await launch({ command, args, environment: env }, work);
    if (process === undefined) throw new Error('there is no such program');
    return overPipes(process, clock);
  }

  function placeOf(server: McpServer, payer: Payer, folder: string): Place {
    const { name } = server;
    const { owner, member } = payer;
    const isForAll = server.trusted || !options.isFenced(owner);
    const work = isForAll ? undefined : { owner, member, agent: `mcp-${name}`, folder };
    const key = JSON.stringify(isForAll ? [name] : [name, payerName(payer), folder]);
    return { name, key, payer: isForAll ? undefined : payer, connect: () => start(server, work) };
  }

  /** A server of a session never serves another owner or folder, nor one that was described in another way. */
  function ownPlace(server: SessionMcpServer, payer: Payer, folder: string): Place {
    const { owner, member } = payer;
    const key = createHash('sha256')
      .update(JSON.stringify([server, payerName(payer), folder]))
      .digest('hex');
    return {
      name: server.name,
      key,
      payer,
      connect() {
        const ofOne = [...connections.values()].filter((one) => isOfSame(one.payer, payer)).length;
        if (connections.size > MAX_OWN_SERVERS || ofOne >= MAX_OWN_SERVERS_OF_ONE)
          throw new Error('too many servers run');
        if (server.type === 'sse') throw new Error('servers of type sse are not supported');
        if (server.type === 'trestle') throw new Error('this turn has no tools of this program');
        if (server.type !== 'stdio') return overHttp(server, server.isOurs === true ? fetch : options.fetchFor(owner));
        const env = Object.fromEntries(server.env.map(({ name, value }) => [name, value]));
        return start({ ...server, env }, { owner, member, agent: 'mcp-session', folder, isCallers: true });
      },
    };
  }

  async function open(place: Place): Promise<McpConnection> {
    return connectMcpServer(await place.connect(), { version, connectMs: CONNECT_MS, callMs: callTimeoutMs });
  }

  /** One process for all conversations of a place; after it has ended, the next turn starts another. */
  function kept(place: Place): Kept {
    const known = connections.get(place.key);
    if (known !== undefined) return known;
    const fresh: Kept = { payer: place.payer, made: open(place) };
    connections.set(place.key, fresh);
    const forget = () => forgetServer(place.key, fresh);
    fresh.made.then(({ closed }) => closed.then(forget), forget);
    return fresh;
  }

  function forgetServer(key: string, one: Kept): void {
    if (connections.get(key) === one) connections.delete(key);
  }

  /** Keeps the server of a place while a turn uses it. A server for everyone is kept until the end. */
  function hold({ key, payer }: Place): () => void {
    const own = users.get(key) ?? { count: 0, stopTimer: undefined };
    users.set(key, own);
    own.stopTimer?.();
    own.stopTimer = undefined;
    own.count += 1;
    return () => {
      own.count -= 1;
      if (own.count > 0) return;
      if (payer === undefined || !connections.has(key)) users.delete(key);
      else own.stopTimer = clock.after(IDLE_MS, () => endIdle(key));
    };
  }

  function endIdle(key: string): void {
    users.delete(key);
    const one = connections.get(key);
    if (one !== undefined) end(key, one);
  }

  /** From now on, a turn that needs this server starts another one. */
  function end(key: string, one: Kept): void {
    forgetServer(key, one);
    void one.made.then(({ close }) => close()).catch(() => undefined);
  }

  async function toolsOf(place: Place): Promise<readonly Tool[] | string> {
    const { name } = place;
    const connection = () => kept(place).made;
    try {
      const { tools } = await connection();
      return tools.map((info) => asTool(name, info, connection));
    } catch (error) {
      logger.warn({ reason: reasonOf(error), server: name }, 'an MCP server of the built-in agent cannot be used');
      return `The tools of "${name}" cannot be used: it did not start as an MCP server, or did not answer as one.`;
    }
  }

  return {
    async find(payer, folder, own = []) {
      if (isStopped) return { tools: [], problems: [], release: () => undefined };
      const places = [
        ...servers.map((server) => placeOf(server, payer, folder)),
        ...own.map((server) => ownPlace(server, payer, folder)),
      ];
      const releases = places.map(hold);
      const found = await Promise.all(places.map(toolsOf));
      const tools = new Map<string, Tool>();
      for (const tool of found.flatMap((one) => (typeof one === 'string' ? [] : one))) {
        // Of two tools of one name the first counts: those of the settings come before those of the session.
        if (!tools.has(tool.name)) tools.set(tool.name, tool);
      }
      return {
        tools: [...tools.values()],
        problems: found.filter((one) => typeof one === 'string'),
        release() {
          for (const release of releases) release();
        },
      };
    },
    endWhere(isMeant) {
      for (const [key, one] of [...connections]) if (one.payer !== undefined && isMeant(one.payer)) end(key, one);
    },
    async stop() {
      isStopped = true;
      const all = [...connections.values()];
      for (const { stopTimer } of users.values()) stopTimer?.();
      await Promise.allSettled(all.map(async ({ made }) => (await made).close()));
    },
  };
}

/** Whether what runs for two payers counts for the same owner or member. */
function isOfSame(one: Payer | undefined, { owner, member = owner }: Payer): boolean {
  return one !== undefined && [one.owner, one.member].some((id) => id === owner || id === member);
}

function asTool(
  server: string,
  { name, description, inputSchema }: McpToolInfo,
  connection: () => Promise<McpConnection>,
): Tool {
  return {
    name: `${server}__${name}`.replaceAll(/[^\w-]/g, '_').slice(0, MAX_NAME),
    description: description.slice(0, MAX_DESCRIPTION),
    parameters: AnyInput,
    shownParameters: inputSchema as TSchema,
    toolKind: 'execute',
    // What it does is not known here.
    needsPermission: true,
    title: () => `${server}: ${name}`,
    async run(input, { signal }) {
      const open = await connection();
      try {
        return await open.call(name, input, signal);
      } catch (error) {
        signal.throwIfAborted();
        return refuse(`the tool did not answer: ${reasonOf(error)}`);
      }
    },
  };
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message.slice(0, 300) : 'no reason given';
}

interface McpToolInfo {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
}

/** A connection to an MCP server that was greeted. */
interface McpConnection {
  readonly tools: readonly McpToolInfo[];
  /** Rejects when the server answers with an error of the protocol, takes too long, or is gone. */
  call(name: string, input: unknown, signal: AbortSignal): Promise<{ readonly text: string; readonly failed: boolean }>;
  readonly closed: Promise<void>;
  close(): Promise<void>;
}

interface McpConnectionOptions {
  /** Ours, by which the server may know us. */
  readonly version: string;
  readonly connectMs: number;
  readonly callMs: number;
}

const MAX_TOOLS = 128;
/** Within the second in which everything of a paused person ends. */
const GRACE_MS = 500;

async function connectMcpServer(transport: Transport, options: McpConnectionOptions): Promise<McpConnection> {
  const { version, connectMs, callMs } = options;
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const client = new Client({ name: 'trestle', title: 'Trestle', version }, { capabilities: {} });
  const closed = Promise.withResolvers<void>();
  client.onclose = () => closed.resolve();
  try {
    await client.connect(transport, { timeout: connectMs });
    const { tools } = await client.listTools({}, { timeout: connectMs });
    return {
      tools: tools.slice(0, MAX_TOOLS).map(({ name, description = '', inputSchema }) => ({
        name,
        description,
        inputSchema,
      })),
      async call(name, input, signal) {
        const request = { name, arguments: { ...asObject(input) } };
        const answer = await client.callTool(request, undefined, { signal, timeout: callMs, maxTotalTimeout: callMs });
        return { text: contentText(answer), failed: answer.isError === true };
      },
      closed: closed.promise,
      close: () => client.close(),
    };
  } catch (error) {
    await client.close();
    throw error;
  }
}

/** The SDK's own way to start servers knows neither our process groups nor our journal. */
function overPipes(process: RunningProcess, clock: Pick<Clock, 'after'>): Transport {
  const channel = createAgentChannel(process, clock);
  const transport: Transport = {
    async start() {
      channel.onMessage((message) => transport.onmessage?.(message as never));
      channel.onEnd(() => transport.onclose?.());
    },
    async send(message) {
      channel.send(JSON.stringify(message));
    },
    async close() {
      channel.close();
      await process.stop({ graceMs: GRACE_MS });
    },
  };
  return transport;
}

async function overHttp(
  { url, headers }: Extract<SessionMcpServer, { url: string }>,
  send: typeof fetch,
): Promise<Transport> {
  const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const own = new Headers(headers.map(({ name, value }): [string, string] => [name, value]));
  const bounded: typeof fetch = async (input, init) => {
    const response = await send(input, { redirect: 'error', ...init });
    const { status, headers: given } = response;
    const body = response.body?.pipeThrough(atMost(MAX_RESPONSE_BYTES)) ?? null;
    return new Response(body, { status, headers: new Headers([...given]) });
  };
  return new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers: own },
    fetch: bounded,
  }) as Transport;
}

function atMost(maxBytes: number): TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>> {
  let size = 0;
  return new TransformStream({
    transform(chunk, controller) {
      size += chunk.length;
      if (size > maxBytes) controller.error(new Error('the response is too large'));
      else controller.enqueue(chunk);
    },
  });
}

/** What a model can read of a result; anything else is replaced by a note about its kind. */
function contentText(answer: Readonly<Record<string, unknown>>): string {
  const { content, structuredContent } = answer;
  const parts = (Array.isArray(content) ? content : []).map((value: unknown) => {
    const block = asObject(value);
    if (block.type === 'text') return textOf(block.text);
    const text = textOf(asObject(block.resource).text);
    return text === '' ? `[${textOf(block.type) || 'something'} left out]` : text;
  });
  return parts.length > 0 || structuredContent === undefined ? parts.join('\n') : JSON.stringify(structuredContent);
}
