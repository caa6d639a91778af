import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { access, chmod, open, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { backup, DatabaseSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, errorCode } from '../../errors/app-error.ts';
import { makeFolder } from '../../files/make-folder.ts';
import type { SqlConnection } from '../database.ts';
import { checkedValue, type Runnable, type StatementResult } from '../statement.ts';
import { changesOf, fromFailure, isBusy, type SqliteMode, toFailure, toRows } from './sqlite-connection.ts';
import { claimThread } from './sqlite-thread.ts';

/** All pages in one step, so that the copy is of one moment; a copy in steps would start again after each commit. */
const PAGES_PER_STEP = 2 ** 31 - 1;
const BUSY_TIMEOUT_MS = 5000;
/** Other writers wait until then. */
const EMPTY_LOG_WAIT_MS = 100;

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

/** A file beside a database says that a restore replaces it and others. It stays where the restore does not end. */
const unfinishedMark = (file: string) => `${file}.unfinished`;

export async function markUnfinished(file: string): Promise<void> {
  await makePrivateFile(unfinishedMark(file));
}

export async function removeUnfinishedMark(file: string): Promise<void> {
  await rm(unfinishedMark(file), { force: true });
}

/** Throws RESTORE_UNFINISHED: databases of two moments are never opened together. */
export async function refuseUnfinished(file: string, name: string): Promise<void> {
  const isMarked = await access(unfinishedMark(file)).then(
    () => true,
    () => false,
  );
  if (isMarked) throw new AppError('RESTORE_UNFINISHED', { name });
}

/** Copies the write-ahead log into the file and empties it, unless a reader needs the log for longer than a moment. */
export async function emptySqliteLog({ execute }: SqlConnection): Promise<void> {
  const pragma = (text: string) => execute({ sql: `PRAGMA ${text}`, parameters: [] });
  await pragma(`busy_timeout = ${EMPTY_LOG_WAIT_MS}`);
  try {
    await pragma('wal_checkpoint(TRUNCATE)');
  } finally {
    await pragma(`busy_timeout = ${BUSY_TIMEOUT_MS}`);
  }
}

/** Turns a database that is not open into one file, without a log beside it. */
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

export interface Ownership {
  release(): void;
}

/** A server keeps its files for as long as it runs; a command for a moment, so others wait for it. */
export type OwnerKind = 'server' | 'command';

interface Owner {
  readonly pid: number;
  readonly kind: OwnerKind;
}

const ATTEMPTS_TO_READ_OWNER = 5;
const PAUSE_MS = 20;
/** How long to wait for a command that has the file. A backup or a copy of much data may take longer. */
const COMMAND_WAIT_MS = 30_000;

/**
 * Claims a database file for this process: a server, or a command that works while no server runs. While a command has
 * the file, everyone else waits for it; a file that a server has is refused with STORAGE_IN_USE and its process id. The
 * claim is a lock of the operating system on an empty file beside it (taken with SQLite, because Node has no call for
 * it), so it ends with the process, however that ends.
 */
export async function ownSqliteFile(
  file: string,
  kind: OwnerKind = 'server',
  commandWaitMs = COMMAND_WAIT_MS,
): Promise<Ownership> {
  const deadline = performance.now() + commandWaitMs;
  for (;;) {
    const ownership = await tryToOwn(file, kind);
    if ('release' in ownership) return ownership;
    if (ownership.owner?.kind !== 'command' || performance.now() > deadline) {
      throw new AppError('STORAGE_IN_USE', { file, pid: ownership.owner?.pid ?? 'unknown' });
    }
    await delay(PAUSE_MS);
  }
}

async function tryToOwn(file: string, kind: OwnerKind): Promise<Ownership | { readonly owner: Owner | undefined }> {
  const ownerFile = `${file}.pid`;
  const lock = await openLock(`${file}.lock`);
  try {
    lock.exec('BEGIN EXCLUSIVE');
    writeFileSync(ownerFile, `${process.pid} ${kind}\n`, { mode: 0o600 });
  } catch (error) {
    lock.close();
    if (!isBusy(error)) throw new AppError('STORAGE_UNAVAILABLE', {}, { cause: error });
    return { owner: await readOwner(ownerFile) };
  }
  let released = false;
  return {
    release() {
      if (released) return;
      released = true;
      rmSync(ownerFile, { force: true });
      lock.close();
    },
  };
}

async function openLock(file: string): Promise<DatabaseSync> {
  try {
    await makePrivateFile(file);
    return new DatabaseSync(file, { timeout: 0 });
  } catch (cause) {
    throw new AppError('STORAGE_UNAVAILABLE', {}, { cause });
  }
}

/** The owner writes its process id just after it has got the lock: it may be missing, or be that of a dead process. */
async function readOwner(file: string): Promise<Owner | undefined> {
  for (let attempt = 1; attempt <= ATTEMPTS_TO_READ_OWNER; attempt += 1) {
    const owner = parseOwner(file);
    if (owner !== undefined && isRunning(owner.pid)) return owner;
    await delay(PAUSE_MS);
  }
  return undefined;
}

/** The owner that a file such as `bridge.db.pid` names; undefined where it names none. */
export function parseOwner(file: string): Owner | undefined {
  try {
    const text = readFileSync(file, 'utf8');
    const pid = Number.parseInt(text, 10);
    if (!Number.isSafeInteger(pid) || pid <= 0) return undefined;
    return { pid, kind: text.includes('command') ? 'command' : 'server' };
  } catch {
    return undefined;
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // It runs, but belongs to someone else.
    return errorCode(error) === 'EPERM';
  }
}
