import { createHash } from 'node:crypto';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { SubmitJobParams, SubmittedJob } from '../contract/jobs.ts';
import type { RoutingResolution, TurnRouting } from '../contract/routing.ts';
import { readPlan } from '../multi-agent/multi-agent-plan.ts';
import { TENANT } from '../principal.ts';
import { type RouteRequest, wantsGateway } from '../routing/resolve-route.ts';
import type { JobRow } from '../storage/bridge-schema.ts';
import type { JobReportStore } from '../storage/job-report-store.ts';
import type { JobStore } from '../storage/job-store.ts';
import type { CallbackPost } from './callbacks.ts';
import type { JobRequest } from './job-record.ts';

/** `app.jobs.submit`: resolves when the job is stored for good. */
export type SubmitJob = (params: SubmitJobParams, owner: string) => Promise<SubmittedJob>;

export interface SubmitJobOptions {
  readonly store: Pick<JobStore, 'add' | 'findByKey'>;
  readonly countWaiting: JobReportStore['countPending'];
  readonly maxWaitingOfOwner: number;
  readonly agentIds: readonly string[];
  readonly gatewayId: string;
  readonly clock: Pick<Clock, 'now'>;
  readonly makeId: MakeId;
  route(request: RouteRequest): Promise<RoutingResolution>;
  /** Throws WORKING_DIRECTORY_REFUSED. */
  checkDirectory(path: string): Promise<unknown>;
  readonly checkCallback: CallbackPost['check'];
  onSubmitted(): void;
}

const DEFAULT_TIMEOUT_MS = 600_000;

export function createSubmitJob(options: SubmitJobOptions): SubmitJob {
  const { store, agentIds, gatewayId, clock, makeId, onSubmitted } = options;

  /** What the turn will be asked for; everything that can be known to fail is refused now. */
  async function prepare(params: SubmitJobParams): Promise<PreparedRequest> {
    const routing = readRouting(params);
    const { taskPrompt = '', workingDirectory = '', multiAgent, mode } = params;
    const { target = '', channel = '', accountId = '' } = params;
    if (isMultiAgent(params)) {
      if (wantsGateway(routing)) throw new AppError('GATEWAY_MULTI_AGENT_CONFLICT');
      readPlan(routing, taskPrompt, agentIds);
    } else if (taskPrompt === '') {
      throw new AppError('INVALID_PARAMS', { reason: 'taskPrompt is needed, and not empty' });
    }
    if (workingDirectory !== '') await options.checkDirectory(workingDirectory);
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

  /** A provider that is named for the job is the one that its turn is routed to, be it an agent or the gateway. */
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

  /** The provider as far as it is known now. Without a named one, routing decides again when the job runs. */
  async function providerOf(request: PreparedRequest): Promise<string> {
    const { routing, taskPrompt: prompt } = request;
    if (isMultiAgent(request)) return '';
    if (routing.explicitProviderId) return routing.explicitProviderId;
    const route = await options.route({ routing, prompt, sessionAgent: '', continues: false });
    return route.resolvedProviderId || route.resolvedGatewayProviderId || (routing.preferredGatewayProviderId ?? '');
  }

  return async (params, owner) => {
    const { idempotencyKey } = params;
    checkCharacters(params.sessionId, params.threadId, idempotencyKey);
    const fingerprint = idempotencyKey === undefined ? '' : fingerprintOf(params);
    const earlier = idempotencyKey === undefined ? undefined : await store.findByKey(owner, idempotencyKey);
    if (earlier !== undefined) return repeated(earlier, fingerprint);
    if ((await options.countWaiting(owner)) >= options.maxWaitingOfOwner) throw new AppError('OVERLOADED');
    const request = await prepare(params);
    const callbackUrl = readCallback(params);
    const [webhookUrl, providerId] = await Promise.all([
      callbackUrl === '' ? '' : options.checkCallback(callbackUrl),
      providerOf(request),
    ]);
    const id = makeId('job-');
    const now = clock.now();
    const { timeoutMs = DEFAULT_TIMEOUT_MS } = params;
    const sessionId = params.sessionId || id;
    const job: JobRow = {
      id,
      owner,
      tenant: TENANT,
      status: 'pending',
      provider_id: providerId,
      session_id: sessionId,
      thread_id: params.threadId || sessionId,
      request: JSON.stringify(request),
      idempotency_key: idempotencyKey ?? null,
      request_fingerprint: fingerprint,
      retry_on_restart: params.retryOnRestart === true ? 1 : 0,
      timeout_ms: timeoutMs,
      created_at: now,
      deadline_at: now + timeoutMs,
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
    };
    try {
      await store.add(job);
    } catch (error) {
      // The same key came twice at the same time, and the other call was first.
      if (idempotencyKey === undefined || errorCode(error) !== 'STORAGE_DUPLICATE') throw error;
      const first = await store.findByKey(owner, idempotencyKey);
      if (first === undefined) throw error;
      return repeated(first, fingerprint);
    }
    onSubmitted();
    return answerOf(job);
  };
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
