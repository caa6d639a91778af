import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import type { RunningProcess } from '../../../../platform/child-process/start-process.ts';
import type { Clock } from '../../../../platform/clock/clock.ts';
import { createAgentChannel } from '../../agent-channel.ts';
import { asObject, textOf } from '../../loose-json.ts';

export interface McpToolInfo {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
}

/** A connection to an MCP server that was greeted. */
export interface McpConnection {
  readonly tools: readonly McpToolInfo[];
  /** Rejects when the server answers with an error of the protocol, takes too long, or is gone. */
  call(name: string, input: unknown, signal: AbortSignal): Promise<{ readonly text: string; readonly failed: boolean }>;
  readonly closed: Promise<void>;
  close(): Promise<void>;
}

export interface McpConnectionOptions {
  readonly process: RunningProcess;
  /** Ours, by which the server may know us. */
  readonly version: string;
  readonly clock: Pick<Clock, 'after'>;
  readonly connectMs: number;
  readonly callMs: number;
}

const MOST_TOOLS = 128;
const GRACE_MS = 1_000;

export async function connectMcpServer(options: McpConnectionOptions): Promise<McpConnection> {
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
