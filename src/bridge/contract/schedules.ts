import { type Static, Type } from 'typebox';
import { SubmitJobParams } from './jobs.ts';
import { ShownMcpServer } from './session.ts';

/** Schedules: tasks that become jobs at certain times. */

/** The task that a firing submits: the params of a submit without those of a single job. */
export const ScheduleTask = Type.Object(
  Type.Omit(SubmitJobParams, ['idempotencyKey', 'notBefore', 'retryOf', 'team']).properties,
  {
    additionalProperties: false,
    description: 'As for `app.jobs.submit`. Without `sessionId`, each job has its own session.',
  },
);

const ShownTask = Type.Object({
  ...ScheduleTask.properties,
  mcpServers: Type.Optional(Type.Array(ShownMcpServer, { description: 'Without secrets.' })),
});

const name = Type.String({
  minLength: 1,
  maxLength: 200,
  pattern: '^[^\\u0000-\\u001f\\u007f]*$',
  description: 'A display name.',
});
const cron = Type.String({
  minLength: 1,
  maxLength: 120,
  description: 'Minute, hour, day of month, month, day of week: `0 8 * * 1-5`. Or give `every`.',
});
const every = Type.String({
  pattern: '^\\d{1,9}(m|h|d)$',
  description: 'A duration such as `30m`, `6h` or `1d`, counted from the time at which it was set. Or give `cron`.',
});
const timezone = Type.String({
  minLength: 1,
  maxLength: 64,
  description: 'Of `cron`, such as `Europe/Berlin`. Default: `UTC`.',
});
const enabled = Type.Boolean({ description: 'A disabled schedule starts no jobs. Default: `true`.' });
const overlap = Type.Enum(['skip', 'queue'], {
  description:
    'While the previous job is still open: `skip` starts no job, `queue` lets the next job wait. Default: `skip`.',
});
const catchUp = Type.Enum(['none', 'one'], {
  description:
    'For times that were missed during a stop: `none` runs no job, `one` runs one job for all of them. Default: `none`.',
});

export const NewSchedule = Type.Object(
  {
    name,
    cron: Type.Optional(cron),
    every: Type.Optional(every),
    timezone: Type.Optional(timezone),
    task: ScheduleTask,
    enabled: Type.Optional(enabled),
    overlap: Type.Optional(overlap),
    catchUp: Type.Optional(catchUp),
  },
  { additionalProperties: false },
);

export const ScheduleChanges = Type.Partial(NewSchedule, {
  additionalProperties: false,
  minProperties: 1,
  description:
    'A `task` replaces the old one. Without `mcpServers`, it keeps the old ones, because they cannot be read.',
});

const orNull = (value: ReturnType<typeof Type.String>) => Type.Union([value, Type.Null()]);
const moment = (description: string) => Type.Union([Type.Integer({ description }), Type.Null()]);

/** The outcome of the last time at which it was due. */
export const ScheduleOutcome = Type.Object({
  at: Type.Integer(),
  result: Type.Enum(['fired', 'skipped', 'missed', 'refused'], {
    description:
      '`skipped`: the last job was still open; `missed`: the bridge was stopped at that time; `refused`: `message` says why.',
  }),
  message: Type.String(),
});

export const Schedule = Type.Object({
  scheduleId: Type.String(),
  owner: Type.String(),
  name,
  cron: orNull(cron),
  every: orNull(every),
  timezone,
  task: ShownTask,
  enabled,
  overlap,
  catchUp,
  nextAt: moment('The next time, in milliseconds; null while the schedule is disabled.'),
  upcoming: Type.Array(Type.Integer(), { description: 'The next five times. Empty in lists.' }),
  last: Type.Union([ScheduleOutcome, Type.Null()]),
  lastJobId: Type.Union([Type.String(), Type.Null()]),
  createdAt: Type.Integer(),
  updatedAt: Type.Integer(),
});

export const ScheduleOnly = Type.Object({ schedule: Schedule });

export const ScheduleQuery = Type.Object({
  owner: Type.Optional(
    Type.String({ maxLength: 600, description: 'Schedules of this owner only, for callers that see those of all.' }),
  ),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 200, description: 'Default: 50.' })),
  cursor: Type.Optional(Type.String({ maxLength: 64, description: '`nextCursor` of the page before.' })),
});

export const SchedulePage = Type.Object({
  schedules: Type.Array(Schedule, { description: 'Newest first.' }),
  nextCursor: Type.Union([Type.String(), Type.Null()]),
});

export type ScheduleTask = Static<typeof ScheduleTask>;
export type NewSchedule = Static<typeof NewSchedule>;
export type ScheduleChanges = Static<typeof ScheduleChanges>;
export type Schedule = Static<typeof Schedule>;
export type ScheduleQuery = Static<typeof ScheduleQuery>;
export type SchedulePage = Static<typeof SchedulePage>;
export type ScheduleOutcome = Static<typeof ScheduleOutcome>;
