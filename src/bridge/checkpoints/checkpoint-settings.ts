import { setting } from '../../platform/config/setting.ts';

/** The part of `bridge.*` about saving what turns change, so that it can be shown and undone. */
export const checkpointSettings = {
  checkpoints: setting.group('Saves the working directory before and after each turn, so that changes can be undone.', {
    enabled: setting.flag({
      default: true,
      description: 'Save working directories. Needs git on this machine; repositories are not changed by it.',
    }),
    timeout: setting.duration({
      default: '2s',
      minimum: '100ms',
      maximum: '1m',
      description: 'How long saving may hold up a turn; then the turn goes on, and its changes cannot be undone.',
    }),
    max_files: setting.integer({
      default: 5000,
      minimum: 1,
      maximum: 1_000_000,
      description: 'Files that one save may have to read: those that the repository does not have, or all without one.',
    }),
    max_bytes: setting.integer({
      default: 268_435_456,
      minimum: 1_048_576,
      maximum: 1_099_511_627_776,
      description: 'What these files may hold. A session keeps at most four times as much.',
    }),
    turns: setting.integer({
      default: 50,
      minimum: 1,
      maximum: 1000,
      description: 'Turns of a session that can be undone: the last ones.',
    }),
  }),
};
