import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Type } from 'typebox';
import { SANDBOX_URL, type ServeOwn } from '../../platform/child-process/sandbox-network.ts';
import { joinSignals } from '../../platform/clock/clock.ts';
import type { AppError } from '../../platform/errors/app-error.ts';
import { describeError, isExpected } from '../../platform/errors/error-table.ts';
import { payerName } from '../../platform/identity/owner.ts';
import { RawJson } from '../../platform/json-rpc/envelope.ts';
import { createDispatch, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import { nodeHttp, type Runtime } from '../../platform/runtime/runtime.ts';
import { createToken } from '../../platform/secrets/tokens.ts';
import { PLAIN_OPTIONS } from '../agents/agent-connection.ts';
import type { AgentEnd, AgentProvider, PermissionPolicy, SupervisedTurn, TurnUsage } from '../agents/agent-provider.ts';
import { asObject } from '../agents/agent-text.ts';
import {
  type AgentsToAsk,
  createAskAgent,
  createRequests,
  MAX_ASKED,
  MAX_PROMPT,
} from '../agents/builtin/ask-agent.ts';
import type { CompleteChat } from '../agents/builtin/complete-chat.ts';
import type { CallRemote } from '../agents/remote/remote-connection.ts';
import { type BridgeClient, NO_RESUME } from '../bridge-client.ts';
import { bridgeErrors } from '../errors.ts';
import { type PrincipalFor, requireMay } from '../principal.ts';
import { isOurs, type SessionMcpServer } from '../sessions/mcp-servers.ts';
import { defineOffered, type OfferedTool, offeredTools, refused, serveToolRequest } from './serve-tools.ts';

export interface SessionToolsOptions extends Runtime {
  readonly version: string;
  readonly permissions: PermissionPolicy;
  isFenced(owner: string): boolean;
  isScratch(folder: string): boolean;
  agentsToAsk(): AgentsToAsk;
  readonly complete: CompleteChat;
  /** For `chat` without a model. */
  readonly model: string;
  readonly principalFor: PrincipalFor;
  /** The methods of the bridge, which exist after the agents. */
  methods(): readonly MethodRow<BridgeClient>[];
}

/** The tools of this program for the agents of sessions whose `mcpServers` ask for them. */
export interface SessionTools {
  /** Gives the tools to the turns of an agent on this machine. */
  wrap(provider: AgentProvider): AgentProvider;
  /** Answers programs in the sandbox, in the network of a payer. */
  readonly serve: ServeOwn;
  stop(): Promise<void>;
}

/** In a network of the sandbox, next to the models. */
export const TOOLS_PATH = '/tools';
/** The maximum number of conversations with tools. Beyond it, the oldest one loses its tools until it is resumed. */
const MAX_DOORS = 10_000;
const MAX_CONNECTIONS = 256;
const NEEDS_PERMISSION: ReadonlySet<string> = new Set(['ask_agent', 'submit_job', 'send_message']);
const BUILTIN = 'builtin';

/** The tools that the token of a conversation gives access to while a turn of the conversation runs. */
interface Door {
  readonly token: string;
  /** The name of the payer's sandbox network. */
  readonly payer: string;
  readonly tools: readonly OfferedTool[];
  running: RunningTurn | undefined;
}

interface RunningTurn {
  readonly turn: SupervisedTurn;
  /** Aborts when the turn ends. */
  readonly signal: AbortSignal;
  readonly askAgent: ReturnType<typeof createAskAgent>;
  jobs: number;
}

/** Creates the tools of sessions. Each conversation has its own token, because an agent keeps its MCP servers while the conversation is open. */
export function createSessionTools(options: SessionToolsOptions): SessionTools {
  const { clock, logger, version, makeId } = options;
  const doors = new Map<string, Door>();
  const left = new Set<Promise<unknown>>();
  let listening: Promise<Server> | undefined;

  function keep(work: Promise<unknown>): void {
    const kept: Promise<unknown> = work.catch(() => undefined).finally(() => left.delete(kept));
    left.add(kept);
  }

  async function listen(): Promise<Server> {
    const server = nodeHttp.createServer((asked, response) => answer(undefined, asked, response));
    server.maxConnections = MAX_CONNECTIONS;
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    server.unref();
    return server;
  }

  async function urlFor(agent: string, owner: string): Promise<string> {
    // The built-in agent runs in this process and therefore outside of the sandbox.
    if (agent !== BUILTIN && options.isFenced(owner)) return `${SANDBOX_URL}${TOOLS_PATH}`;
    listening ??= listen();
    return `http://127.0.0.1:${((await listening).address() as AddressInfo).port}${TOOLS_PATH}`;
  }

  function answer(payer: string | undefined, asked: IncomingMessage, response: ServerResponse): void {
    const door = doors.get(asked.headers.authorization?.replace(/^Bearer /i, '') ?? '');
    const isTheirs = door !== undefined && (payer === undefined || payer === door.payer);
    const status = !isTheirs ? 401 : asked.method !== 'POST' ? 405 : undefined;
    if (door === undefined || status !== undefined) return void response.writeHead(status ?? 401).end();
    serveToolRequest(asked, response, { tools: door.tools, version, clock, logger }).catch((error: unknown) => {
      logger.error({ err: error }, 'a request to the tools of a session failed');
      response.destroy();
    });
  }

  function runningTurn(door: Door): RunningTurn {
    if (door.running === undefined) throw refused('no turn of this session is running');
    return door.running;
  }

  /** Calls methods of the bridge as the owner of the session, with no more rights than the turn has. */
  const callAs =
    (door: () => Door): CallRemote =>
    async ({ method, params, signal, key }) => {
      const { turn } = runningTurn(door());
      const { owner, member = '', workingDirectory: folder, asks } = turn;
      const given: Readonly<Record<string, unknown>> = { ...params };
      const job = {
        ...(!options.isScratch(folder) && { workingDirectory: folder }),
        ...given,
        routing: { ...asObject(given.routing), ...(asks === true && { permissions: 'ask' }) },
      };
      try {
        const principal = await options.principalFor(owner, member);
        requireMay(principal, method, owner);
        const caller: BridgeClient = { caller: { principal }, sink: undefined, stays: false, resume: NO_RESUME };
        const dispatch = createDispatch({ rows: options.methods() });
        const call = { method, params: method === 'app.jobs.submit' ? job : given, id: key, caller, signal };
        const silent = { requestId: makeId('req_'), notify: () => undefined, accept: () => undefined };
        const result = await dispatch({ ...call, ...silent });
        return { kind: 'result', result: asObject(result instanceof RawJson ? JSON.parse(result.text) : result) };
      } catch (error) {
        if (!isExpected(bridgeErrors, error)) throw error;
        return { kind: 'error', word: (error as AppError).code, message: describeError(bridgeErrors, error).message };
      }
    };

  function openDoor(agent: string, { owner, member, isJob }: SupervisedTurn): Door {
    const payer = { owner, ...(member !== undefined && { member }) };
    const all = offeredTools({
      complete: (request, signal) => options.complete(request, signal, payer),
      model: options.model,
      callBridge: callAs(() => door),
      makeId,
    });
    const askTool = createAskTool([...options.agentsToAsk().providers.keys()], (...asked) =>
      runningTurn(door).askAgent(...asked),
    );
    const tools = all
      .map((tool) => (tool.name === askTool.name ? askTool : tool))
      // The built-in agent has an `ask_agent` of its own. Jobs cannot submit jobs, because that might never end.
      .filter(({ name }) => !(name === 'ask_agent' && agent === BUILTIN) && !(name === 'submit_job' && isJob === true))
      .map((tool) => withinTurn(tool, () => runningTurn(door), options.permissions));
    const door: Door = { token: createToken(options.randomness), payer: payerName(payer), tools, running: undefined };
    doors.set(door.token, door);
    const [oldest] = doors.keys();
    if (doors.size > MAX_DOORS && oldest !== undefined) doors.delete(oldest);
    return door;
  }

  function wrap(provider: AgentProvider): AgentProvider {
    const byReference = new Map<string, Door>();
    const forget = (reference: string): void => {
      const door = byReference.get(reference);
      byReference.delete(reference);
      if (door !== undefined) doors.delete(door.token);
    };

    async function run(turn: SupervisedTurn, signal: AbortSignal): Promise<AgentEnd> {
      if (turn.mcpServers?.some(isOurs) !== true) return provider.run(turn, signal);
      const known = turn.reference === undefined ? undefined : byReference.get(turn.reference);
      const isOpen = known !== undefined && doors.has(known.token) && known.payer === payerName(turn);
      const door = isOpen ? known : openDoor(provider.id, turn);
      const ended = new AbortController();
      const used: TurnUsage[] = [];
      const askAgent = createAskAgent({
        turn,
        agent: provider.id,
        model: '',
        agents: options.agentsToAsk(),
        requests: createRequests(Number.POSITIVE_INFINITY),
        clock,
        keep,
        used: (usage) => void (usage !== undefined && used.push(usage)),
      });
      const stopping = joinSignals(signal, ended.signal);
      const running: RunningTurn = { turn, signal: stopping.signal, askAgent, jobs: 0 };
      door.running = running;
      if (turn.reference !== undefined) byReference.set(turn.reference, door);
      const url = await urlFor(provider.id, turn.owner);
      const headers = [{ name: 'Authorization', value: `Bearer ${door.token}` }];
      const mcpServers = turn.mcpServers.map((server): SessionMcpServer => {
        return isOurs(server) ? { type: 'http', name: server.name, url, headers, isOurs: true } : server;
      });
      try {
        const opened = (reference: string): void => {
          byReference.set(reference, door);
          turn.opened(reference);
        };
        const end = await provider.run({ ...turn, mcpServers, opened }, signal);
        return end.kind === 'lost' ? end : { ...end, ...sumOf(end.usage, used) };
      } finally {
        // An agent that did not stop in time ends late: the next turn of the session may run by then.
        if (door.running === running) door.running = undefined;
        ended.abort();
        stopping.release();
      }
    }

    return {
      ...provider,
      run,
      // A copy gets its own tools when its first turn resumes it.
      ...(provider.fork !== undefined && {
        fork: (reference, fork) =>
          provider.fork?.(reference, withoutOurs(fork)) ?? Promise.resolve({ why: 'this agent cannot copy' }),
      }),
      close(reference, closing) {
        forget(reference);
        return provider.close(reference, closing);
      },
    };
  }

  return {
    wrap,
    serve: answer,
    async stop() {
      const server = await listening;
      server?.closeAllConnections();
      server?.close();
      doors.clear();
      await Promise.all(left);
    },
  };
}

function withoutOurs<Given extends { readonly mcpServers?: readonly SessionMcpServer[] }>(given: Given): Given {
  const { mcpServers } = given;
  return mcpServers === undefined ? given : { ...given, mcpServers: mcpServers.filter((server) => !isOurs(server)) };
}

/** Asks within the turn (decision 94): `ask_agent` of `trestle tools` would start a session with rights of its own. */
function createAskTool(ids: readonly string[], ask: ReturnType<typeof createAskAgent>): OfferedTool {
  return defineOffered({
    name: 'ask_agent',
    description: `Has another agent work on a part of the task in the same folder, and returns its answer. It sees nothing of this conversation: say in the prompt all that it needs to know. At most ${MAX_ASKED} in a turn. Agents: ${ids.join(', ')}.`,
    input: Type.Object({
      prompt: Type.String({ minLength: 1, maxLength: MAX_PROMPT, description: 'The task.' }),
      provider: Type.Optional(Type.String({ maxLength: 64, description: `One of the agents. Default ${BUILTIN}.` })),
    }),
    async run({ prompt, provider }, { signal }) {
      const { text, failed } = await ask(provider, prompt, signal);
      if (failed === true) throw refused(text);
      return text;
    },
  });
}

/** Wraps a tool so that its calls end with the turn, and ask for permission where the tool needs it. */
function withinTurn(tool: OfferedTool, running: () => RunningTurn, policy: PermissionPolicy): OfferedTool {
  return {
    ...tool,
    async run(input, call) {
      const current = running();
      const { signal, release } = joinSignals(call.signal, current.signal);
      try {
        if (NEEDS_PERMISSION.has(tool.name)) {
          const title = `trestle: ${tool.name}`;
          const question = { toolCallId: '', title, toolKind: 'other', input, options: PLAIN_OPTIONS };
          const { decision, reason } = await current.turn.permit(question, policy, signal);
          if (decision !== 'allowed') throw refused(`it is not permitted${reason === undefined ? '' : `: ${reason}`}`);
        }
        if (tool.name === 'submit_job') {
          if (current.jobs >= MAX_ASKED) throw refused(`this turn has submitted ${MAX_ASKED} jobs already`);
          current.jobs += 1;
        }
        return await tool.run(input, { ...call, signal });
      } finally {
        release();
      }
    },
  };
}

/** Adds the usage of the agents that were asked. The sum has a cost only if the cost of every agent is known. */
function sumOf(own: TurnUsage | undefined, asked: readonly TurnUsage[]): { readonly usage?: TurnUsage } {
  const all = own === undefined ? asked : [own, ...asked];
  if (all.length === 0) return {};
  const sum = (member: keyof TurnUsage) => all.reduce((total, usage) => total + (usage[member] ?? 0), 0);
  const hasCost = all.every(({ costUsd }) => costUsd !== undefined);
  if (asked.length === 0) return { usage: all[0] as TurnUsage };
  const [inputTokens, outputTokens, totalTokens] = [sum('inputTokens'), sum('outputTokens'), sum('totalTokens')];
  return { usage: { inputTokens, outputTokens, totalTokens, ...(hasCost && { costUsd: sum('costUsd') }) } };
}
