import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Readable, Writable } from 'node:stream';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { type Static, type TSchema, Type } from 'typebox';
import { Compile } from 'typebox/schema';
import { type Clock, joinSignals, withinTime } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { describeError, isExpected } from '../../platform/errors/error-table.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import { findIssues, firstIssue } from '../../platform/json/describe-issues.ts';
import type { Logger } from '../../platform/log/logger.ts';
import { asObject, textOf } from '../agents/agent-text.ts';
import type { CompleteChat, ConversationMessage } from '../agents/builtin/complete-chat.ts';
import { emptyAnswer, readAnswer } from '../agents/builtin/read-answer.ts';
import type { CallRemote, RemoteReply } from '../agents/remote/remote-connection.ts';
import { bridgeErrors } from '../errors.ts';

interface ToolServerOptions {
  readonly tools: readonly OfferedTool[];
  readonly version: string;
  readonly clock: Pick<Clock, 'after'>;
  readonly logger: Pick<Logger, 'error'>;
}

interface ServeToolsOptions extends ToolServerOptions {
  readonly input: Readable;
  readonly output: Writable;
}

interface ToolAnswer {
  readonly [member: string]: unknown;
  readonly content: { readonly type: 'text'; readonly text: string }[];
  readonly isError?: boolean;
}

/** When the agent disconnects, calls in progress have this much time to be cancelled. */
const LAST_WORK_MS = 10_000;

/** Serves MCP on a pair of streams. Resolves when the other side has closed them and no call is in progress. */
export async function serveTools({ input, output, ...options }: ServeToolsOptions): Promise<void> {
  const [server, { StdioServerTransport }] = await Promise.all([
    createToolServer(options),
    import('@modelcontextprotocol/sdk/server/stdio.js'),
  ]);
  const { promise: gone, resolve } = Promise.withResolvers<void>();
  input.once('end', resolve).once('close', resolve);
  output.once('error', () => resolve());
  await server.connect(new StdioServerTransport(input, output));
  await gone;
  await server.end();
}

/** Answers one HTTP request. Each request has its own MCP server, because no state is kept between requests. */
export async function serveToolRequest(
  asked: IncomingMessage,
  response: ServerResponse,
  options: ToolServerOptions,
): Promise<void> {
  const [server, { StreamableHTTPServerTransport }] = await Promise.all([
    createToolServer(options),
    import('@modelcontextprotocol/sdk/server/streamableHttp.js'),
  ]);
  const transport = new StreamableHTTPServerTransport();
  response.once('close', () => void server.end().catch(noop));
  await server.connect(transport as Transport);
  await transport.handleRequest(asked, response);
}

interface ToolServer {
  connect(transport: Transport): Promise<void>;
  /** Cancels the calls in progress and closes the connection. */
  end(): Promise<void>;
}

