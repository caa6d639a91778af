import { createHash } from 'node:crypto';
import type { CallbackPost } from '../../platform/callbacks/callback-post.ts';
import type { Clock } from '../../platform/clock/clock.ts';
import type { Statement } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { lowestLimit } from '../../platform/identity/owner.ts';
import { countedFor, may, type Principal, sees } from '../../platform/identity/principal.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { Attachments } from '../attachments/create-attachments.ts';
import { readGivenFiles } from '../attachments/given-files.ts';
import { JobPriority, type SubmitJobParams, type SubmittedJob } from '../contract/jobs.ts';
import type { RoutingResolution, TurnRouting } from '../contract/routing.ts';
import type { ScheduleTask } from '../contract/schedules.ts';
import { readPlan } from '../multi-agent/multi-agent-plan.ts';
import { type PrincipalFor, TENANT, workingFor } from '../principal.ts';
import { type RouteRequest, wantsGateway } from '../routing/resolve-route.ts';
import { readMcpServers, type ServerBox, type SessionMcpServer } from '../sessions/mcp-servers.ts';
import { searchText } from '../sessions/session-summaries.ts';
import type { JobRow, ScheduleRow } from '../storage/bridge-schema.ts';
import type { JobReportStore } from '../storage/job-report-store.ts';
import type { JobStore } from '../storage/job-store.ts';
import { type JobRequest, requestOf } from './job-record.ts';

export interface JobSubmission {
  readonly submit: SubmitJob;
  /** Throws what a submit with these params would throw; stores nothing. */
  check(params: SubmitJobParams, owner: string): Promise<unknown>;
  /** Adds a job of a schedule; `more` is stored in the same commit. Throws NOT_IN_TEAM when its member has left the team. */
  addScheduled(
    task: StoredTask,
    schedule: Pick<ScheduleRow, 'id' | 'owner' | 'member'>,
    more?: (jobId: string) => readonly Statement[],
  ): Promise<SubmittedJob>;
}

/** The task of a schedule as it is stored: its MCP servers are sealed for the id of the schedule. */
export type StoredTask = Omit<ScheduleTask, 'mcpServers'> & { readonly sealedServers?: string };

/** `app.jobs.submit`: resolves when the job is committed. */
export type SubmitJob = (params: SubmitJobParams, principal: Principal) => Promise<SubmittedJob>;

export interface SubmitJobOptions {
  readonly store: Pick<JobStore, 'add' | 'find' | 'findByKey'>;
  readonly countOpen: JobReportStore['countOpen'];
  /** Whose limits count for stored work. */
  readonly principalFor: PrincipalFor;
  readonly maxWaitingOfOwner: number;
  readonly agentIds: readonly string[];
  readonly gatewayId: string;
  readonly clock: Pick<Clock, 'now'>;
  readonly makeId: MakeId;
  route(request: RouteRequest): Promise<RoutingResolution>;
  /** Keeps the files of the prompt until the job runs. */
  readonly keepFiles: Attachments['forJob'];
  /** Throws WORKING_DIRECTORY_REFUSED. */
  checkDirectory(path: string, owner: string): Promise<unknown>;
  readonly serverBox: ServerBox;
  /** Throws MCP_SERVER_REFUSED. */
  checkServers(servers: readonly SessionMcpServer[], folder: string): void;
  /** Throws GATEWAY_NOT_FOR_PEOPLE. */
  checkGatewayOwner(owner: string): void;
  readonly checkCallback: CallbackPost['check'];
  onSubmitted(): void;
}

const DEFAULT_TIMEOUT_MS = 600_000;
const MAX_WAIT_MS = 366 * 86_400_000;
const SEARCHED_LENGTH = 200;

