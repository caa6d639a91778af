import type { JobOutcome } from '../../../../src/bridge/jobs/job-record.ts';
import type { JobRow } from '../../../../src/bridge/storage/bridge-schema.ts';
import { isOfStore, type StoreManners } from '../played-store.ts';
import type { JobsEvent } from './job-events.ts';

/** Ends that the turn of a job may have by itself. */
const LOST = 'SESSION_CONTINUATION_UNAVAILABLE';
const OF_TURNS = ['AGENT_FAILED', 'EMPTY_OUTPUT', LOST, 'TURN_INTERRUPTED'];
/** The jobs are looked after each second. */
const LOOKED_AFTER_MS = 1000;
/** Reads and writes of a good store take a few milliseconds each. */
const STORE_MS = 500;
/** A job that was cancelled ends when its agent is quiet, or is given up. */
const QUIET_MS = 7000;

/** Every end has its reason, and comes when it must. */
export function checkEndings(events: readonly JobsEvent[], jobs: readonly JobRow[], manners: StoreManners): string[] {
  const cancelled = new Set(events.flatMap((event) => (event.kind === 'cancel' ? [event.sessionId] : [])));
  const outputs = new Set(
    events.flatMap((event) =>
      event.kind === 'run' && event.end === 'completed' ? [`${event.prompt}\n${event.output}`] : [],
    ),
  );
  const wasStopped = events.some(({ kind }) => kind === 'kill' || kind === 'stop');
  const isWallRight = !events.some(({ kind }) => kind === 'wall-step');
  const isCalm = manners.fails + manners.isSlow === 0 && !wasStopped;

  return jobs.flatMap((job) => {
    const { id, status, created_at: created, completed_at: end, timeout_ms: timeout } = job;
    if (end === null) return [];
    const { result, errorCode } = JSON.parse(job.outcome) as JobOutcome;
    const prompt = promptOf(job);
    const problems: string[] = [];
    const say = (problem: string) => void problems.push(`job ${id} ("${prompt}") ${problem}`);
    if (job.instance !== null) say('has ended and belongs to a bridge');
    if (status === 'completed' && !outputs.has(`${prompt}\n${result?.output}`)) {
      say(`is completed with "${result?.output}", which no agent has said`);
    }
    if ((status === 'completed') !== (errorCode === null)) say(`is ${status} with ${errorCode}`);
    if (isWallRight && errorCode === 'JOB_TIMEOUT' && end - created < timeout) {
      say(`timed out after ${end - created} of ${timeout} ms`);
    }
    const quietMs = cancelled.has(job.session_id) ? QUIET_MS : 0;
    if (isWallRight && isCalm && end - created > timeout + LOOKED_AFTER_MS + STORE_MS + quietMs) {
      say(`went on for ${end - created} of ${timeout} ms`);
    }
    if (errorCode === 'JOB_CANCELLED' && !cancelled.has(job.session_id)) say('was cancelled by nobody');
    if (errorCode === 'JOB_INTERRUPTED') {
      if (job.retry_on_restart === 1) say('was interrupted, and was to be run again');
      if (!wasStopped && manners.fails === 0) say('was interrupted by nothing');
    }
    // On a session that several jobs share, one may name another agent than the one that has the conversation.
    if (errorCode === LOST && job.session_id === id) say('has lost the conversation of its own session');
    const isKnown =
      errorCode === null ||
      errorCode.startsWith('JOB_') ||
      OF_TURNS.includes(errorCode) ||
      (manners.fails > 0 && isOfStore(errorCode));
    if (!isKnown) say(`failed with ${errorCode}`);
    return problems;
  });
}

/** What its agent is asked: no other job has the same. */
export function promptOf({ request }: Pick<JobRow, 'request'>): string {
  return (JSON.parse(request) as { readonly taskPrompt: string }).taskPrompt;
}
