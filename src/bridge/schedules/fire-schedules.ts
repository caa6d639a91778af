import type { Cron } from 'croner';
import { isStoreFault } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { describeError } from '../../platform/errors/error-table.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { bridgeErrors } from '../errors.ts';
import { STOPPED } from '../jobs/job-record.ts';
import type { JobSubmission, StoredTask } from '../jobs/submit-job.ts';
import type { ScheduleRow } from '../storage/bridge-schema.ts';
import type { JobStore } from '../storage/job-store.ts';
import type { ScheduleAdvance, ScheduleStore } from '../storage/schedule-store.ts';

/** What schedules need of jobs. */
export interface FiringJobs extends Pick<JobStore, 'find'>, Pick<JobSubmission, 'check' | 'addScheduled'> {}

/** Makes jobs of schedules that are due. */
interface Firing {
  fireDue(): Promise<void>;
  stop(): Promise<void>;
}

interface FiringOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly store: Pick<ScheduleStore, 'due' | 'aheadOf' | 'advance' | 'skip' | 'replace' | 'removeOf'>;
  readonly jobs: FiringJobs;
  mayWork(schedule: Pick<ScheduleRow, 'owner' | 'member'>): Promise<boolean>;
  /** Whether the account of an owner was deleted. */
  isGone(owner: string): Promise<boolean>;
}

/** A firing that is later than this counts as missed: the bridge was stopped, or the clock was set forwards. */
const LATE_MS = 60_000;
/**
 * After a clock was set back by less than this, repeated times fire once. After more, the clock was wrong before, and all times
 * count again, as in common cron programs.
 */
const SET_BACK_MS = 3 * 3_600_000;
const PAGE = 100;

export function createFiring({ store, jobs, clock, logger, mayWork, isGone }: FiringOptions): Firing {
  let underWay: Promise<void> | undefined;
  let isStopped = false;

  /** Why nothing is fired at this time; undefined when there is no reason. */
  async function refusal(schedule: ScheduleRow, now: number): Promise<Outcome | undefined> {
    const isLate = now - (schedule.next_at ?? now) > LATE_MS;
    if (isLate && schedule.catch_up === 'none') return { result: 'missed', message: 'The bridge was stopped then.' };
    if (!(await mayWork(schedule))) return { result: 'refused', message: STOPPED.ownerInactive.error ?? '' };
    const last = schedule.last_job_id === '' ? undefined : await jobs.find(schedule.last_job_id);
    if (schedule.overlap === 'queue' || last?.completed_at !== null) return undefined;
    return { result: 'skipped', message: `Job ${last.id} had not ended.` };
  }

  async function fire(schedule: ScheduleRow): Promise<void> {
    const now = clock.now();
    const dueAt = schedule.next_at ?? now;
    const nextAt = (await nextTime(schedule, Math.max(now, dueAt), dueAt)) ?? null;
    const advance = { schedule, nextAt, now, jobId: schedule.last_job_id };
    const skip = async (outcome: Outcome): Promise<void> => {
      await store.skip({ ...advance, ...outcome });
      logger.info({ scheduleId: schedule.id, ...outcome }, 'a schedule was due and fired nothing');
    };
    try {
      // The bridge or its store was stopped when the account was deleted.
      if (await isGone(schedule.owner)) return await store.removeOf(schedule.owner);
      const reason = await refusal(schedule, now);
      if (reason !== undefined) return await skip(reason);
      const task = JSON.parse(schedule.task) as StoredTask;
      await jobs.addScheduled(task, schedule, (jobId) => [
        store.advance({ ...advance, result: 'fired', message: '', jobId }),
      ]);
    } catch (error) {
      // Another bridge has fired it, or it was changed in between.
      if (errorCode(error) === 'STORAGE_CONFLICT') return;
      if (!(error instanceof AppError) || isStoreFault(error)) throw error;
      await skip({ result: 'refused', message: describeError(bridgeErrors, error).message });
    }
  }

  /** The clock was set back by far: the next times are counted from what it says now. */
  async function countAgain(): Promise<void> {
    const now = clock.now();
    for (const schedule of await store.aheadOf(now + SET_BACK_MS, PAGE)) {
      const nextAt = schedule.next_at === null ? null : ((await nextTime(schedule, now, now)) ?? null);
      await store.replace(schedule, { ...schedule, next_at: nextAt, counted_at: now });
    }
  }

  async function fireAll(): Promise<void> {
    await countAgain();
    // A schedule that could not be fired is tried again in the next round, and does not stop others.
    const failed = new Set<string>();
    for (;;) {
      const due = (await store.due(clock.now(), PAGE + failed.size)).filter(({ id }) => !failed.has(id));
      if (due.length === 0) return;
      for (const schedule of due) {
        if (isStopped) return;
        await fire(schedule).catch((error: unknown) => {
          failed.add(schedule.id);
          logger.warn({ err: error, scheduleId: schedule.id }, 'a schedule that is due could not be fired');
        });
      }
    }
  }

  return {
    fireDue() {
      if (isStopped) return Promise.resolve();
      underWay ??= fireAll().finally(() => {
        underWay = undefined;
      });
      return underWay;
    },
    async stop() {
      isStopped = true;
      await underWay?.catch(() => undefined);
    },
  };
}

