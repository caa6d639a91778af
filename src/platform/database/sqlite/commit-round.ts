import type { SqlValue } from '../statement.ts';
import {
  changesOf,
  isDiskFailure,
  ReadAgain,
  type SqliteConnection,
  type SqliteFailure,
  type SqliteResult,
  toFailure,
  UnexpectedChanges,
} from './sqlite-connection.ts';

/**
 * One submitter's statements. They lie in `data` from `start`, flat, because that crosses threads fastest:
 * count, then for each statement its reference, the expected changes (or ANY_CHANGES), the number of values, the values.
 */
export interface Unit {
  readonly data: readonly unknown[];
  readonly start: number;
}

export type UnitOutcome = readonly SqliteResult[] | SqliteFailure;

export const ANY_CHANGES = -1;

/** Where the unit that starts at `start` ends. */
export function endOfUnit(data: readonly unknown[], start: number): number {
  let position = start + 1;
  for (let left = data[start] as number; left > 0; left -= 1) position += 3 + (data[position + 2] as number);
  return position;
}

/**
 * Stores the units of one round with one commit. Each has a savepoint, so that one that fails does not fail the others.
 * When the transaction as a whole breaks (a full disk, a constraint that is only checked at the end), each unit gets a
 * transaction of its own. Nothing is reported as stored before the commit that holds it has returned.
 */
export function commitRound(connection: SqliteConnection, units: readonly Unit[], onCommit: () => void): UnitOutcome[] {
  const [only] = units;
  if (units.length === 1 && only !== undefined) return [commitAlone(connection, only, onCommit)];
  try {
    return commitTogether(connection, units, onCommit);
  } catch (error) {
    rollback(connection);
    // After a failed write to the disk nothing is tried again immediately: what reached it is not known.
    if (isDiskFailure(error)) return units.map(() => toFailure(error));
    return units.map((unit) => commitAlone(connection, unit, onCommit));
  }
}

function commitTogether(connection: SqliteConnection, units: readonly Unit[], onCommit: () => void): UnitOutcome[] {
  connection.step('begin');
  const outcomes = units.map((unit) => runInSavepoint(connection, unit));
  connection.step('commit');
  onCommit();
  return outcomes;
}

function runInSavepoint(connection: SqliteConnection, unit: Unit): UnitOutcome {
  for (;;) {
    connection.step('savepoint');
    try {
      const results = runUnit(connection, unit);
      connection.step('release');
      return results;
    } catch (error) {
      // Some failures end the whole transaction: then the units before this one are gone too.
      if (!connection.database.isTransaction) throw error;
      connection.step('undo');
      connection.step('release');
      if (!(error instanceof ReadAgain)) return toFailure(error);
    }
  }
}

function commitAlone(connection: SqliteConnection, unit: Unit, onCommit: () => void): UnitOutcome {
  for (;;) {
    try {
      const commitsItself = isOneSilentStatement(connection, unit);
      if (!commitsItself) connection.step('begin');
      const results = runUnit(connection, unit);
      if (!commitsItself) connection.step('commit');
      onCommit();
      return results;
    } catch (error) {
      rollback(connection);
      if (!(error instanceof ReadAgain)) return toFailure(error);
    }
  }
}

/** Such a statement commits by itself, which saves two more. */
function isOneSilentStatement(connection: SqliteConnection, { data, start }: Unit): boolean {
  return data[start] === 1 && data[start + 2] === ANY_CHANGES && connection.isSilent(data[start + 1] as number);
}

function runUnit(connection: SqliteConnection, { data, start }: Unit): SqliteResult[] {
  const results: SqliteResult[] = [];
  let position = start + 1;
  for (let left = data[start] as number; left > 0; left -= 1) {
    const expected = data[position + 1] as number;
    const from = position + 3;
    const to = from + (data[position + 2] as number);
    const result = connection.run(data[position] as number | string, data.slice(from, to) as SqlValue[]);
    if (expected !== ANY_CHANGES && changesOf(result) !== expected) {
      throw new UnexpectedChanges({ statement: results.length, expected, changes: changesOf(result) });
    }
    results.push(result);
    position = to;
  }
  return results;
}

function rollback({ database }: SqliteConnection): void {
  try {
    if (database.isTransaction) database.exec('ROLLBACK');
  } catch {
    // The transaction ended by itself; the next BEGIN tells whether the connection still works.
  }
}

/** Places in the memory that both sides of a thread share. The thread sleeps on the number of calls made to it. */
export const CALLS = 0;
/** The number of messages it has sent back, to be looked at without asking the port. */
export const ANSWERS = 1;
