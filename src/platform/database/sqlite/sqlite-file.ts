import { chmod, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { backup, DatabaseSync } from 'node:sqlite';
import { AppError, errorCode } from '../../errors/app-error.ts';
import { makeFolder } from '../../files/make-folder.ts';
import type { SqlConnection } from '../engine.ts';
import { checkedValue, type Runnable, type StatementResult } from '../statement.ts';
import { claimThread } from './shared-threads.ts';
import { changesOf, type SqliteMode, toRows } from './sqlite-connection.ts';
import { fromFailure, toFailure } from './sqlite-errors.ts';

/** All pages in one step, so that the copy is of one moment; a copy in steps would start again after each commit. */
const PAGES_PER_STEP = 2 ** 31 - 1;
const BUSY_TIMEOUT_MS = 5000;

/** Copies a database that may be in use into a new file (0600), in a thread of the pool. */
export async function copySqliteFile(from: string, to: string): Promise<void> {
  await makeNewFile(to);
  try {
    const source = new DatabaseSync(from, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
    try {
      await backup(source, to, { rate: PAGES_PER_STEP });
    } finally {
      source.close();
    }
  } catch (error) {
    throw fromFailure(toFailure(error));
  }
  await foldLog(to);
}

/**
 * An existing file is not even opened: to close it again would end the locks that SQLite may have on it in this
 * process (https://sqlite.org/howtocorrupt.html, 2.2).
 */
export async function makeNewFile(file: string): Promise<void> {
  await (await open(file, 'wx', 0o600)).close();
}

/** Makes the file and its folder where they are missing. SQLite gives its other files the mode of the main one. */
export async function makePrivateFile(file: string): Promise<void> {
  try {
    await makeFolder(dirname(file));
    await makeNewFile(file).catch((error) => {
      if (errorCode(error) !== 'EEXIST') throw error;
    });
    await chmod(file, 0o600);
  } catch (cause) {
    throw new AppError('STORAGE_UNAVAILABLE', {}, { cause });
  }
}

/** Makes a database that nobody has open one file, without a log beside it. */
export async function foldLog(file: string): Promise<void> {
  await useSqliteFile(file, 'write', (connection) =>
    connection.execute({ sql: 'PRAGMA journal_mode = DELETE', parameters: [] }),
  );
}

/** Works with a file that belongs to no open database, in the thread for reads. */
export async function useSqliteFile<T>(
  file: string,
  mode: SqliteMode,
  work: (connection: SqlConnection) => Promise<T>,
): Promise<T> {
  const { thread, release } = claimThread('reader');
  try {
    const connection = await thread.open(file, mode);
    const execute: SqlConnection['execute'] = async <Row>({ sql, parameters }: Runnable<Row>) => {
      const values = parameters.map(checkedValue);
      const result = await thread.run(connection, { sql, textId: undefined, expectedChanges: undefined, values });
      return { rows: toRows(result), changes: changesOf(result) } as StatementResult<Row>;
    };
    try {
      return await work({ engine: 'sqlite', execute });
    } finally {
      await thread.closeConnection(connection);
    }
  } finally {
    await release();
  }
}