async function createToolServer({ tools, version, clock, logger }: ToolServerOptions): Promise<ToolServer> {
  const [{ Server }, { CallToolRequestSchema, ListToolsRequestSchema }] = await Promise.all([
    import('@modelcontextprotocol/sdk/server/index.js'),
    import('@modelcontextprotocol/sdk/types.js'),
  ]);
  const offered = new Map(tools.map((tool) => [tool.name, tool]));
  const ended = new AbortController();
  const underWay = new Set<Promise<unknown>>();

  async function answer(name: string, given: unknown, call: ToolCall): Promise<ToolAnswer> {
    const tool = offered.get(name);
    if (tool === undefined) return failed(`There is no tool "${name.slice(0, 100)}".`);
    const validator = Compile(tool.input);
    if (!validator.Check(given)) return failed(`The arguments do not fit: ${issueOf(validator, given)}.`);
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

  return {
    connect: (transport) => server.connect(transport),
    async end() {
      ended.abort();
      await withinTime(clock, LAST_WORK_MS, Promise.allSettled(underWay), () => undefined);
      await server.close();
    },
  };
}

function failed(text: string): ToolAnswer {
  return { content: [{ type: 'text', text }], isError: true };
}

function issueOf(validator: Parameters<typeof findIssues>[0], given: unknown): string {
  return firstIssue(findIssues(validator, given));
}

function noop(): void {
  // The caller has disconnected and needs no progress.
}

/** What the tools call. */
interface ToolBridgeParts {
  /** The completions service. */
  readonly complete: CompleteChat;
  /** For completions that name no model. */
  readonly model: string;
  /** The bridge's method family. */
  readonly callBridge: CallRemote;
  readonly makeId: MakeId;
}

export interface ToolCall {
  readonly signal: AbortSignal;
  /** Reports progress to the agent. */
  progress(message: string): void;
}

export interface OfferedTool<Input extends TSchema = TSchema> {
  readonly name: string;
  readonly description: string;
  readonly input: Input;
  /** Returns the text for the agent. Throws TOOL_CALL_REFUSED or MODEL_FAILED when the call fails. */
  run(input: Static<Input>, call: ToolCall): Promise<string>;
}

const prompt = Type.String({ minLength: 1, description: 'What is to be done, with all that is needed to do it.' });
const provider = Type.Optional(Type.String({ description: 'Id of the agent. Left out: the default one.' }));
const folder = Type.Optional(Type.String({ description: 'Absolute path of the folder to work in.' }));
const seconds = Type.Optional(Type.Integer({ minimum: 1, maximum: 86_400, description: 'After that it is given up.' }));
const SHORT_CALL_MS = 30_000;
const CANCEL_MS = 8_000;
const ASK_SECONDS = 600;
/** Consecutive attempts, with pauses of at most five seconds. */
const ATTEMPTS = 4;

/** The table of the tools that `trestle tools` offers to agents. */
export function offeredTools(parts: ToolBridgeParts): readonly OfferedTool[] {
  const { complete, callBridge, makeId } = parts;

  async function shortCall(method: string, params: object, signal: AbortSignal): Promise<string> {
    const either = AbortSignal.any([signal, AbortSignal.timeout(SHORT_CALL_MS)]);
    const call = { method, params, key: makeId('call-'), resumable: false, attempts: 1, signal: either };
    return JSON.stringify(resultOf(await callBridge(call)), undefined, 2);
  }

  function cancelSession(sessionId: string): Promise<RemoteReply> {
    const signal = AbortSignal.timeout(CANCEL_MS);
    const key = makeId('call-');
    return callBridge({ method: 'session.cancel', params: { sessionId }, key, resumable: false, attempts: 1, signal });
  }

  return [
    defineOffered({
      name: 'chat',
      description: 'Asks a language model one question and returns its answer.',
      input: Type.Object({
        prompt: Type.String({ minLength: 1, description: 'The question.' }),
        system: Type.Optional(Type.String({ description: 'How the model should behave.' })),
        model: Type.Optional(Type.String({ minLength: 1, description: 'Such as "openai/gpt-5".' })),
      }),
      async run({ prompt: content, system, model = parts.model }, { signal }) {
        const messages: ConversationMessage[] = [{ role: 'user', content }];
        if (system !== undefined) messages.unshift({ role: 'system', content: system });
        const answer = emptyAnswer();
        const request = { model, messages, stream: true as const, stream_options: { include_usage: true as const } };
        await readAnswer(complete(request, signal, { owner: '' }), answer, () => undefined);
        return answer.text + answer.refusal;
      },
    }),
    defineOffered({
      name: 'ask_agent',
      description:
        'Has another agent do something, waits for it and returns what it said. The answer ends with the id of the session: give it to go on with the same conversation.',
      input: Type.Object({
        prompt,
        provider,
        working_directory: folder,
        session: Type.Optional(Type.String({ minLength: 1, maxLength: 256, description: 'Of an earlier answer.' })),
        timeout_seconds: seconds,
      }),
      async run(input, { signal, progress }) {
        const sessionId = input.session ?? makeId('tool-');
        const limit = AbortSignal.timeout((input.timeout_seconds ?? ASK_SECONDS) * 1000);
        const reply = await callBridge({
          method: input.session === undefined ? 'session.start' : 'session.message',
          params: { sessionId, taskPrompt: input.prompt, ...place(input) },
          key: makeId('call-'),
          resumable: true,
          attempts: ATTEMPTS,
          signal: AbortSignal.any([signal, limit]),
          onUpdate({ message }) {
            progress(textOf(message).slice(0, 200));
            return undefined;
          },
        });
        if (reply.kind === 'aborted') {
          await cancelSession(sessionId);
          throw refused(limit.aborted ? 'the agent took too long and was stopped' : 'the call was cancelled');
        }
        const result = resultOf(reply);
        if (result.success !== true) {
          throw refused(textOf(result.error) || textOf(result.unavailableMessage) || 'the agent failed');
        }
        return `${textOf(result.output)}\n\n[session ${sessionId}]`;
      },
    }),
    defineOffered({
      name: 'submit_job',
      description: 'Has an agent do something in the background and returns immediately, with the id of the job.',
      input: Type.Object({ prompt, provider, working_directory: folder, timeout_seconds: seconds }),
      run: ({ prompt: taskPrompt, timeout_seconds: time, ...input }, { signal }) =>
        shortCall(
          'app.jobs.submit',
          { taskPrompt, ...(time !== undefined && { timeoutMs: time * 1000 }), ...place(input) },
          signal,
        ),
    }),
    defineOffered({
      name: 'get_job',
      description: 'The state of a job of submit_job, and its outcome.',
      input: Type.Object({ job_id: Type.String({ minLength: 1, maxLength: 256 }) }),
      run: ({ job_id: jobId }, { signal }) => shortCall('app.jobs.get', { jobId }, signal),
    }),
    defineOffered({
      name: 'send_message',
      description: 'Sends a message to a person or a group through the gateway.',
      input: Type.Object({
        target: Type.String({ minLength: 1, description: 'Whom it is for.' }),
        message: Type.String({ minLength: 1 }),
        channel: Type.Optional(Type.String({ description: 'Such as "telegram".' })),
        account_id: Type.Optional(Type.String({ description: 'From which account.' })),
      }),
      run: ({ target, message, channel, account_id: accountId }, { signal }) => {
        const more = { ...(channel !== undefined && { channel }), ...(accountId !== undefined && { accountId }) };
        const args = { target, message, ...more };
        return shortCall('app.tools.invoke', { tool: 'message', action: 'send', args }, signal);
      },
    }),
  ];
}

export function defineOffered<Input extends TSchema>(tool: OfferedTool<Input>): OfferedTool {
  return tool as unknown as OfferedTool;
}

interface PlaceInput {
  readonly provider?: string;
  readonly working_directory?: string;
}

function place({ provider: id, working_directory: path }: PlaceInput): object {
  return {
    ...(id !== undefined && { routing: { explicitProviderId: id } }),
    ...(path !== undefined && { workingDirectory: path }),
  };
}

function resultOf(reply: RemoteReply): Readonly<Record<string, unknown>> {
  switch (reply.kind) {
    case 'result':
      return asObject(reply.result);
    case 'error':
      throw refused(reply.message);
    case 'unreachable':
    case 'absent':
      throw refused(`the bridge cannot be reached: ${'reason' in reply ? reply.reason : 'its runner is away'}`);
    case 'aborted':
      throw refused('the bridge did not answer in time, or the call was cancelled');
  }
}

export function refused(reason: string): AppError {
  return new AppError('TOOL_CALL_REFUSED', { reason });
}
