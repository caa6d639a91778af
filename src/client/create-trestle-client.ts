import type { Static } from 'typebox';
import type { FolderPage } from '../bridge/contract/files.ts';
import type {
  JobList as ContractJobList,
  JobRecord as ContractJobRecord,
  DeliveryAttempt,
  JobStatistics,
  ListJobsParams,
  SubmitJobParams,
  SubmittedJob,
} from '../bridge/contract/jobs.ts';
import type {
  GatewayConnectParams,
  GatewayConnectResult,
  GatewayDisconnectParams,
  GatewayRequestParams,
  GatewayRequestResult,
  RoutingInput,
  RoutingResolution,
  ToolsInvokeParams,
} from '../bridge/contract/routing.ts';
import type { SessionResult } from '../bridge/contract/session.ts';
import type { Capabilities } from '../bridge/contract/surface.ts';
import type { AuditPage, AuditQuery } from '../bridge/contract/workbench.ts';
import { type AgentSession, createAgentSession, type SessionDefaults } from './agent-session.ts';
import {
  type BridgeTransport,
  type CallBridge,
  type CallOptions,
  createCallIds,
  type MakeCallId,
  withinLimits,
} from './bridge-transport.ts';
import { createHttpTransport, createSocketTransport } from './create-transports.ts';
import {
  addressOf,
  createHttpExchange,
  type HttpExchange,
  headersOf,
  type RequestText,
  type RequestWorkbench,
  requestText,
  requestWorkbench,
} from './http-exchange.ts';
import { createLive, type Live } from './live-client.ts';
import { createSchedules, type Schedules } from './schedules-client.ts';
import {
  type Agents,
  type Attachments,
  createAgents,
  createAttachments,
  createPermissions,
  createSessions,
  type Permissions,
  type Sessions,
} from './sessions-client.ts';
import { createOpenLink, type OpenLink, type OpenSocket, openGlobalSocket } from './socket-link.ts';

/** How calls travel. `sse` and `websocket` bring updates as they happen, `http` only results. */
export type TransportName = 'sse' | 'websocket' | 'http';

export interface TrestleClientOptions {
  /** Of the server, such as `http://127.0.0.1:8787`. */
  readonly url: string;
  /** The bridge's token; leave it out where none is configured. */
  readonly token?: string;
  /** The id of a team that you are in: what this client starts is the team's, and it sees the work of the team only. */
  readonly team?: string;
  /** `sse` unless given: it works everywhere, in browsers with a token too. */
  readonly transport?: TransportName;
  /** Of calls that are no turns; 30 s unless given. */
  readonly callTimeoutMs?: number;
  /** How long a bridge that cannot be reached is tried again; 60 s unless given. */
  readonly reconnectMs?: number;
  /** How many updates of a turn may wait to be read; 10,000 unless given. */
  readonly maxWaitingUpdates?: number;
  /** Instead of the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** Instead of the global `WebSocket`; for one that sends the headers it is given. */
  readonly openSocket?: OpenSocket;
}

/** The bridge's method family. Failures are `TrestleError`s. */
export interface TrestleClient {
  /**
   * Returns the agents, gateways and methods of the bridge.
   *
   * @example
   * ```ts
   * const { providerCatalog } = await trestle.capabilities();
   * for (const { providerId, label } of providerCatalog) console.log(providerId, label);
   * ```
   */
  capabilities(options?: CallOptions): Promise<Capabilities>;
  /**
   * Returns the agent that would do the work, without doing it.
   *
   * @example
   * ```ts
   * const { resolvedProviderId } = await trestle.resolve({ taskPrompt: 'Fix the tests' });
   * console.log(resolvedProviderId);
   * ```
   */
  resolve(params: ResolveParams, options?: CallOptions): Promise<RoutingResolution>;
  /**
   * Names a session. Nothing is sent until its first call.
   *
   * @example
   * ```ts
   * const session = trestle.session('notes', { routing: { explicitProviderId: 'builtin' } });
   * const { output } = await session.start('Hello').result;
   * console.log(output);
   * ```
   */
  session(sessionId: string, defaults?: SessionDefaults): AgentSession;
  readonly sessions: Sessions;
  /**
   * Returns the folders in which agents may work, and the folders inside of `path`.
   *
   * @example
   * ```ts
   * console.log((await trestle.folders()).roots);
   * ```
   */
  folders(path?: string, options?: CallOptions): Promise<FolderPage>;
  /**
   * Returns decisions about permissions, newest first.
   *
   * @example
   * ```ts
   * const { entries } = await trestle.audit({ limit: 10 });
   * console.log(entries.map(({ action, decision }) => `${action} ${decision}`));
   * ```
   */
  audit(query?: AuditQuery, options?: CallOptions): Promise<AuditPage>;
  readonly agents: Agents;
  readonly permissions: Permissions;
  readonly attachments: Attachments;
  readonly jobs: Jobs;
  readonly schedules: Schedules;
  readonly live: Live;
  readonly gateway: Gateway;
  readonly tools: Tools;
  /**
   * Ends every waiting call with CLIENT_CLOSED. Turns and jobs continue at the bridge.
   *
   * @example
   * ```ts
   * trestle.close();
   * ```
   */
  close(): void;
}

