import { describeError } from '../../platform/errors/error-table.ts';
import type { SessionResult } from '../contract/session.ts';
import { bridgeErrors } from '../errors.ts';
import type { JobOutcome } from './job-record.ts';

/** The end of a job: what came of it, and which agent did it (empty: unknown). */
export interface JobEnding extends JobOutcome {
  readonly status: 'completed' | 'failed';
  readonly providerId: string;
}

/** Why a job ends without its turn having a say. */
export const STOPPED = {
  timeout: stopped('JOB_TIMEOUT', 'The job took longer than its timeoutMs.'),
  cancelled: stopped('JOB_CANCELLED', 'The job was cancelled.'),
  interrupted: stopped('JOB_INTERRUPTED', 'The bridge was stopped while the job was running.'),
} as const;

/** What the result of a turn means for its job (contract/bridge 7). */
export function endingOf(result: SessionResult, wasCancelled: boolean): JobEnding {
  const providerId = result.resolvedProviderId || result.resolvedGatewayProviderId;
  const rest = { result: { ...result }, providerId };
  if (result.status === 'completed') return { ...rest, status: 'completed', error: null, errorCode: null };
  if (wasCancelled || result.status === 'cancelled') return { ...STOPPED.cancelled, ...rest };
  if (result.code === 'TURN_INTERRUPTED') return { ...STOPPED.interrupted, ...rest };
  const error = result.error ?? 'The turn failed.';
  return { ...rest, status: 'failed', error, errorCode: result.code ?? 'AGENT_FAILED' };
}

/** A turn that could not be run at all. What is no error of ours to show stays out of it. */
export function endingOfError(error: unknown, wasCancelled: boolean): JobEnding {
  if (wasCancelled) return STOPPED.cancelled;
  const { code, message } = describeError(bridgeErrors, error);
  return { status: 'failed', providerId: '', result: null, error: message, errorCode: code };
}

function stopped(errorCode: string, error: string): JobEnding {
  return { status: 'failed', providerId: '', result: null, error, errorCode };
}
