import { copyFile, mkdtemp, open, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Clock } from '../../clock/clock.ts';
import { AppError } from '../../errors/app-error.ts';
import type { DatabaseLocation, SqlConnection } from '../database.ts';
import type { DatabaseDefinition } from '../migration.ts';
import { openEngine } from '../open-engine.ts';
import { migrate, refuseNewerSchema } from '../run-migrations.ts';
import { foldLog, makePrivateFile, type Ownership, ownSqliteFile, useSqliteFile } from '../sqlite/sqlite-file.ts';
import { compareDigests, digestTables, holdsRows, type TableDigest } from '../tables.ts';
import { type BackupManifest, fileChecksum, readManifest, syncFolder } from './back-up-databases.ts';
import { copyInto } from './copy-into.ts';

interface RestoreTarget extends DatabaseDefinition {
  readonly location: DatabaseLocation;
}

interface Restore {
  readonly folder: string;
  /** Databases that the backup holds but that are not listed here are left out. */
  readonly targets: readonly RestoreTarget[];
  readonly clock: Clock;
  /** Replaces what is there; otherwise a target that holds anything is refused. */
  readonly replace?: boolean;
  /** Called when the backup has passed every check, before anything is changed; may refuse it. */
  beforeChange?(manifest: BackupManifest): Promise<void>;
}

interface PreparedRestore extends RestoreTarget {
  readonly source: string;
}

/**
 * Puts a backup back, on either engine. Everything is checked before anything is touched: the files against the
 * manifest, each database in itself, and that this version knows its schema. SQLite targets are owned meanwhile.
 */
export async function restoreDatabases(restore: Restore): Promise<BackupManifest> {
  const { folder, targets, clock, replace = false } = restore;
  const manifest = await readManifest(folder);
  const prepared: PreparedRestore[] = [];
  for (const target of targets) prepared.push({ ...target, source: await checkBackup(folder, manifest, target) });
  const owned: Ownership[] = [];
  try {
    for (const { location } of targets) {
      if (location.engine === 'sqlite') owned.push(await ownSqliteFile(location.file, 'command'));
    }
    if (!replace) for (const target of targets) await refuseFilledFile(target);
    await restore.beforeChange?.(manifest);
    for (const target of prepared) await putBack(target, clock, replace);
  } finally {
    for (const ownership of owned) ownership.release();
  }
  return manifest;
}

/** Gives the file that holds the database. */
async function checkBackup(folder: string, manifest: BackupManifest, target: RestoreTarget): Promise<string> {
  const entry = manifest.databases.find(({ name }) => name === target.name);
  if (entry === undefined) throw new AppError('BACKUP_FAILED', { reason: `it has no database "${target.name}"` });
  const file = join(folder, entry.file);
  const found = await fileChecksum(file).catch(() => '');
  if (found !== entry.sha256) {
    throw new AppError('BACKUP_FAILED', { reason: `${entry.file} is not the file that was written` });
  }
  const problems = await useSqliteFile(file, 'read', async (connection) => {
    await refuseNewerSchema(connection, target);
    return findProblems(connection, entry.tables);
  });
  if (problems.length > 0) throw new AppError('BACKUP_FAILED', { reason: `${entry.file}: ${problems.join('; ')}` });
  return file;
}

async function refuseFilledFile({ name, location }: RestoreTarget): Promise<void> {
  if (location.engine !== 'sqlite' || (await sizeOf(location.file)) === 0) return;
  if (await useSqliteFile(location.file, 'write', holdsRows)) throw new AppError('STORAGE_NOT_EMPTY', { name });
}

async function putBack(target: PreparedRestore, clock: Clock, replace: boolean): Promise<void> {
  if (target.location.engine === 'sqlite') return replaceFile(target.source, target.location.file);
  const folder = await mkdtemp(join(tmpdir(), 'restore-'));
  try {
    // A copy, because it is brought up to date first: the backup itself stays as it is.
    const file = join(folder, 'copy.db');
    await copyFile(target.source, file);
    const engine = await openEngine({ engine: 'sqlite', file });
    try {
      await migrate(engine, target, clock, { engine: 'sqlite', file });
      await engine.snapshot((source) => copyInto(source, { ...target, clock, replace }));
    } finally {
      await engine.close();
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The old database is closed properly first: a log of it that is left over would be applied to the new one. */
async function replaceFile(source: string, file: string): Promise<void> {
  await makePrivateFile(file);
  if ((await sizeOf(file)) > 0) await foldLog(file).catch(() => undefined);
  const partial = `${file}.restoring`;
  await rm(partial, { force: true });
  try {
    await makePrivateFile(partial);
    await copyFile(source, partial);
    await syncFile(partial);
    for (const rest of [`${file}-wal`, `${file}-shm`, `${file}-journal`]) await rm(rest, { force: true });
    await rename(partial, file);
    await syncFolder(dirname(file));
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

async function sizeOf(file: string): Promise<number> {
  return stat(file).then(
    ({ size }) => size,
    () => 0,
  );
}

async function syncFile(file: string): Promise<void> {
  const handle = await open(file, 'r+');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Looks a database over: is it sound in itself, and does it hold what it should? An empty list says yes. */
export async function findProblems(connection: SqlConnection, expected?: readonly TableDigest[]): Promise<string[]> {
  const problems = connection.engine === 'sqlite' ? await findDamage(connection) : [];
  if (problems.length > 0) return problems;
  const found = await digestTables(connection);
  return expected === undefined ? [] : compareDigests(expected, found);
}

/** PostgreSQL keeps its references itself; in a SQLite file they may have been broken by someone else's tool. */
async function findDamage(connection: SqlConnection): Promise<string[]> {
  const integrity = await connection.execute<{ integrity_check: string }>({
    sql: 'PRAGMA integrity_check',
    parameters: [],
  });
  const references = await connection.execute<{ table: string }>({ sql: 'PRAGMA foreign_key_check', parameters: [] });
  return [
    ...integrity.rows.map((row) => row.integrity_check).filter((line) => line !== 'ok'),
    ...references.rows.map((row) => `a row of table ${row.table} refers to nothing`),
  ];
}
