import { describeError } from '../../platform/errors/error-table.ts';
import { type DeliveryAttempt, JobPriority, type JobRecord } from '../contract/jobs.ts';
import type { SessionResult, TurnParams } from '../contract/session.ts';
import { bridgeErrors } from '../errors.ts';
import { answerOf } from '../sessions/turn-outcome.ts';
import type { DeliveryAttemptRow, JobRow } from '../storage/bridge-schema.ts';
import type { EndedTurn } from '../storage/job-search-store.ts';

/** The part of a submit that is stored as JSON: no search needs these members. */
export interface JobRequest
  extends Pick<TurnParams, 'taskPrompt' | 'workingDirectory' | 'routing' | 'multiAgent' | 'mode' | 'attachments'> {
  readonly card?: JobCard;
  /** The MCP servers of a session that it starts, sealed for the id of the job. */
  readonly sealedServers?: string;
  /** Starts the session again, even if it has an open conversation. */
  readonly newSession?: boolean;
  /** The job that this one repeats. */
  readonly retryOf?: string;
}

/** Where the result is sent as a card. */
interface JobCard {
  readonly target: string;
  readonly channel: string;
  readonly accountId: string;
}

/** The outcome of a job. */
export interface JobOutcome {
  /** The result of its turn, where there was one. */
  readonly result: Readonly<Record<string, unknown>> | null;
  readonly error: string | null;
  readonly errorCode: string | null;
}

const STILL_OPEN: JobOutcome = { result: null, error: null, errorCode: null };

export function requestOf(job: JobRow): JobRequest {
  return JSON.parse(job.request) as JobRequest;
}

export function outcomeOf(job: JobRow): JobOutcome {
  return job.outcome === '' ? STILL_OPEN : (JSON.parse(job.outcome) as JobOutcome);
}

const PROMPT_LENGTH = 200;

/** A job as callers, lists and webhooks see it. */
export function toRecord(job: JobRow, now: number): JobRecord {
  const { started_at: start, completed_at: end } = job;
  const { result, error, errorCode } = outcomeOf(job);
  const { taskPrompt = '', retryOf = null } = requestOf(job);
  return {
    jobId: job.id,
    owner: job.owner,
    status: job.status,
    taskPrompt: taskPrompt.slice(0, PROMPT_LENGTH).toWellFormed(),
    priority: JobPriority.enum[job.priority] ?? 'normal',
    retries: job.retries,
    retried: job.retried,
    notBefore: job.not_before === 0 ? null : toMoment(job.not_before),
    scheduleId: job.schedule_id === '' ? null : job.schedule_id,
    retryOf,
    sessionId: job.session_id,
    threadId: job.thread_id,
    providerId: job.provider_id,
    createdAt: toMoment(job.created_at),
    startedAt: start === null ? null : toMoment(start),
    completedAt: end === null ? null : toMoment(end),
    elapsedMs: Math.max(0, (end ?? now) - job.created_at),
    durationMs: start === null || end === null ? null : end - start,
    timeoutMs: job.timeout_ms,
    webhookSent: job.webhook_sent === 1,
    webhookTries: job.webhook_tries,
    cardSent: job.card_sent === 1,
    result,
    error,
    errorCode,
  };
}

export function toAttempt({
  kind,
  attempt,
  started_at,
  ended_at,
  result,
  detail,
}: DeliveryAttemptRow): DeliveryAttempt {
  const endedAt = ended_at === null ? null : toMoment(ended_at);
  return { kind, attempt, startedAt: toMoment(started_at), endedAt, result, detail };
}

/** Failures that a retry may solve. */
const PASSING: ReadonlySet<string | null> = new Set(['AGENT_EXITED', 'AGENT_TIMEOUT', 'PROVIDER_UNAVAILABLE']);
const FIRST_PAUSE_MS = 5000;
const MAX_PAUSE_MS = 5 * 60_000;

/** When a job that has failed is run again. Undefined: it is not run again, or its deadline comes first. */
export function retryTime(job: JobRow, { errorCode }: JobEnding, now: number): number | undefined {
  if (!PASSING.has(errorCode) || job.retried >= job.retries) return undefined;
  const at = now + Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** job.retried);
  return at < job.deadline_at ? at : undefined;
}

/** Whether a job waits for its retry. A time beyond the longest pause means that the clock was set back. */
export function isPutOff({ retry_at: retryAt }: JobRow, now: number): boolean {
  return retryAt > now && retryAt <= now + MAX_PAUSE_MS;
}

function toMoment(ms: number): string {
  return new Date(ms).toISOString();
}

/** The end of a job: its outcome, and which agent worked on it (empty: unknown). */
export interface JobEnding extends JobOutcome {
  readonly status: 'completed' | 'failed';
  readonly providerId: string;
}

/** The endings of jobs that do not depend on the result of a turn. */
export const STOPPED = {
  timeout: stopped('JOB_TIMEOUT', 'The job took longer than its timeoutMs.'),
  cancelled: stopped('JOB_CANCELLED', 'The job was cancelled.'),
  ownerInactive: stopped('JOB_CANCELLED', 'The owner of the job is paused, or has left.'),
  interrupted: stopped('JOB_INTERRUPTED', 'The bridge was stopped while the job was running.'),
} as const;

/** Returns the ending of a job from the result of its turn. */
export function endingOf(result: SessionResult, wasCancelled: boolean): JobEnding {
  const providerId = result.resolvedProviderId || result.resolvedGatewayProviderId;
  const rest = { result: { ...result }, providerId };
  if (result.status === 'completed') return { ...rest, status: 'completed', error: null, errorCode: null };
  if (wasCancelled || result.status === 'cancelled') return { ...STOPPED.cancelled, ...rest };
  if (result.code === 'TURN_INTERRUPTED') return { ...STOPPED.interrupted, ...rest };
  const error = result.error ?? 'The turn failed.';
  return { ...rest, status: 'failed', error, errorCode: result.code ?? 'AGENT_FAILED' };
}

/**
 * The same for a turn as it is stored. A job whose time is up cancels its turn, so a turn that was cancelled after the
 * deadline means a timeout, unless the job itself was cancelled.
 */
export function endingOfTurn(job: JobRow, { outcome, endedAt }: EndedTurn): JobEnding {
  const wasCancelled = job.stop_requested === 1;
  try {
    const result = JSON.parse(answerOf(outcome).text) as SessionResult;
    const isTooLate = result.status === 'cancelled' && !wasCancelled && endedAt >= job.deadline_at;
    return isTooLate ? STOPPED.timeout : endingOf(result, wasCancelled);
  } catch (error) {
    return endingOfError(error, wasCancelled);
  }
}

/** Returns the ending of a job whose turn could not be run. It shows errors of our own table only. */
export function endingOfError(error: unknown, wasCancelled: boolean): JobEnding {
  if (wasCancelled) return STOPPED.cancelled;
  const { code, message } = describeError(bridgeErrors, error);
  return { status: 'failed', providerId: '', result: null, error: message, errorCode: code };
}

function stopped(errorCode: string, error: string): JobEnding {
  return { status: 'failed', providerId: '', result: null, error, errorCode };
}