export function createSubmitJob(options: SubmitJobOptions): JobSubmission {
  const { store, agentIds, gatewayId, clock, makeId, onSubmitted } = options;
  /** By owner, the number of jobs that are being stored: they count before the store has them. */
  const beingStored = new Map<string, number>();

  /** Reads the request for the turn, and refuses whatever is certain to fail. */
  async function readRequest(params: SubmitJobParams, owner: string): Promise<PreparedRequest> {
    const routing = readRouting(params);
    const { taskPrompt = '', workingDirectory = '', multiAgent, mode } = params;
    const { target = '', channel = '', accountId = '' } = params;
    if (isMultiAgent(params)) {
      if (wantsGateway(routing)) throw new AppError('GATEWAY_MULTI_AGENT_CONFLICT');
      readPlan(routing, taskPrompt, agentIds);
    } else if (taskPrompt === '') {
      throw new AppError('INVALID_PARAMS', { reason: 'taskPrompt is needed, and not empty' });
    }
    if (target !== '' || wantsGateway(routing)) options.checkGatewayOwner(owner);
    if (workingDirectory !== '') await options.checkDirectory(workingDirectory, owner);
    return {
      taskPrompt,
      routing,
      ...(workingDirectory !== '' && { workingDirectory }),
      ...(multiAgent !== undefined && { multiAgent }),
      ...(mode !== undefined && { mode }),
      ...(params.newSession === true && { newSession: true }),
      ...(target !== '' && { card: { target, channel, accountId } }),
    };
  }

  /** Routes the turn to the provider that the job names: an agent or the gateway. */
  function readRouting({ providerId = '', routing = {} }: SubmitJobParams): TurnRouting {
    const named = routing.explicitProviderId || providerId;
    if (providerId !== '' && named !== providerId) {
      throw new AppError('INVALID_PARAMS', { reason: 'providerId and routing.explicitProviderId are not the same' });
    }
    if (named === '') return routing;
    if (named === gatewayId && !agentIds.includes(named)) {
      const { explicitProviderId: _named, ...rest } = routing;
      return { ...rest, explicitExecutionTarget: 'gateway', preferredGatewayProviderId: named };
    }
    if (!agentIds.includes(named)) {
      throw new AppError('PROVIDER_UNKNOWN', { providerId: named, known: [...agentIds, gatewayId].join(', ') });
    }
    return { ...routing, explicitProviderId: named };
  }

  /** Returns the provider if it is known now. If the job names none, routing decides again when the job runs. */
  async function providerOf(request: PreparedRequest): Promise<string> {
    const { routing, taskPrompt: prompt } = request;
    if (isMultiAgent(request)) return '';
    if (routing.explicitProviderId) return routing.explicitProviderId;
    const route = await options.route({ routing, prompt, sessionAgent: '', continues: false });
    return route.resolvedProviderId || route.resolvedGatewayProviderId || (routing.preferredGatewayProviderId ?? '');
  }

  /**
   * Throws when the principal, or the person who works for a team, has as many jobs as it may have; otherwise counts one
   * more until the function that it returns is called.
   */
  async function takePlace(principal: Principal): Promise<() => void> {
    const counted = countedFor(principal);
    const open = await Promise.all(counted.map(({ id }) => options.countOpen(id)));
    // No await from here until the job is counted.
    for (const [index, { id, buckets }] of counted.entries()) {
      const { pending, running } = open[index] ?? { pending: 0, running: 0 };
      const coming = beingStored.get(id) ?? 0;
      if (pending + coming >= options.maxWaitingOfOwner) throw new AppError('OVERLOADED');
      const lowest = lowestLimit(buckets, 'jobs');
      const most = lowest?.limits.jobs ?? Number.POSITIVE_INFINITY;
      if (lowest !== undefined && pending + running + coming >= most) {
        throw new AppError('TOO_MANY_JOBS', {
          of: `${lowest.name.charAt(0).toUpperCase()}${lowest.name.slice(1)}`,
          most,
        });
      }
    }
    const add = (id: string, by: number): void => {
      const left = (beingStored.get(id) ?? 0) + by;
      if (left > 0) beingStored.set(id, left);
      else beingStored.delete(id);
    };
    for (const { id } of counted) add(id, 1);
    return () => {
      for (const { id } of counted) add(id, -1);
    };
  }

  /** Reads the job to run again, and makes the params of its submit. */
  async function readRepeated(params: SubmitJobParams, principal: Principal) {
    const { retryOf = '' } = params;
    const given = Object.keys(params).find((name) => !WITH_RETRY.has(name));
    if (given !== undefined) throw invalid(given, `cannot be given with retryOf; leave ${given} out`);
    const job = retryOf.isWellFormed() ? await store.find(retryOf) : undefined;
    if (job === undefined || !sees(principal, job.owner)) {
      throw invalid('retryOf', 'names no job that you have; app.jobs.list lists them');
    }
    if (!may(principal, 'start', job.owner)) throw new AppError('FORBIDDEN');
    if (job.completed_at === null) throw invalid('retryOf', 'names a job that has not ended; wait, or cancel it first');
    const { retryOf: _retryOf, ...changes } = params;
    const { params: before, sealedServers } = paramsOf(job);
    const own = workingFor(principal, job.owner);
    // What an administrator runs again counts for those that it counted for before.
    const who = own.id === job.owner ? own : await options.principalFor(job.owner, job.member);
    return { who, params: { ...before, ...changes }, servers: options.serverBox.open(job.id, sealedServers) };
  }

  /** Checks the params and makes the job, without storing it. */
  async function prepare(params: SubmitJobParams, owner: string, made: MadeBy = {}): Promise<JobRow> {
    const { member = '', scheduleId = '', retryOf, fingerprint = '' } = made;
    const { idempotencyKey } = params;
    checkCharacters(params.sessionId, params.threadId, idempotencyKey);
    const request = await readRequest(params, owner);
    const servers = made.servers ?? readMcpServers(params.mcpServers);
    options.checkServers(servers, request.workingDirectory ?? '');
    const callbackUrl = readCallback(params);
    const [webhookUrl, providerId] = await Promise.all([
      callbackUrl === '' ? '' : options.checkCallback(callbackUrl),
      providerOf(request),
    ]);
    const id = makeId('job-');
    const now = clock.now();
    const { timeoutMs = DEFAULT_TIMEOUT_MS, priority = 'normal', retries = 0 } = params;
    const notBefore = readNotBefore(params.notBefore, now);
    const deadline = Math.max(now, notBefore) + timeoutMs;
    const files = made.isCheck === true ? checkFiles(params) : await options.keepFiles(owner, params, deadline);
    const sessionId = params.sessionId || id;
    const sealedServers = options.serverBox.seal(id, servers);
    return {
      id,
      owner,
      tenant: TENANT,
      status: 'pending',
      provider_id: providerId,
      session_id: sessionId,
      thread_id: params.threadId || sessionId,
      request: JSON.stringify({
        ...request,
        ...files,
        ...(sealedServers !== '' && { sealedServers }),
        ...(retryOf !== undefined && { retryOf }),
      }),
      idempotency_key: idempotencyKey ?? null,
      request_fingerprint: fingerprint,
      retry_on_restart: params.retryOnRestart === true ? 1 : 0,
      timeout_ms: timeoutMs,
      created_at: now,
      deadline_at: deadline,
      started_at: null,
      completed_at: null,
      instance: null,
      attempt: 0,
      stop_requested: 0,
      outcome: '',
      webhook_url: webhookUrl,
      webhook_sent: 0,
      webhook_tries: 0,
      card_sent: 0,
      priority: JobPriority.enum.indexOf(priority),
      retries,
      retried: 0,
      not_before: notBefore,
      retry_at: 0,
      schedule_id: scheduleId,
      search_text: searchText(request.taskPrompt.slice(0, SEARCHED_LENGTH), `${id}\n${sessionId}`),
      member,
    };
  }

  /** Makes and stores a job, unless its owner has as many as it may have. */
  async function add(
    params: SubmitJobParams,
    who: Principal,
    made: MadeBy,
    more?: (jobId: string) => readonly Statement[],
  ): Promise<SubmittedJob> {
    const leave = await takePlace(who);
    try {
      const job = await prepare(params, who.id, { ...made, member: who.member?.id ?? '' });
      await store.add(job, more?.(job.id));
      onSubmitted();
      return answerOf(job);
    } finally {
      leave();
    }
  }

  async function submit(given: SubmitJobParams, principal: Principal): Promise<SubmittedJob> {
    const { idempotencyKey, retryOf } = given;
    checkCharacters(idempotencyKey);
    const fingerprint = idempotencyKey === undefined ? '' : fingerprintOf(given);
    const { params, who, ...made } =
      retryOf === undefined ? { params: given, who: principal } : await readRepeated(given, principal);
    const { id: owner } = who;
    const earlier = idempotencyKey === undefined ? undefined : await store.findByKey(owner, idempotencyKey);
    if (earlier !== undefined) return repeated(earlier, fingerprint);
    try {
      return await add(params, who, { ...made, fingerprint, ...(retryOf !== undefined && { retryOf }) });
    } catch (error) {
      // The same key came twice at the same time, and the other call was first.
      if (idempotencyKey === undefined || errorCode(error) !== 'STORAGE_DUPLICATE') throw error;
      const first = await store.findByKey(owner, idempotencyKey);
      if (first === undefined) throw error;
      return repeated(first, fingerprint);
    }
  }

  return {
    submit,
    check: (params, owner) => prepare(params, owner, { isCheck: true }),
    async addScheduled({ sealedServers = '', ...task }, { id: scheduleId, owner, member }, more) {
      const servers = options.serverBox.open(scheduleId, sealedServers);
      return add(task, await options.principalFor(owner, member), { scheduleId, servers }, more);
    },
  };
}

