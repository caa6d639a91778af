import { AppError, type ErrorCode } from '../../errors/app-error.ts';

/** Error codes: https://www.postgresql.org/docs/current/errcodes-appendix.html */
const DUPLICATE = '23505';
const DISK_FULL = '53100';
/** Serialisation failure, deadlock. */
const TRY_AGAIN = new Set(['40001', '40P01']);
/** A prepared statement whose table a newer instance has changed since. */
const STALE_PLAN = '0A000';
/** Cancelled by its timeout, read-only server, lock timeout: the connection itself is well. */
const UNAVAILABLE_ONCE = new Set(['57014', '25006', '55P03']);
/** Connection, resources, operator intervention, system error, authorisation, no such database. */
const UNAVAILABLE_CLASSES = new Set(['08', '53', '57', '58', '28', '3D']);

export interface PostgresProblem {
  readonly error: Error;
  /** The connection cannot be used any more. */
  readonly connectionLost: boolean;
  /** Nothing was stored, and it may work when tried again. */
  readonly tryAgain: boolean;
}

/**
 * Why a connection could not be made, with host and database and what to do; never with the password. Undefined for
 * failures that a retry may fix by itself.
 */
export function describeConnectFailure(cause: unknown, url: string): string | undefined {
  const { code, message } = fieldsOf(cause);
  const target = URL.parse(url);
  const host = `${target?.hostname || 'localhost'}:${target?.port || '5432'}`;
  const database = decodeURIComponent(target?.pathname.slice(1) ?? '') || 'the default database';
  const user = decodeURIComponent(target?.username ?? '') || 'the default user';
  if (code === 'ECONNREFUSED') return `nothing listens on ${host}; start PostgreSQL there, or correct database.url`;
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return `the host of ${host} cannot be found; correct database.url`;
  if (code === '28P01' || code === '28000') {
    return `${host} refuses user "${user}" (wrong password, or not allowed); correct the password in database.url or PGPASSWORD`;
  }
  if (code === '3D000') return `there is no database "${database}" on ${host}; create it: createdb ${database}`;
  if (code === '53300') return `${host} has no free connections; raise max_connections`;
  if (code === 'ETIMEDOUT' || message.includes('timeout')) return `${host} does not answer; check host and firewall`;
  return undefined;
}

/** Translates an error of the server, or of the connection to it, for the rest of the program. */
export function describePostgresError(cause: unknown): PostgresProblem {
  const { code, table, detail, severity, message } = fieldsOf(cause);
  const problem = (name: ErrorCode, details: object, rest: Partial<PostgresProblem> = {}): PostgresProblem => {
    const error = new AppError(name, { ...details }, { cause });
    return { error, connectionLost: false, tryAgain: false, ...rest };
  };
  // What does not come from the server says that the connection is broken, or could not be made.
  if (severity === '') return problem('STORAGE_UNAVAILABLE', {}, { connectionLost: true });
  if (code === DUPLICATE) return problem('STORAGE_DUPLICATE', { table, columns: duplicateColumns(detail) });
  if (TRY_AGAIN.has(code)) return problem('STORAGE_CONFLICT', {}, { tryAgain: true });
  if (code === STALE_PLAN && message.includes('cached plan')) {
    return problem('STORAGE_UNAVAILABLE', {}, { connectionLost: true, tryAgain: true });
  }
  if (code === DISK_FULL) return problem('STORAGE_FULL', {});
  if (UNAVAILABLE_ONCE.has(code)) return problem('STORAGE_UNAVAILABLE', {});
  if (UNAVAILABLE_CLASSES.has(code.slice(0, 2))) return problem('STORAGE_UNAVAILABLE', {}, { connectionLost: true });
  const error = cause instanceof Error ? cause : new Error(String(cause));
  return { error, connectionLost: false, tryAgain: false };
}

function fieldsOf(error: unknown): Record<'code' | 'table' | 'detail' | 'severity' | 'message', string> {
  const given = (typeof error === 'object' && error !== null ? error : {}) as Record<string, unknown>;
  const text = (name: string): string => (typeof given[name] === 'string' ? given[name] : '');
  return {
    code: text('code'),
    table: text('table'),
    detail: text('detail'),
    severity: text('severity'),
    message: text('message'),
  };
}

/** `Key (tenant, email)=(default, someone) already exists.` The values stay out: they may be secret. */
function duplicateColumns(detail: string): string[] {
  const end = detail.indexOf(')=(');
  if (!detail.startsWith('Key (') || end < 0) return [];
  return detail.slice('Key ('.length, end).split(', ');
}