type Outcome = Pick<ScheduleAdvance, 'result' | 'message'>;

/** When a schedule fires: `cron` in a timezone, or every so many milliseconds. One of them is empty, or 0. */
export type Timing = Pick<ScheduleRow, 'cron' | 'every_ms' | 'timezone'>;

const UPCOMING = 5;
/** How many firings of a pattern are compared to find the shortest interval. */
const LOOKED_AT = 60;

/**
 * Returns the first time after a moment; undefined: there is none. `anchor` is one of the times of an interval, from which the
 * others are counted. A time of day that a change to summer time skips fires at the end of the gap. A time that comes twice fires
 * the first time, unless the pattern has no fixed hour.
 */
export async function nextTime(timing: Timing, after: number, anchor: number): Promise<number | undefined> {
  if (timing.every_ms > 0) {
    const steps = Math.floor((after - anchor) / timing.every_ms) + 1;
    return anchor + Math.max(1, steps) * timing.every_ms;
  }
  return (await open(timing)).nextRun(new Date(after))?.getTime();
}

export async function upcomingTimes(timing: Timing, next: number): Promise<number[]> {
  const times = [next];
  while (times.length < UPCOMING) {
    const last = times.at(-1) ?? next;
    const following = await nextTime(timing, last, last);
    if (following === undefined) break;
    times.push(following);
  }
  return times;
}

const CRON_FIELDS = 5;

/** Throws INVALID_REQUEST, naming the wrong member, for a timing that is not possible or not allowed. */
export async function checkTiming(timing: Timing, now: number, minIntervalMs: number): Promise<void> {
  if (timing.every_ms > 0) {
    if (timing.every_ms < minIntervalMs) throw tooOften('every', minIntervalMs);
    return;
  }
  checkTimezone(timing.timezone);
  let times: readonly Date[];
  try {
    times = (await open(timing)).nextRuns(LOOKED_AT, new Date(now));
  } catch (error) {
    const words = error instanceof Error ? error.message.replace(/^\w+: /, '') : '';
    // The library accepts more fields than a schedule, and its message would name that number.
    const more = timing.cron.trim().split(/\s+/).length === CRON_FIELDS ? `: ${words}` : '';
    throw wrong('cron', `is not a pattern of five fields such as "0 8 * * 1-5"${more}`);
  }
  if (times.length === 0) throw wrong('cron', 'names a time that never comes; check day and month');
  const isTooOften = times.some((time, index) => index > 0 && Number(time) - Number(times[index - 1]) < minIntervalMs);
  if (isTooOften) throw tooOften('cron', minIntervalMs);
}

function checkTimezone(timezone: string): void {
  try {
    new Intl.DateTimeFormat('en', { timeZone: timezone });
  } catch {
    throw wrong('timezone', 'is not known; give a name such as Europe/Berlin or UTC');
  }
}

/** Loaded with the first schedule. */
async function open({ cron, timezone }: Timing): Promise<Cron> {
  const { Cron: Pattern } = await import('croner');
  return new Pattern(cron, { timezone, paused: true, mode: '5-part' });
}

function tooOften(member: string, minIntervalMs: number): AppError {
  const minutes = Math.ceil(minIntervalMs / 60_000);
  return wrong(member, `fires more often than jobs.min_schedule_interval allows: at least ${minutes} minutes apart`);
}

export function wrong(member: string, message: string): AppError {
  return new AppError('INVALID_REQUEST', {
    reason: `${member} ${message}`,
    issues: [{ path: `/${member}`, message }],
  });
}