/** What made a job, other than a plain submit. */
interface MadeBy {
  readonly member?: string;
  readonly scheduleId?: string;
  readonly retryOf?: string;
  readonly fingerprint?: string;
  /** The MCP servers of what it is made from. Absent: the params have them. */
  readonly servers?: readonly SessionMcpServer[];
  /** No job is made, and nothing is kept for one. */
  readonly isCheck?: true;
}

/** Refuses uploads in a task that runs again and again: they are deleted after a day. */
function checkFiles(params: SubmitJobParams): object {
  const index = readGivenFiles(params).findIndex(({ kind }) => kind === 'stored');
  if (index === -1) return {};
  throw invalid(
    `attachments/${index}/attachmentId`,
    'names an upload, which is kept for a day; give its `data` instead',
  );
}

/** The params that may be changed for a job that is run again. */
const WITH_RETRY: ReadonlySet<string> = new Set([
  'retryOf',
  'timeoutMs',
  'priority',
  'retries',
  'notBefore',
  'idempotencyKey',
]);

/** Returns the params of a submit that repeats a job. A job with a session of its own gets a new session; otherwise its session is continued. */
function paramsOf(job: JobRow): { readonly params: SubmitJobParams; readonly sealedServers: string } {
  const { card, retryOf: _retryOf, sealedServers = '', ...request } = requestOf(job);
  const isOwnSession = job.session_id === job.id;
  const params = {
    ...request,
    ...card,
    ...(isOwnSession ? {} : { sessionId: job.session_id }),
    ...(job.thread_id === job.session_id ? {} : { threadId: job.thread_id }),
    ...(job.webhook_url !== '' && { callbackUrl: job.webhook_url }),
    timeoutMs: job.timeout_ms,
    priority: JobPriority.enum[job.priority] ?? 'normal',
    retries: job.retries,
    retryOnRestart: job.retry_on_restart === 1,
  };
  return { params, sealedServers };
}

