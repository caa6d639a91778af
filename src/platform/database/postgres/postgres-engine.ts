import type { PoolClient, QueryConfig } from 'pg';
import { AppError, type ErrorCode } from '../../errors/app-error.ts';
import type { Engine, ExclusiveOptions, SqlConnection } from '../database.ts';
import { checkedValue, type Runnable, type Statement, type StatementResult } from '../statement.ts';
import { type ConnectionPool, IDLE_TRANSACTION_TIMEOUT_MS, STATEMENT_TIMEOUT_MS } from './connection-pool.ts';

/** A little later than the server's own, for a server that does not answer at all. */
const ANSWER_TIMEOUT_MS = 35_000;
/** What is read is often written elsewhere, and that may take its time. */
const BEGIN_SNAPSHOT = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
  SET LOCAL idle_in_transaction_session_timeout = 0`;
const ATTEMPTS = 3;

type Work<T> = (connection: SqlConnection) => Promise<T>;

/**
 * All of one service is in one schema, which is made when it is missing. Behind a pooler in transaction mode nothing can be
 * set for a connection: each transaction sets it for itself, and statements have no names.
 */
export function openPostgresEngine(pool: ConnectionPool, schema: string): Engine {
  const { isPooled } = pool;
  const share = pool.join(schema);
  const problems = new WeakMap<Error, PostgresProblem>();
  const underWay = new Set<Promise<unknown>>();
  let closing = false;
  let batches = 0;
  let reads = 0;
  let queued = 0;

  const translate = (cause: unknown): PostgresProblem => {
    const problem = describePostgresError(cause);
    problems.set(problem.error, problem);
    return problem;
  };
  const connect = async (isUrgent: boolean): Promise<PoolClient> => {
    try {
      return await share.take(isUrgent);
    } catch (error) {
      throw error instanceof AppError ? error : describePostgresError(error).error;
    }
  };
  /** Takes a connection of the pool, and throws it away when it broke. */
  const useConnection = async <T>(work: Work<T>, options: ExclusiveOptions): Promise<T> => {
    const { discard = false, timeoutMs = 0, isUrgent = false } = options;
    const client = await connect(isUrgent);
    const answerTimeout = Math.max(ANSWER_TIMEOUT_MS, timeoutMs + ANSWER_TIMEOUT_MS - STATEMENT_TIMEOUT_MS);
    let lost = false;
    const execute: SqlConnection['execute'] = async <Row>(statement: Runnable<Row>) => {
      // A statement that timed out may still be running, and the next one, such as ROLLBACK, would wait for it.
      if (lost) throw new AppError('STORAGE_UNAVAILABLE');
      const query = { ...toQuery(statement, isPooled ? undefined : share.number), query_timeout: answerTimeout };
      try {
        const { rows, rowCount } = await client.query(query);
        return { rows: rows as Row[], changes: rowCount ?? 0 };
      } catch (error) {
        const problem = translate(error);
        lost ||= problem.connectionLost;
        throw problem.error;
      }
    };
    try {
      const connection: SqlConnection = { engine: 'postgres', execute };
      return await work(isPooled ? inTransactions(connection, schema) : connection);
    } finally {
      share.give(client, discard || lost);
    }
  };
  const withConnection = async <T>(work: Work<T>, options: ExclusiveOptions = {}): Promise<T> => {
    if (closing) throw new AppError('SHUTTING_DOWN');
    const use = useConnection(work, options);
    underWay.add(use);
    try {
      return await use;
    } finally {
      underWay.delete(use);
    }
  };
  const again = async <T>(
    when: 'connectionLost' | 'tryAgain',
    attempts: number,
    work: () => Promise<T>,
  ): Promise<T> => {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await work();
      } catch (error) {
        const problem = error instanceof Error ? problems.get(error) : undefined;
        if (attempt === attempts || !(problem?.tryAgain || problem?.[when])) throw error;
      }
    }
  };
  const read = async <Row>(statement: Runnable<Row>): Promise<Row[]> => {
    reads += 1;
    // A read is retried when its connection was lost, because it changes nothing. All connections of the
    // pool may be lost at the same time, after a restart of the server; one that cannot even be made ends the attempts.
    const ask = () => withConnection((connection) => connection.execute(statement));
    return (await again('connectionLost', pool.size + 1, ask)).rows;
  };

  return {
    name: 'postgres',
    readKeyed: read,
    read,
    async write(statements) {
      if (statements.length === 0) return [];
      queued += 1;
      try {
        const isUrgent = statements.some((statement: Partial<Statement>) => statement.isUrgent === true);
        const store = () => withConnection((connection) => runBatch(connection, statements), { isUrgent });
        const results = await again('tryAgain', ATTEMPTS, store);
        batches += 1;
        return results;
      } finally {
        queued -= 1;
      }
    },
    exclusive: withConnection,
    snapshot: (work) =>
      withConnection(async (connection) => {
        await connection.execute(plain(BEGIN_SNAPSHOT));
        try {
          return await work(connection);
        } finally {
          await connection.execute(plain('COMMIT')).catch(() => undefined);
        }
      }),
    async ping() {
      await withConnection((connection) => connection.execute(plain('SELECT 1')));
    },
    statistics: () => ({ batches, commits: batches, reads, queued }),
    async close() {
      if (closing) return;
      closing = true;
      while (underWay.size > 0) await Promise.allSettled(underWay);
      share.leave();
    },
  };
}

/** A single statement is a transaction by itself. */
async function runBatch(connection: SqlConnection, statements: readonly Runnable[]): Promise<StatementResult[]> {
  const [only] = statements;
  if (statements.length === 1 && only !== undefined && !('expectedChanges' in only)) {
    return [await connection.execute(only)];
  }
  await connection.execute(plain('BEGIN'));
  try {
    const results: StatementResult[] = [];
    for (const [index, statement] of statements.entries()) {
      const { expectedChanges: expected }: Partial<Statement> = statement;
      const result = await connection.execute(statement);
      if (expected !== undefined && result.changes !== expected) {
        throw new AppError('STORAGE_CONFLICT', { statement: index, expected, changes: result.changes });
      }
      results.push(result);
    }
    await connection.execute(plain('COMMIT'));
    return results;
  } catch (error) {
    await connection.execute(plain('ROLLBACK')).catch(() => undefined);
    throw error;
  }
}

function plain(sql: string): Statement {
  return { sql, parameters: [] };
}

/** Statements that are known ahead are parsed once per connection. */
function toQuery(statement: Runnable, share: number | undefined): QueryConfig {
  const { textId }: Partial<Statement> = statement;
  const query = { text: statement.sql, values: statement.parameters.map(checkedValue) };
  return textId === undefined || share === undefined ? query : { ...query, name: `s${share}_${textId}` };
}

/** Runs every statement in a transaction that knows its schema: its own, or the one that the caller has begun. */
function inTransactions({ engine, execute }: SqlConnection, schema: string): SqlConnection {
  const settings = `SET LOCAL search_path = ${schema};
    SET LOCAL statement_timeout = ${STATEMENT_TIMEOUT_MS};
    SET LOCAL idle_in_transaction_session_timeout = ${IDLE_TRANSACTION_TIMEOUT_MS}`;
  let isOpen = false;
  return {
    engine,
    async execute<Row>(statement: Runnable<Row>) {
      const { sql } = statement;
      if (sql.startsWith('BEGIN')) {
        isOpen = true;
        const [begin, ...rest] = sql.split(';');
        return execute<Row>({ ...statement, sql: [begin, settings, ...rest].join(';') });
      }
      if (sql === 'COMMIT' || sql === 'ROLLBACK') isOpen = false;
      else if (!isOpen) return alone(statement);
      return execute(statement);
    },
  };

  async function alone<Row>(statement: Runnable<Row>): Promise<StatementResult<Row>> {
    await execute(plain(`BEGIN; ${settings}`));
    try {
      const result = await execute(statement);
      await execute(plain('COMMIT'));
      return result;
    } catch (error) {
      await execute(plain('ROLLBACK')).catch(() => undefined);
      throw error;
    }
  }
}

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
  if (message.includes('unsupported startup parameter')) {
    return `${host} is a pooler such as PgBouncer; set database.listen_url to the address of PostgreSQL itself`;
  }
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
  // An error that is not from the server means that the connection is broken, or could not be made.
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
