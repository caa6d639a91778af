import type { SubmittedJob } from '../bridge/contract/jobs.ts';
import type {
  NewSchedule,
  Schedule,
  ScheduleChanges,
  SchedulePage,
  ScheduleQuery,
} from '../bridge/contract/schedules.ts';
import type { CallOptions } from './bridge-transport.ts';
import type { RequestWorkbench } from './http-exchange.ts';

/** Tasks that become jobs at certain times (`/api/bridge/schedules`). */
export interface Schedules {
  /**
   * Lists schedules, newest first.
   *
   * @example
   * ```ts
   * const { schedules } = await trestle.schedules.list();
   * console.log(schedules.map(({ name, nextAt }) => `${name} ${nextAt}`));
   * ```
   */
  list(query?: ScheduleQuery, options?: CallOptions): Promise<SchedulePage>;
  /**
   * Makes a task a job at the times of a cron pattern, or at intervals. Each job has a session of its own unless the task names one.
   *
   * @example
   * ```ts
   * const task = { taskPrompt: 'Summarise the open issues' };
   * const made = await trestle.schedules.create({ name: 'report', cron: '0 8 * * 1-5', timezone: 'Europe/Berlin', task });
   * console.log(made.upcoming.map((time) => new Date(time).toISOString()));
   * ```
   */
  create(schedule: NewSchedule, options?: CallOptions): Promise<Schedule>;
  /**
   * Returns one schedule with its next five times, and the outcome of the last one.
   *
   * @example
   * ```ts
   * const { scheduleId } = await trestle.schedules.create({ name: 'shown', every: '6h', task: { taskPrompt: 'Hello' } });
   * console.log((await trestle.schedules.get(scheduleId)).last);
   * ```
   */
  get(scheduleId: string, options?: CallOptions): Promise<Schedule>;
  /**
   * Changes a schedule. `enabled: false` pauses it.
   *
   * @example
   * ```ts
   * const { scheduleId } = await trestle.schedules.create({ name: 'paused', every: '1d', task: { taskPrompt: 'Hello' } });
   * console.log((await trestle.schedules.update(scheduleId, { enabled: false })).nextAt);
   * ```
   */
  update(scheduleId: string, changes: ScheduleChanges, options?: CallOptions): Promise<Schedule>;
  /**
   * Runs a schedule now, in addition to its set times.
   *
   * @example
   * ```ts
   * const { scheduleId } = await trestle.schedules.create({ name: 'now', every: '1d', task: { taskPrompt: 'Hello' } });
   * console.log((await trestle.schedules.run(scheduleId)).jobId);
   * ```
   */
  run(scheduleId: string, options?: CallOptions): Promise<SubmittedJob>;
  /**
   * Removes a schedule. Its jobs stay.
   *
   * @example
   * ```ts
   * const { scheduleId } = await trestle.schedules.create({ name: 'short', every: '1d', task: { taskPrompt: 'Hello' } });
   * await trestle.schedules.remove(scheduleId);
   * ```
   */
  remove(scheduleId: string, options?: CallOptions): Promise<void>;
}

export function createSchedules(request: RequestWorkbench): Schedules {
  const pathOf = (scheduleId: string, rest = '') => `schedules/${encodeURIComponent(scheduleId)}${rest}`;
  const one = async (asked: Promise<{ readonly schedule: Schedule }>) => (await asked).schedule;
  return {
    list: (query = {}, options) => request({ path: 'schedules', query }, options),
    create: (body, options) => one(request({ method: 'POST', path: 'schedules', body }, options)),
    get: (scheduleId, options) => one(request({ path: pathOf(scheduleId) }, options)),
    update: (scheduleId, body, options) => one(request({ method: 'PATCH', path: pathOf(scheduleId), body }, options)),
    run: (scheduleId, options) => request({ method: 'POST', path: pathOf(scheduleId, '/run') }, options),
    async remove(scheduleId, options) {
      await request({ method: 'DELETE', path: pathOf(scheduleId) }, options);
    },
  };
}