/** Returns 0 if no moment is given or the moment has passed: then the job may run now. */
function readNotBefore(text: string | undefined, now: number): number {
  if (text === undefined) return 0;
  const at = Date.parse(text);
  if (Number.isNaN(at)) throw invalid('notBefore', 'is not a moment that exists');
  if (at > now + MAX_WAIT_MS) throw invalid('notBefore', 'is more than 366 days ahead');
  return at <= now ? 0 : at;
}

export function invalid(field: string, message: string): AppError {
  return new AppError('INVALID_PARAMS', { reason: `${field} ${message}`, issues: [{ path: `/${field}`, message }] });
}

type PreparedRequest = JobRequest & { readonly taskPrompt: string; readonly routing: TurnRouting };

function isMultiAgent({ multiAgent, mode }: Pick<SubmitJobParams, 'multiAgent' | 'mode'>): boolean {
  return multiAgent === true || mode === 'multi-agent';
}

function answerOf({ id, status, session_id: sessionId, provider_id: providerId }: JobRow): SubmittedJob {
  return { jobId: id, status, sessionId, providerId };
}

/** The answer to a submit whose key was used before. A job of an older release has no fingerprint to compare. */
function repeated(earlier: JobRow, fingerprint: string): SubmittedJob {
  if (earlier.request_fingerprint !== '' && earlier.request_fingerprint !== fingerprint) {
    throw new AppError('IDEMPOTENCY_KEY_REUSED', { jobId: earlier.id });
  }
  return answerOf(earlier);
}

/** The same for the same params, in whatever order their members come. */
function fingerprintOf({ idempotencyKey: _key, ...params }: SubmitJobParams): string {
  const text = JSON.stringify(params, (_name, value: unknown) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
    return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
  });
  return createHash('sha256').update(text).digest('hex');
}

function readCallback({ callbackUrl = '', webhookUrl = '' }: SubmitJobParams): string {
  if (callbackUrl !== '' && webhookUrl !== '' && callbackUrl !== webhookUrl) {
    throw new AppError('INVALID_PARAMS', { reason: 'callbackUrl and webhookUrl are one setting: give one of them' });
  }
  return callbackUrl || webhookUrl;
}

/** Half a character cannot be stored as it is, and two of them would become the same name. */
function checkCharacters(...texts: readonly (string | undefined)[]): void {
  if (texts.every((text) => text === undefined || text.isWellFormed())) return;
  throw new AppError('INVALID_PARAMS', {
    reason: 'sessionId, threadId and idempotencyKey must be whole characters',
  });
}
