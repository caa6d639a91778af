import { setting } from '../../platform/config/setting.ts';

export const jobsSettings = setting.group('Background jobs.', {
  max_running: setting.integer({
    default: 4,
    minimum: 1,
    maximum: 1000,
    description: 'Jobs that run at the same time. Owners take turns, and so do the agents of one owner.',
  }),
  max_running_per_owner: setting.integer({
    default: 0,
    minimum: 0,
    maximum: 1000,
    description:
      'Of these, how many may be of one owner. 0: all of them while the main token is the only credential, otherwise one less.',
  }),
  max_waiting_per_owner: setting.integer({
    default: 100_000,
    minimum: 1,
    maximum: 10_000_000,
    description: 'Pending jobs of one owner; more are refused with OVERLOADED.',
  }),
  max_schedules_per_owner: setting.integer({
    default: 100,
    minimum: 0,
    maximum: 10_000,
    description: 'Schedules of one owner; more are refused with TOO_MANY_SCHEDULES.',
  }),
  min_schedule_interval: setting.duration({
    default: '1m',
    minimum: '1m',
    maximum: '30d',
    description: 'Schedules that fire more often are refused.',
  }),
  callback_allow: setting.list(setting.cidr({}), {
    description: 'Private ranges to which callbacks may go although they are not public.',
  }),
});
