import { formatDuration, parseDuration } from '../../platform/config/setting.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { describeError } from '../../platform/errors/error-table.ts';
import { may, ownersSought, type Principal, sees } from '../../platform/identity/principal.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { SubmittedJob } from '../contract/jobs.ts';
import type {
  NewSchedule,
  Schedule,
  ScheduleChanges,
  SchedulePage,
  ScheduleQuery,
  ScheduleTask,
} from '../contract/schedules.ts';
import { bridgeErrors } from '../errors.ts';
import type { StoredTask } from '../jobs/submit-job.ts';
import { mergedPages, TENANT, workingFor } from '../principal.ts';
import { readMcpServers, type ServerBox, shownServers } from '../sessions/mcp-servers.ts';
import type { ScheduleRow } from '../storage/bridge-schema.ts';
import type { ScheduleStore } from '../storage/schedule-store.ts';
import {
  checkTiming,
  createFiring,
  type FiringJobs,
  nextTime,
  type Timing,
  upcomingTimes,
  wrong,
} from './fire-schedules.ts';

/** Schedules of tasks: the operations for people, and the firing that makes jobs. */
export interface Schedules {
  create(principal: Principal, given: NewSchedule): Promise<Schedule>;
  list(principal: Principal, query: ScheduleQuery): Promise<SchedulePage>;
  show(principal: Principal, scheduleId: string): Promise<Schedule>;
  change(principal: Principal, scheduleId: string, changes: ScheduleChanges): Promise<Schedule>;
  remove(principal: Principal, scheduleId: string): Promise<void>;
  /** Makes a job now, in addition to the times of the schedule. */
  run(principal: Principal, scheduleId: string): Promise<SubmittedJob>;
  /** Makes jobs of the schedules that are due. */
  fireDue(): Promise<void>;
  /** Deletes the schedules of a person whose account was deleted. */
  removeOf(owner: string): Promise<void>;
  /** Stops firing; resolves when a firing that has begun is stored. */
  stop(): Promise<void>;
}

export interface SchedulesOptions extends Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  readonly store: ScheduleStore;
  readonly jobs: FiringJobs;
  readonly serverBox: ServerBox;
  readonly maxOfOwner: number;
  readonly minIntervalMs: number;
  /** Whether agents may work for an owner, at this moment. */
  mayWork(schedule: Pick<ScheduleRow, 'owner' | 'member'>): Promise<boolean>;
  /** Whether the account of an owner was deleted. */
  isGone(owner: string): Promise<boolean>;
}

const DEFAULT_LIMIT = 50;
const SCHEDULE_ID = /^sch_[0-9a-z]{26}$/;

export function createSchedules(options: SchedulesOptions): Schedules {
  const { store, jobs, serverBox, clock, makeId, maxOfOwner, minIntervalMs } = options;
  const firing = createFiring(options);

  async function find(principal: Principal, scheduleId: string, action?: 'start' | 'cancel'): Promise<ScheduleRow> {
    const row = SCHEDULE_ID.test(scheduleId) ? await store.find(scheduleId) : undefined;
    if (row === undefined || !sees(principal, row.owner)) throw new AppError('SCHEDULE_NOT_FOUND', { scheduleId });
    if (action !== undefined && !may(principal, action, row.owner)) throw new AppError('FORBIDDEN');
    return row;
  }

  /** Refuses a task that every firing would refuse. */
  async function checkTask(task: ScheduleTask, owner: string): Promise<void> {
    try {
      await jobs.check(task, owner);
    } catch (error) {
      const { code, message } = describeError(bridgeErrors, error);
      if (!(error instanceof AppError)) throw error;
      throw new AppError('SCHEDULE_TASK_REFUSED', { reason: message, code, issues: issuesOf(error) });
    }
  }

  /** Returns the task as it is stored. A task without `mcpServers` keeps the sealed servers of before. */
  function stored(scheduleId: string, { mcpServers, ...task }: ScheduleTask, before = ''): string {
    const sealedServers = mcpServers === undefined ? before : serverBox.seal(scheduleId, readMcpServers(mcpServers));
    return JSON.stringify({ ...task, ...(sealedServers !== '' && { sealedServers }) } satisfies StoredTask);
  }

  function shown({ id, task: text }: ScheduleRow): Schedule['task'] {
    const { sealedServers = '', ...task } = taskOf(text);
    return sealedServers === '' ? task : { ...task, mcpServers: shownServers(serverBox.open(id, sealedServers)) };
  }

  const toSchedule = (row: ScheduleRow): Schedule => ({ ...viewOf(row), task: shown(row) });

  /** The next time of a schedule that has just been set; null while it is not enabled. */
  async function begin(timing: Timing, isEnabled: boolean, now: number): Promise<number | null> {
    await checkTiming(timing, now, minIntervalMs);
    return isEnabled ? ((await nextTime(timing, now, now)) ?? null) : null;
  }

  async function toView(row: ScheduleRow): Promise<Schedule> {
    const upcoming = row.next_at === null ? [] : await upcomingTimes(row, row.next_at);
    return { ...toSchedule(row), upcoming };
  }

  return {
    async create(principal, given) {
      const owner = principal.id;
      if (!may(principal, 'start', owner)) throw new AppError('FORBIDDEN');
      const { name, task, enabled = true, overlap = 'skip', catchUp = 'none' } = given;
      const now = clock.now();
      const timing = readTiming(given, undefined);
      if (timing === undefined) throw wrong('cron', 'is missing: give cron or every');
      const nextAt = await begin(timing, enabled, now);
      await checkTask(task, owner);
      const id = makeId('sch_');
      const row: ScheduleRow = {
        id,
        owner,
        tenant: TENANT,
        name: JSON.stringify(name),
        ...timing,
        task: stored(id, task),
        enabled: enabled ? 1 : 0,
        overlap,
        catch_up: catchUp,
        next_at: nextAt,
        counted_at: now,
        version: 1,
        last_at: null,
        last_result: '',
        last_message: '',
        last_job_id: '',
        created_at: now,
        updated_at: now,
        member: principal.member?.id ?? '',
      };
      await store.add(row, maxOfOwner);
      return toView(row);
    },
    async list(principal, { owner: asked, limit = DEFAULT_LIMIT, cursor = '' }) {
      if (cursor !== '' && !SCHEDULE_ID.test(cursor)) {
        throw wrong('cursor', 'is not one that a list gave; leave it out to begin again');
      }
      if (asked !== undefined && !sees(principal, asked)) return { schedules: [], nextCursor: null };
      const rows = await mergedPages(
        asked === undefined ? ownersSought(principal) : [asked],
        (owner) => store.list(owner, cursor, limit + 1),
        { order: (one, other) => (one.id < other.id ? 1 : -1), limit: limit + 1 },
      );
      const page = rows.slice(0, limit);
      return {
        schedules: page.map(toSchedule),
        nextCursor: rows.length > limit ? (page.at(-1)?.id ?? null) : null,
      };
    },
    show: async (principal, scheduleId) => toView(await find(principal, scheduleId)),
    async change(principal, scheduleId, changes) {
      for (;;) {
        const row = await find(principal, scheduleId, isPause(changes) ? 'cancel' : 'start');
        const now = clock.now();
        const { name, task, enabled = row.enabled === 1, overlap = row.overlap, catchUp = row.catch_up } = changes;
        const timing = readTiming(changes, row);
        const isNewTime = timing !== undefined || enabled !== (row.enabled === 1);
        const nextAt = isNewTime ? await begin(timing ?? row, enabled, now) : row.next_at;
        if (task !== undefined) await checkTask(task, row.owner);
        const changed: ScheduleRow = {
          ...row,
          ...timing,
          ...(name !== undefined && { name: JSON.stringify(name) }),
          ...(task !== undefined && { task: stored(row.id, task, taskOf(row.task).sealedServers) }),
          enabled: enabled ? 1 : 0,
          overlap,
          catch_up: catchUp,
          next_at: nextAt,
          ...(isNewTime && { counted_at: now }),
          updated_at: now,
          member: isPause(changes) ? row.member : memberFor(principal, row),
        };
        // The schedule was changed or has fired since it was read, so the changes are applied to its current state.
        if (await store.replace(row, changed)) return toView(changed);
      }
    },
    async remove(principal, scheduleId) {
      await find(principal, scheduleId, 'cancel');
      await store.remove(scheduleId);
    },
    async run(principal, scheduleId) {
      const row = await find(principal, scheduleId, 'start');
      const schedule = { ...row, member: memberFor(principal, row) };
      return jobs.addScheduled(taskOf(row.task), schedule, (jobId) => [store.ran(row.id, jobId)]);
    },
    fireDue: firing.fireDue,
    removeOf: store.removeOf,
    stop: firing.stop,
  };
}