export interface ResolveParams {
  readonly taskPrompt?: string;
  readonly workingDirectory?: string;
  readonly routing?: RoutingInput;
}

const STREAM_SILENCE_MS = 45_000;
const SOCKET_SILENCE_MS = 15_000;

/**
 * Creates a client of one bridge. It connects with the first call.
 *
 * @example
 * ```ts
 * const client = createTrestleClient({ url: 'http://127.0.0.1:8787', transport: 'websocket' });
 * const { output } = await client.session('greeting').start('Hello').result;
 * console.log(output);
 * client.close();
 * ```
 */
export function createTrestleClient(options: TrestleClientOptions): TrestleClient {
  const { callTimeoutMs = 30_000, reconnectMs = 60_000, maxWaitingUpdates = 10_000 } = options;
  const closed = new AbortController();
  const makeCallId = createCallIds();
  const headers = headersOf(options);
  const send: typeof fetch = options.fetch ?? ((input, init) => fetch(input, init));
  const exchange = createHttpExchange({
    rpcUrl: addressOf(options.url, 'acp/rpc'),
    headers,
    fetch: send,
    streamSilenceMs: STREAM_SILENCE_MS,
  });
  const linkTo = (path: string): OpenLink =>
    createOpenLink({
      socketUrl: addressOf(options.url, path).replace(/^http/, 'ws'),
      headers,
      openSocket: options.openSocket ?? openGlobalSocket,
      exchange,
      makeCallId,
      silenceMs: SOCKET_SILENCE_MS,
    });
  const openLink = linkTo('acp');
  const transport = chooseTransport(options.transport ?? 'sse', { exchange, openLink, makeCallId, reconnectMs });

  async function call<Result>(
    { method, params, isRepeatable = true }: Parameters<CallBridge>[0],
    callOptions: CallOptions = {},
  ): Promise<Result> {
    const limits = { timeoutMs: callTimeoutMs, ...callOptions };
    return withinLimits(limits, closed.signal, async (signal) => {
      return (await transport.call({ method, params, isRepeatable }, signal)) as Result;
    });
  }

  const workbench = { url: addressOf(options.url, 'api/bridge/'), headers, fetch: send };
  const limited = <Result>(callOptions: CallOptions = {}, work: (signal: AbortSignal) => Promise<Result>) =>
    withinLimits({ timeoutMs: callTimeoutMs, ...callOptions }, closed.signal, work);
  const request: RequestWorkbench = async <Result>(wanted: Parameters<RequestWorkbench>[0], callOptions = {}) =>
    limited(callOptions, async (signal) => (await requestWorkbench(workbench, wanted, signal)) as Result);
  const readPage: RequestText = (wanted, callOptions) =>
    limited(callOptions, (signal) => requestText(workbench, wanted, signal));

  return {
    capabilities: (callOptions) => call({ method: 'acp.capabilities', params: {} }, callOptions),
    resolve: (params, callOptions) => call({ method: 'app.routing.resolve', params }, callOptions),
    session: (sessionId, defaults = {}) =>
      createAgentSession({
        sessionId,
        defaults,
        call,
        runTurn: transport.turn,
        openLink,
        reconnectMs,
        maxWaitingUpdates,
        closed: closed.signal,
      }),
    sessions: createSessions(request, readPage),
    folders: (path, callOptions) => request({ path: 'folders', query: { path } }, callOptions),
    audit: (query = {}, callOptions) => request({ path: 'audit', query }, callOptions),
    agents: createAgents(request),
    permissions: createPermissions(request),
    attachments: createAttachments(request),
    jobs: createJobs(call, makeCallId),
    schedules: createSchedules(request),
    live: createLive({ openLink: linkTo('api/bridge/live'), makeCallId, closed: closed.signal }),
    gateway: createGateway(call),
    tools: createTools(call),
    close() {
      closed.abort();
      transport.close();
    },
  };
}

interface TransportParts {
  readonly exchange: HttpExchange;
  readonly openLink: OpenLink;
  readonly makeCallId: MakeCallId;
  readonly reconnectMs: number;
}

function chooseTransport(name: TransportName, parts: TransportParts): BridgeTransport {
  if (name === 'websocket') return createSocketTransport(parts);
  return createHttpTransport({ ...parts, streamsTurns: name === 'sse' });
}

