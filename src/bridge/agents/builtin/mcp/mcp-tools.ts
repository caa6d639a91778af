import { type TSchema, Type } from 'typebox';
import type { Clock } from '../../../../platform/clock/clock.ts';
import type { Logger } from '../../../../platform/log/logger.ts';
import type { LaunchAgent } from '../../agent-launcher.ts';
import { refuse } from '../tools/confined-folder.ts';
import type { Tool } from '../tools/tool.ts';
import { connectMcpServer, type McpConnection, type McpToolInfo } from './mcp-connection.ts';

/** An MCP server whose tools the built-in agent may use. */
export interface McpServer {
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

export interface McpToolsOptions {
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