/** Returns the member whose limits count for a schedule of a team: the one who changed it last, because its creator may leave. */
function memberFor(principal: Principal, { owner, member }: ScheduleRow): string {
  return workingFor(principal, owner).member?.id ?? member;
}

/** Whether changes only pause a schedule: anyone who may cancel the owner's work may do that. */
function isPause(changes: ScheduleChanges): boolean {
  return changes.enabled === false && Object.keys(changes).length === 1;
}

/** Undefined when nothing about the times is given. `row` is the schedule that is changed. */
function readTiming(
  { cron, every, timezone }: Pick<NewSchedule, 'cron' | 'every' | 'timezone'>,
  row: Timing | undefined,
): Timing | undefined {
  if (cron !== undefined && every !== undefined)
    throw wrong('every', 'cannot be given with cron; leave one of them out');
  if (cron === undefined && every === undefined) {
    if (timezone === undefined || row === undefined) return undefined;
    return { cron: row.cron, every_ms: row.every_ms, timezone };
  }
  const everyMs = every === undefined ? 0 : (parseDuration(every) ?? 0);
  if (every !== undefined && (everyMs === 0 || everyMs > MAX_INTERVAL_MS)) {
    throw wrong('every', 'must be a duration from 1m to 366d');
  }
  return { cron: cron ?? '', every_ms: everyMs, timezone: timezone ?? row?.timezone ?? 'UTC' };
}

const MAX_INTERVAL_MS = 366 * 86_400_000;

/** The members of a task that are wrong, by their place in the schedule. */
function issuesOf({ details }: AppError): readonly { readonly path: string; readonly message: string }[] {
  const { issues } = details as { readonly issues?: unknown };
  if (!Array.isArray(issues)) return [];
  return issues.map(({ path, message }) => ({ path: `/task${String(path)}`, message: String(message) }));
}

const taskOf = (text: string) => JSON.parse(text) as StoredTask;

function viewOf(row: ScheduleRow): Omit<Schedule, 'task'> {
  return {
    scheduleId: row.id,
    owner: row.owner,
    name: JSON.parse(row.name) as string,
    cron: row.cron === '' ? null : row.cron,
    every: row.every_ms === 0 ? null : formatDuration(row.every_ms),
    timezone: row.timezone,
    enabled: row.enabled === 1,
    overlap: row.overlap,
    catchUp: row.catch_up,
    nextAt: row.next_at,
    upcoming: [],
    last:
      row.last_at === null || row.last_result === ''
        ? null
        : { at: row.last_at, result: row.last_result, message: row.last_message },
    lastJobId: row.last_job_id === '' ? null : row.last_job_id,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  };
}
