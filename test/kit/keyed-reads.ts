import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import type { Database } from '../../src/platform/database/database.ts';

/** Few rows by their nature, however many users, jobs or calls there are; `items` is that of the platform's own tests. */
const SMALL_TABLES = ['user_counts', 'job_counts', 'instances', 'items'];
/** What a plan may leave to a look at the rows: of one user, there are few. */
const FEW_OF_EACH = ['sessions_user_id'];

/**
 * The same database, but what it reads by key, in the thread that serves everybody, must be found by an index, and by
 * all the columns that are asked for: otherwise it costs more the more there is.
 */
export function withCheckedReads<Schema>(database: Database<Schema>, file: string): Database<Schema> {
  const checked = new Set<string>();
  return {
    ...database,
    readKeyed(statement) {
      if (!checked.has(statement.sql)) check(file, statement.sql);
      checked.add(statement.sql);
      return database.readKeyed(statement);
    },
  };
}

function check(file: string, sql: string): void {
  const connection = new DatabaseSync(file, { readOnly: true });
  try {
    for (const detail of planOf(connection, sql)) checkStep(detail, sql);
  } finally {
    connection.close();
  }
}

function planOf(connection: DatabaseSync, sql: string): readonly string[] {
  const parameters = Array.from(sql.matchAll(/\?/g), () => null);
  try {
    return connection
      .prepare(`EXPLAIN QUERY PLAN ${sql}`)
      .all(...parameters)
      .map(({ detail }) => String(detail));
  } catch {
    // What is wrong with it is for the database to say.
    return [];
  }
}

function checkStep(detail: string, sql: string): void {
  const [, how, table = ''] = /^(SCAN|SEARCH) (\w+)/.exec(detail) ?? [];
  if (how === undefined || SMALL_TABLES.includes(table) || detail.startsWith('SCAN CONSTANT')) return;
  assert.equal(how, 'SEARCH', `not found by an index (${detail}): ${sql}`);
  if (FEW_OF_EACH.some((index) => detail.includes(index)) || sql.includes(' join ')) return;
  // Of subqueries, each is a step of its own: the step with the most columns stands for the statement.
  const asked = new Set(Array.from(sql.matchAll(/"(\w+)" (?:= \?|in \()/g), ([, column]) => column)).size;
  const used = detail.match(/=\?/g)?.length ?? 0;
  assert.ok(used >= asked || isSubquery(sql), `found by ${used} of ${asked} columns (${detail}): ${sql}`);
}

function isSubquery(sql: string): boolean {
  return sql.indexOf('select', 1) !== -1;
}
