import { AppError } from './app-error.ts';

/** One row: how an error code looks outside. `message` may name details in braces: `'{field} is too long'`. */
export interface ErrorRow {
  readonly status: number;
  /** JSON-RPC error number, for surfaces that speak JSON-RPC. */
  readonly rpc?: number;
  readonly message: string;
}

export type ErrorTable = Readonly<Record<string, ErrorRow>>;

/** An error as any outside shape (HTTP body, JSON-RPC error) needs it. */
export interface DescribedError {
  readonly code: string;
  readonly status: number;
  readonly rpc: number;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>>;
}

const INTERNAL_RPC = -32603;
const INTERNAL: ErrorRow = { status: 500, message: 'Something went wrong on our side.' };

/**
 * Looks an error up in a table. What is not an `AppError`, or has no row, becomes INTERNAL_ERROR with no details:
 * nothing that a library wrote into a message reaches a caller.
 */
export function describeError(table: ErrorTable, error: unknown): DescribedError {
  if (error instanceof AppError) {
    const row = Object.hasOwn(table, error.code) ? table[error.code] : undefined;
    if (row !== undefined) {
      const message = fillMessage(row.message, error.details);
      return { code: error.code, status: row.status, rpc: row.rpc ?? INTERNAL_RPC, message, details: error.details };
    }
  }
  const { status, message } = table.INTERNAL_ERROR ?? INTERNAL;
  return { code: 'INTERNAL_ERROR', status, rpc: INTERNAL_RPC, message, details: {} };
}

export function isExpected(table: ErrorTable, error: unknown): boolean {
  return error instanceof AppError && Object.hasOwn(table, error.code) && error.code !== 'INTERNAL_ERROR';
}

function fillMessage(message: string, details: Readonly<Record<string, unknown>>): string {
  return message.replaceAll(/\{(\w+)\}/g, (whole, name: string) =>
    Object.hasOwn(details, name) ? String(details[name]) : whole,
  );
}

