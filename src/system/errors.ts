import { agentProgramErrors } from '../bridge/errors.ts';
import type { ErrorTable } from '../platform/errors/error-table.ts';

/** What stands in the way of a start or of a command. Only people at a terminal see these. */
export const systemErrors = {
  DATA_DIRECTORY_UNUSABLE: {
    status: 500,
    message: 'The data directory {folder} cannot be used ({reason}); choose another with --data-dir.',
  },
  ALREADY_RUNNING: {
    status: 500,
    message:
      'Trestle is already running on the data directory {folder}: {url} (pid {pid}). Use that one, or stop it first (kill {pid}). For a second one beside it, give --data-dir and --listen.',
  },
  SERVER_SILENT: {
    status: 504,
    message:
      'The server of the data directory {folder}{owner} has not answered for {seconds} s. If it hangs, end it (kill -9 {pid}) and start it again.',
  },
  SECRET_KEY_MISSING: {
    status: 500,
    message:
      'The data needs the secret key with the fingerprint {fingerprint}, and {file} does not exist. Put that key back (or set TRESTLE_SECRET_KEY). If it is lost permanently, see: trestle secret-key adopt --help',
  },
  SECRET_KEY_MISMATCH: {
    status: 500,
    message:
      'The secret key in use ({found}) is not the one that the data of "{name}" is encrypted with ({expected}). Put that key into {file} (or set TRESTLE_SECRET_KEY). If it is lost permanently, see: trestle secret-key adopt --help',
  },
  NEEDS_POSTGRES: {
    status: 500,
    message: '{what} needs PostgreSQL: set database.url (--database). On SQLite there is one instance.',
  },
  WORKERS_WITHOUT_TLS: {
    status: 500,
    message:
      'cluster.address is an https address, and with --workers each process listens on a port of its own without TLS. Give an http address, or start one instance for each address.',
  },
  INSTANCE_UNKNOWN: { status: 404, message: 'No instance {id} runs; trestle cluster lists those that do.' },
  INSTANCE_STAYS: {
    status: 500,
    message: 'The instance {id} still runs after {seconds} s; trestle cluster shows its state, and its log says why.',
  },
  COPY_TARGET_INVALID: { status: 400, message: '--to takes a URL such as postgres://user@host/database.' },
  SANDBOX_UNAVAILABLE: {
    status: 500,
    message: 'bridge.sandbox is `require`, and there is no sandbox: {reason}.',
  },
  PEOPLE_NEED_SANDBOX: {
    status: 500,
    message:
      'plans.{plan}.bridge is true, and there is no sandbox to separate people from this machine: {reason}. Set bridge.trust_users to true if these people could have a login here.',
  },
  SECOND_ISSUER: {
    status: 500,
    message:
      'accounts.issuer is {issuer}, and accounts would run here too, with people of its own. Start only the others (trestle serve bridge, trestle serve completions), or remove accounts.issuer. On the server that it names, set accounts.public_url to the same address.',
  },
  ...agentProgramErrors,
  STDIO_CROWDED: {
    status: 503,
    message: 'All {most} folders for standard streams in {folder} are in use; end one of those programs.',
  },
  ADAPTER_UNKNOWN: { status: 400, message: 'There is no agent "{name}" to adapt. Known agents: {known}.' },
  COMMAND_REFUSED: { status: 400, message: '{reason}' },
} as const satisfies ErrorTable;

declare module '../platform/errors/app-error.ts' {
  interface ErrorCodes extends Record<keyof typeof systemErrors, unknown> {}
}