/** The gateway behind the bridge. */
export interface Gateway {
  /**
   * Connects the bridge to its gateway, unless it is connected.
   *
   * @example
   * ```ts
   * await trestle.gateway.connect();
   * ```
   */
  connect(params?: Static<typeof GatewayConnectParams>, options?: CallOptions): Promise<GatewayConnectResult>;
  /**
   * Calls a method of the gateway. A refusal is a result with `ok: false`. Never sent twice.
   *
   * @example
   * ```ts
   * const { ok, payload } = await trestle.gateway.request({ method: 'sessions.list', params: {} });
   * console.log(ok, payload);
   * ```
   */
  request(params: Static<typeof GatewayRequestParams>, options?: CallOptions): Promise<GatewayRequestResult>;
  /**
   * Disconnects the bridge from its gateway when the last running task has ended.
   *
   * @example
   * ```ts
   * await trestle.gateway.disconnect();
   * ```
   */
  disconnect(params?: Static<typeof GatewayDisconnectParams>, options?: CallOptions): Promise<void>;
}

/** The tools proxy. */
export interface Tools {
  /**
   * Calls a tool and returns its response, unchanged. Never sent twice.
   *
   * @example
   * ```ts
   * console.log(await trestle.tools.invoke({ tool: 'message', action: 'send', args: { text: 'Hello' } }));
   * ```
   */
  invoke(
    params: Static<typeof ToolsInvokeParams> & { readonly tool: string },
    options?: CallOptions,
  ): Promise<Record<string, unknown>>;
}

function createGateway(call: CallBridge): Gateway {
  return {
    connect: (params = {}, options) => call({ method: 'app.gateway.connect', params }, options),
    request: (params, options) => call({ method: 'app.gateway.request', params, isRepeatable: false }, options),
    async disconnect(params = {}, options) {
      await call({ method: 'app.gateway.disconnect', params }, options);
    },
  };
}

function createTools(call: CallBridge): Tools {
  return {
    invoke: (params, options) => call({ method: 'app.tools.invoke', params, isRepeatable: false }, options),
  };
}

export interface JobRecord extends Omit<ContractJobRecord, 'result'> {
  /** As a turn gives it; null until there is one. */
  readonly result: SessionResult | null;
}

/** One job, with every attempt to deliver its result. */
export interface JobDetails extends JobRecord {
  readonly deliveries: readonly DeliveryAttempt[];
}

export interface JobList extends Omit<ContractJobList, 'jobs'> {
  /** Newest first. */
  readonly jobs: readonly JobRecord[];
}

/** What a job id that the bridge does not know gives. */
export interface UnknownJob {
  readonly jobId: string;
  readonly status: 'not_found';
}

/** Background jobs. */
export interface Jobs {
  /**
   * Resolves when the bridge has stored the job. However often the call has to be sent, it becomes one job.
   *
   * @example
   * ```ts
   * const { jobId } = await trestle.jobs.submit({ sessionId: 'nightly', taskPrompt: 'Hello from the background' });
   * console.log(jobId);
   * ```
   */
  submit(params: SubmitJobParams, options?: CallOptions): Promise<SubmittedJob>;
  /**
   * Returns a job with its status, at its end its result, and every attempt to deliver it. `submit({ retryOf: jobId })` runs it again.
   *
   * @example
   * ```ts
   * const { jobId } = await trestle.jobs.submit({ sessionId: 'weekly', taskPrompt: 'Hello' });
   * console.log((await trestle.jobs.get(jobId)).status);
   * ```
   */
  get(jobId: string, options?: CallOptions): Promise<JobDetails | UnknownJob>;
  /**
   * Lists jobs, the newest first.
   *
   * @example
   * ```ts
   * const { jobs } = await trestle.jobs.list({ limit: 10, search: 'hello' });
   * for (const { jobId, status } of jobs) console.log(jobId, status);
   * ```
   */
  list(params?: ListJobsParams, options?: CallOptions): Promise<JobList>;
  /**
   * Counts the jobs by status.
   *
   * @example
   * ```ts
   * console.log(await trestle.jobs.stats());
   * ```
   */
  stats(options?: CallOptions): Promise<JobStatistics>;
}

function createJobs(call: CallBridge, makeCallId: MakeCallId): Jobs {
  return {
    submit: (params, options) =>
      call({ method: 'app.jobs.submit', params: { idempotencyKey: makeCallId(), ...params } }, options),
    get: (jobId, options) => call({ method: 'app.jobs.get', params: { jobId } }, options),
    list: (params = {}, options) => call({ method: 'app.jobs.list', params }, options),
    stats: (options) => call({ method: 'app.jobs.stats', params: {} }, options),
  };
}
