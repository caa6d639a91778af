import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { type TSchema, Type } from 'typebox';
import type { RunningProcess } from '../../../platform/child-process/start-process.ts';
import type { Clock } from '../../../platform/clock/clock.ts';
import type { Logger } from '../../../platform/log/logger.ts';
import { createAgentChannel } from '../agent-connection.ts';
import type { LaunchAgent } from '../agent-launcher.ts';
import { asObject, textOf } from '../agent-text.ts';
import { refuse } from './tools/confinement.ts';
import type { Tool } from './tools/tool.ts';

/** An MCP server whose tools the built-in agent may use. */
interface McpServer {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

export interface McpTools {
  /** The tools of the servers that run, and what is wrong with those that do not. Servers are started on first use. */
  find(): Promise<{ readonly tools: readonly Tool[]; readonly problems: readonly string[] }>;
  stop(): Promise<void>;
}

interface McpToolsOptions {
  readonly servers: readonly McpServer[];
  readonly launch: LaunchAgent;
  readonly version: string;
  readonly clock: Pick<Clock, 'after'>;
  readonly callTimeoutMs: number;
  readonly logger: Pick<Logger, 'warn'>;
}

const CONNECT_MS = 15_000;
const LONGEST_NAME = 64;
const LONGEST_DESCRIPTION = 4_000;
/** Any object: what the tool wants of it is checked by its server. */
const AnyInput = Type.Object({});

export function createMcpTools(options: McpToolsOptions): McpTools {
  const { servers, launch, version, clock, callTimeoutMs, logger } = options;
  const connections = new Map<string, Promise<McpConnection>>();
  let isStopped = false;

  async function connect({ command, args, env }: McpServer): Promise<McpConnection> {
    const process = await launch({ command, args, environment: env });
    if (process === undefined) throw new Error('there is no such program');
    return connectMcpServer({ process, version, clock, connectMs: CONNECT_MS, callMs: callTimeoutMs });
  }

  /** One process for all conversations; after it has ended, the next turn starts another. */
  function connection(server: McpServer): Promise<McpConnection> {
    const known = connections.get(server.name);
    if (known !== undefined) return known;
    const forget = () => void connections.delete(server.name);
    const made = connect(server);
    connections.set(server.name, made);
    made.then(({ closed }) => closed.then(forget), forget);
    return made;
  }

  async function toolsOf(server: McpServer): Promise<readonly Tool[] | string> {
    try {
      const { tools } = await connection(server);
      return tools.map((info) => asTool(server, info, connection));
    } catch (error) {
      logger.warn({ err: error, server: server.name }, 'an MCP server of the built-in agent cannot be used');
      return `The tools of "${server.name}" cannot be used: its program did not start as an MCP server.`;
    }
  }

  return {
    async find() {
      if (isStopped) return { tools: [], problems: [] };
      const found = await Promise.all(servers.map(toolsOf));
      return {
        tools: found.flatMap((one) => (typeof one === 'string' ? [] : one)),
        problems: found.filter((one) => typeof one === 'string'),
      };
    },
    async stop() {
      isStopped = true;
      await Promise.allSettled([...connections.values()].map(async (made) => (await made).close()));
    },
  };
}

function asTool(
  server: McpServer,
  { name, description, inputSchema }: McpToolInfo,
  connection: (server: McpServer) => Promise<McpConnection>,
): Tool {
  return {
    name: `${server.name}__${name}`.replaceAll(/[^\w-]/g, '_').slice(0, LONGEST_NAME),
    description: description.slice(0, LONGEST_DESCRIPTION),
    parameters: AnyInput,
    shownParameters: inputSchema as TSchema,
    toolKind: 'execute',
    // What it does is not known here.
    needsPermission: true,
    title: () => `${server.name}: ${name}`,
    async run(input, { signal }) {
      const open = await connection(server);
      try {
        return await open.call(name, input, signal);
      } catch (error) {
        signal.throwIfAborted();
        return refuse(
          `the tool did not answer: ${error instanceof Error ? error.message.slice(0, 300) : 'no reason given'}`,
        );
      }
    },
  };
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
  readonly process: RunningProcess;
  /** Ours, by which the server may know us. */
  readonly version: string;
  readonly clock: Pick<Clock, 'after'>;
  readonly connectMs: number;
  readonly callMs: number;
}

const MOST_TOOLS = 128;
const GRACE_MS = 1_000;

async function connectMcpServer(options: McpConnectionOptions): Promise<McpConnection> {
  const { process, version, connectMs, callMs } = options;
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const client = new Client({ name: 'trestle', title: 'Trestle', version }, { capabilities: {} });
  const closed = Promise.withResolvers<void>();
  client.onclose = () => closed.resolve();
  try {
    await client.connect(createTransport(process, options.clock), { timeout: connectMs });
    const { tools } = await client.listTools({}, { timeout: connectMs });
    return {
      tools: tools.slice(0, MOST_TOOLS).map(({ name, description = '', inputSchema }) => ({
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
function createTransport(process: RunningProcess, clock: Pick<Clock, 'after'>): Transport {
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

/** What a model can read of an answer; of anything else it learns that it was there. */
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