/** What the platform itself throws. Each service's table starts from these rows and may reword them. */
export const platformErrors = {
  INTERNAL_ERROR: {
    status: 500,
    rpc: -32603,
    message: 'Something went wrong on our side; quote the request id when you report it.',
  },
  INVALID_REQUEST: { status: 400, rpc: -32600, message: 'The request is not valid: {reason}' },
  PARSE_ERROR: { status: 400, rpc: -32700, message: 'The body is not valid JSON: {reason}' },
  REQUEST_TOO_COMPLEX: { status: 400, rpc: -32600, message: 'The request has more than {limit} {parts}; send fewer.' },
  METHOD_NOT_FOUND: { status: 404, rpc: -32601, message: 'There is no method "{method}".' },
  INVALID_PARAMS: { status: 400, rpc: -32602, message: 'The parameters are not valid: {reason}' },
  NOT_FOUND: { status: 404, rpc: -32600, message: 'There is nothing at this address.' },
  METHOD_NOT_ALLOWED: { status: 405, rpc: -32600, message: 'This address accepts only {allow}.' },
  UPGRADE_REQUIRED: { status: 426, rpc: -32600, message: 'This address is for WebSockets; send an upgrade request.' },
  BODY_TOO_LARGE: { status: 413, rpc: -32600, message: 'The body is larger than {limit} bytes.' },
  UNSUPPORTED_MEDIA_TYPE: {
    status: 415,
    rpc: -32600,
    message: 'Send the body as application/json in UTF-8, without a content-encoding.',
  },
  REQUEST_TIMEOUT: { status: 408, rpc: -32600, message: 'The request took too long to arrive.' },
  HEADERS_TOO_LARGE: { status: 431, rpc: -32600, message: 'The request headers are too large.' },
  HOST_NOT_ALLOWED: {
    status: 421,
    rpc: -32600,
    message: 'This server does not accept the Host "{host}"; add it to allowed_hosts.',
  },
  ORIGIN_NOT_ALLOWED: {
    status: 403,
    rpc: -32003,
    message: 'Pages from "{origin}" may not call this server; add the origin to allowed_origins.',
  },
  OVERLOADED: { status: 503, rpc: -32020, message: 'The server is busy; try again in a moment.' },
  SHUTTING_DOWN: { status: 503, rpc: -32020, message: 'The server is shutting down; try again in a moment.' },
  STORAGE_UNAVAILABLE: { status: 503, rpc: -32603, message: 'The database cannot be reached; try again in a moment.' },
  DATABASE_UNREACHABLE: { status: 503, rpc: -32603, message: 'The database cannot be opened: {reason}' },
  STORAGE_FULL: {
    status: 503,
    rpc: -32603,
    message: 'The disk that holds the database is full, so nothing was stored; free some space.',
  },
  CONNECTION_CLOSED: { status: 503, rpc: -32603, message: 'The connection was closed before the response arrived.' },
  CALL_TIMEOUT: { status: 504, rpc: -32603, message: 'No response arrived within {timeoutMs} ms.' },
  CALL_CANCELLED: { status: 499, rpc: -32603, message: 'The call was cancelled.' },
  ADDRESS_RANGE_INVALID: { status: 400, rpc: -32602, message: '"{range}" is not an address range such as 10.0.0.0/8.' },
  SECRET_KEY_INVALID: { status: 500, rpc: -32603, message: 'The secret key cannot be used: {reason}' },
  PASSWORD_FILTER_INVALID: { status: 500, message: 'The password filter or list "{file}" cannot be used: {reason}' },
  SECRET_UNREADABLE: { status: 500, rpc: -32603, message: 'A stored secret cannot be decrypted: {reason}' },
  PROCESS_NOT_STARTED: { status: 500, rpc: -32603, message: '"{command}" could not be started: {reason}' },
  REMOTE_ERROR: { status: 502, rpc: -32603, message: 'The other side returned an error.' },
  STORAGE_CONFLICT: {
    status: 409,
    rpc: -32603,
    message: 'Another request changed the same data, so nothing was stored; try again.',
  },
  STORAGE_DUPLICATE: { status: 409, rpc: -32603, message: 'This already exists; nothing was stored.' },
  STORAGE_IN_USE: { status: 503, rpc: -32603, message: '{file} is in use by process {pid}; stop it first.' },
  STORAGE_NOT_EMPTY: {
    status: 409,
    rpc: -32603,
    message:
      'The target database "{name}" is not empty; choose an empty one. trestle restore overwrites the data with --replace.',
  },
  RESTORE_UNFINISHED: {
    status: 503,
    rpc: -32603,
    message:
      'A restore was interrupted while it replaced the database "{name}" and others; run trestle restore with --replace again.',
  },
  SCHEMA_IN_USE: {
    status: 503,
    rpc: -32603,
    message:
      'The database "{name}" is in use by instances of an older version: {ids}. Stop them all, wait ten seconds, and start this version again.',
  },
  SCHEMA_TOO_NEW: {
    status: 503,
    rpc: -32603,
    message: 'The database "{name}" has migrations of a newer version: {ids}. Start that version instead.',
  },
  SCHEMA_CHANGED: {
    status: 503,
    rpc: -32603,
    message: 'Migration {id} of the database "{name}" differs from the one that was applied.',
  },
  BACKUP_FAILED: { status: 500, rpc: -32603, message: 'Backup or restore failed: {reason}' },
  UNAUTHORIZED: { status: 401, rpc: -32001, message: 'A valid credential is required.' },
  ISSUER_UNAVAILABLE: {
    status: 503,
    rpc: -32603,
    message:
      'The token could not be checked, because its issuer {issuer} cannot be reached from here; try again in a moment.',
  },
  CROSS_SITE_REQUEST: {
    status: 403,
    rpc: -32003,
    message: 'A request with the session cookie must come from this site itself; from elsewhere, send a bearer token.',
  },
  FORBIDDEN: { status: 403, rpc: -32003, message: 'You do not have access to this.' },
  LISTEN_REFUSED: { status: 500, message: '{reason}' },
  LISTEN_DENIED: { status: 500, message: 'This user may not listen on {host}, port {port}; choose a port above 1023.' },
  LISTEN_FAILED: { status: 500, message: 'Listening on {host}, port {port}, failed: {reason}' },
  ADDRESS_NOT_AVAILABLE: { status: 500, message: 'Cannot listen on {host}: this machine does not have that address.' },
  PORT_IN_USE: {
    status: 500,
    message: 'Port {port} on {host} is in use{owner}; stop that program, or choose another port (--listen).',
  },
  SOCKET_PATH_TOO_LONG: {
    status: 500,
    rpc: -32603,
    message: 'The path {file} is longer than {limit} bytes, the limit for a socket; choose a shorter data directory.',
  },
} as const satisfies ErrorTable;

export type PlatformErrorCode = keyof typeof platformErrors;

declare module './app-error.ts' {
  interface ErrorCodes extends Record<PlatformErrorCode, unknown> {}
}
