import type { Readable, Writable } from 'node:stream';
import { Compile } from 'typebox/schema';
import { type Clock, joinSignals, withinTime } from '../../platform/clock/clock.ts';
import { describeError, isExpected } from '../../platform/errors/error-table.ts';
import { findIssues, firstIssue } from '../../platform/json/describe-issues.ts';
import type { Logger } from '../../platform/log/logger.ts';
import { bridgeErrors } from '../errors.ts';
import type { OfferedTool, ToolCall } from './offered-tools.ts';

export interface ServeToolsOptions {
  readonly tools: readonly OfferedTool[];
  readonly version: string;
  readonly input: Readable;
  readonly output: Writable;
  readonly clock: Pick<Clock, 'after'>;
  readonly logger: Pick<Logger, 'error'>;
}

interface ToolAnswer {
  readonly [member: string]: unknown;
  readonly content: { readonly type: 'text'; readonly text: string }[];
  readonly isError?: boolean;
}

/** When the agent disconnects, calls under way get this long to be cancelled. */
const LAST_WORK_MS = 10_000;

/** An MCP server on a pair of streams. Resolves when the other side has closed them and nothing is under way. */
export async function serveTools(options: ServeToolsOptions): Promise<void> {
  const { tools, version, input, output, logger } = options;
  const [{ Server }, { StdioServerTransport }, { CallToolRequestSchema, ListToolsRequestSchema }] = await Promise.all([
    import('@modelcontextprotocol/sdk/server/index.js'),
    import('@modelcontextprotocol/sdk/server/stdio.js'),
    import('@modelcontextprotocol/sdk/types.js'),
  ]);
  const offered = new Map(tools.map((tool) => [tool.name, { ...tool, validator: Compile(tool.input) }]));
  const ended = new AbortController();
  const underWay = new Set<Promise<unknown>>();

  async function answer(name: string, given: unknown, call: ToolCall): Promise<ToolAnswer> {
    const tool = offered.get(name);
    if (tool === undefined) return failed(`There is no tool "${name.slice(0, 100)}".`);
    if (!tool.validator.Check(given)) return failed(`The arguments do not fit: ${issueOf(tool.validator, given)}.`);
    try {
      return { content: [{ type: 'text', text: await tool.run(given as never, call) }] };
    } catch (error) {
      if (isExpected(bridgeErrors, error)) return failed(describeError(bridgeErrors, error).message);
      logger.error({ err: error, tool: name }, 'a tool failed');
      return failed('This should not have happened; the log of this program says more.');
    }
  }

  const server = new Server({ name: 'trestle', title: 'Trestle', version }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: tools.map(({ name, description, input: schema }) => ({
      name,
      description,
      inputSchema: { ...schema, type: 'object' as const },
    })),
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { signal, sendNotification }) => {
    const token = params._meta?.progressToken;
    let steps = 0;
    const joined = joinSignals(signal, ended.signal);
    const call: ToolCall = {
      signal: joined.signal,
      progress(message) {
        if (token === undefined) return;
        steps += 1;
        const told = { method: 'notifications/progress' as const };
        void sendNotification({ ...told, params: { progressToken: token, progress: steps, message } }).catch(noop);
      },
    };
    const work = answer(params.name, params.arguments ?? {}, call);
    underWay.add(work);
    return work.finally(() => {
      underWay.delete(work);
      joined.release();
    });
  });

  const { promise: gone, resolve } = Promise.withResolvers<void>();
  input.once('end', resolve).once('close', resolve);
  output.once('error', () => resolve());
  await server.connect(new StdioServerTransport(input, output));
  await gone;
  ended.abort();
  await withinTime(options.clock, LAST_WORK_MS, Promise.allSettled(underWay), () => undefined);
  await server.close();
}

function failed(text: string): ToolAnswer {
  return { content: [{ type: 'text', text }], isError: true };
}

function issueOf(validator: Parameters<typeof findIssues>[0], given: unknown): string {
  return firstIssue(findIssues(validator, given));
}

function noop(): void {
  // A caller that is gone needs no progress.
}
