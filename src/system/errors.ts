import type { ErrorTable } from '../platform/errors/error-table.ts';

/** What stands in the way of a start or of a command. Only people at a terminal see these. */
export const systemErrors = {
  DATA_DIRECTORY_UNUSABLE: {
    status: 500,
    message: 'The data directory {folder} cannot be used ({reason}); choose another with --data-dir.',
  },
  COPY_TARGET_INVALID: { status: 400, message: '--to takes a URL such as postgres://user@host/database.' },
  AGENT_UNKNOWN: { status: 400, message: 'There is no agent "{agent}"; there is {known}.' },
  STDIO_CROWDED: {
    status: 503,
    message: 'All {most} folders for standard streams in {folder} are in use; end one of those programs.',
  },
  ADAPTER_UNKNOWN: { status: 400, message: 'There is no agent "{name}" to adapt; known are: {known}.' },
  COMMAND_REFUSED: { status: 400, message: '{reason}' },
} as const satisfies ErrorTable;
