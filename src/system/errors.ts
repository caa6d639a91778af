import { agentProgramErrors } from '../bridge/errors.ts';
import type { ErrorTable } from '../platform/errors/error-table.ts';

/** What stands in the way of a start or of a command. Only people at a terminal see these. */
export const systemErrors = {
  DATA_DIRECTORY_UNUSABLE: {
    status: 500,
    message: 'The data directory {folder} cannot be used ({reason}); choose another with --data-dir.',
  },
  NO_DATA: {
    status: 404,
    message:
      'There is no Trestle data in {folder}; check --data-dir and --database, or start the server once (trestle serve).',
  },
  ALREADY_RUNNING: {
    status: 500,
    message:
      'Trestle is already running on the data directory {folder}: {url} (pid {pid}). Use that server, or stop it first (kill {pid}). To run a second one, set --data-dir and --listen.',
  },
  SERVER_SILENT: {
    status: 504,
    message:
      'The server of the data directory {folder}{owner} has not responded for {seconds} s. If it hangs, kill it (kill -9 {pid}) and start it again.',
  },
  SECRET_KEY_MISSING: {
    status: 500,
    message:
      'The data is encrypted with the secret key {fingerprint}, but {file} does not exist. Restore that key (or set TRESTLE_SECRET_KEY). If it is lost permanently, see: trestle secret-key adopt --help',
  },
  SECRET_KEY_MISMATCH: {
    status: 500,
    message:
      'The data of "{name}" is encrypted with another secret key ({expected}) than the one in use ({found}). Put the right key in {file} (or set TRESTLE_SECRET_KEY). If it is lost permanently, see: trestle secret-key adopt --help',
  },
  NEEDS_POSTGRES: {
    status: 500,
    message: '{what} needs PostgreSQL: set database.url (--database). With SQLite, only one instance can run.',
  },
  WORKERS_WITHOUT_TLS: {
    status: 500,
    message:
      'cluster.address is an https address, but with --workers each process listens on its own port without TLS. Use an http address, or start one instance for each address.',
  },
  INSTANCES_RUNNING: {
    status: 409,
    message:
      'Servers use this PostgreSQL database: {instances}. Stop them all first. A server that was killed counts as running for another eight seconds.',
  },
  INSTANCE_UNKNOWN: {
    status: 404,
    message: 'No instance {id} is running; trestle cluster lists the running instances.',
  },
  INSTANCE_STAYS: {
    status: 500,
    message: 'Instance {id} is still running after {seconds} s; trestle cluster shows its state, and its log says why.',
  },
  COPY_TARGET_INVALID: { status: 400, message: '--to takes a URL such as postgres://user@host/database.' },
  SANDBOX_UNAVAILABLE: {
    status: 500,
    message: 'bridge.sandbox is `require`, but no sandbox is available: {reason}.',
  },
  PEOPLE_NEED_SANDBOX: {
    status: 500,
    message:
      'plans.{plan}.bridge is true, but no sandbox is available to separate people from this machine: {reason}. If you would give these people a login on this machine, set bridge.trust_users to true.',
  },
  SECOND_ISSUER: {
    status: 500,
    message:
      'accounts.issuer is {issuer}, but this server would also run accounts with its own users. Start only the other services (trestle serve bridge, trestle serve completions), or remove accounts.issuer. On the issuer itself, set accounts.public_url to the same address.',
  },
  ...agentProgramErrors,
  STDIO_CROWDED: {
    status: 503,
    message: 'All {most} folders for trestle stdio in {folder} are in use; stop one of those programs.',
  },
  ADAPTER_UNKNOWN: { status: 400, message: 'There is no adapter for the agent "{name}". Known agents: {known}.' },
  COMMAND_REFUSED: { status: 400, message: '{reason}' },
} as const satisfies ErrorTable;

declare module '../platform/errors/app-error.ts' {
  interface ErrorCodes extends Record<keyof typeof systemErrors, unknown> {}
}
