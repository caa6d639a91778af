import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { copyFile, mkdtemp, open, readFile, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { type Static, Type } from 'typebox';
import { Check } from 'typebox/value';
import type { Clock } from '../../clock/clock.ts';
import { AppError, errorCode } from '../../errors/app-error.ts';
import { exists, makeFolder } from '../../files/make-folder.ts';
import type { Database, DatabaseLocation, Engine, SqlConnection } from '../database.ts';
import { inspectCopyTarget } from '../inspect-database.ts';
import { type DatabaseDefinition, migrate, refuseNewerSchema } from '../migrations.ts';
import { openEngine } from '../open-engine.ts';
import {
  foldLog,
  makePrivateFile,
  markUnfinished,
  type Ownership,
  ownSqliteFile,
  removeUnfinishedMark,
  useSqliteFile,
} from '../sqlite/sqlite-file.ts';
import { compareDigests, digestTables, holdsRows, type TableDigest } from '../tables.ts';
import { copyDatabases } from './copy-into.ts';

interface Backup {
  readonly databases: readonly Pick<Database, 'name' | 'engine' | 'backupTo'>[];
  /** Must not exist yet. */
  readonly folder: string;
  readonly programVersion: string;
  readonly secretKey?: BackupManifest['secretKey'] | undefined;
  readonly clock: Pick<Clock, 'now'>;
}

/**
 * Writes one file per database and a manifest, while the program goes on working; each file is of one moment. The
 * folder (0700, files 0600) gets its name when all of it is on the disk, so a backup that is there is complete.
 */
export async function backUpDatabases(backup: Backup): Promise<BackupManifest> {
  const { databases, folder, programVersion, secretKey, clock } = backup;
  const target = resolve(folder);
  if (await exists(target))
    throw new AppError('BACKUP_FAILED', { reason: `${target} exists already; name a new folder` });
  const work = await makeWorkFolder(target);
  try {
    const entries: BackupManifest['databases'] = [];
    for (const database of databases) entries.push(await backUp(database, work));
    const createdAt = new Date(clock.now()).toISOString();
    const manifest: BackupManifest = {
      format: 1,
      programVersion,
      createdAt,
      ...(secretKey !== undefined && { secretKey }),
      databases: entries,
    };
    await writeManifest(work, manifest);
    await syncFolder(work);
    await rename(work, target);
    await syncFolder(dirname(target));
    return manifest;
  } catch (error) {
    await rm(work, { recursive: true, force: true });
    throw failureAt(dirname(target), error);
  }
}

/** Says which place is full or cannot be written; other errors stay as they are. */
function failureAt(place: string, cause: unknown): unknown {
  const code = errorCode(cause);
  const isFull = FULL_CODES.has(code);
  if (!isFull && !(cause instanceof Error && 'syscall' in cause)) return cause;
  const reason = isFull ? `no room is left on the disk of ${place}` : `${place} cannot be written (${code})`;
  return new AppError('BACKUP_FAILED', { reason }, { cause });
}

const FULL_CODES: ReadonlySet<string> = new Set(['STORAGE_FULL', 'ENOSPC', 'EDQUOT']);

/** The folder that becomes the backup, beside its place. */
async function makeWorkFolder(target: string): Promise<string> {
  try {
    await makeFolder(dirname(target));
    return await mkdtemp(`${target}.partial-`);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === undefined) throw cause;
    const reason = `${dirname(target)} cannot be written (${code}); name another folder`;
    throw new AppError('BACKUP_FAILED', { reason }, { cause });
  }
}

async function backUp(
  database: Pick<Database, 'name' | 'engine' | 'backupTo'>,
  folder: string,
): Promise<BackupManifest['databases'][number]> {
  const name = `${database.name}.db`;
  const file = join(folder, name);
  await database.backupTo(file);
  const tables = await useSqliteFile(file, 'read', digestTables);
  return { name: database.name, engine: database.engine, file: name, sha256: await fileChecksum(file), tables };
}

/** Makes the names in a folder durable. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

const Checksum = Type.String({ pattern: '^[0-9a-f]{64}$' });

/** `manifest.json` of a backup: lists what the folder holds, so that a restore can check that it is complete. */
const BackupManifest = Type.Object({
  format: Type.Literal(1),
  programVersion: Type.String(),
  createdAt: Type.String(),
  /** The key that secrets in the databases are encrypted with. Absent in backups of release 0.1.0. */
  secretKey: Type.Optional(
    Type.Object({
      fingerprint: Type.String(),
      /** The key itself, encrypted with a passphrase. */
      packed: Type.Optional(Type.String()),
    }),
  ),
  databases: Type.Array(
    Type.Object({
      name: Type.String(),
      /** The engine it was taken from. The copy is always a SQLite file. */
      engine: Type.Union([Type.Literal('sqlite'), Type.Literal('postgres')]),
      /** A name in this folder, never a path. */
      file: Type.String({ pattern: '^[a-z0-9_-]+\\.db$' }),
      sha256: Checksum,
      tables: Type.Array(Type.Object({ name: Type.String(), rows: Type.Integer(), checksum: Checksum })),
    }),
  ),
});

type BackupManifest = Static<typeof BackupManifest>;

const MANIFEST_FILE = 'manifest.json';

async function writeManifest(folder: string, manifest: BackupManifest): Promise<void> {
  const file = await open(join(folder, MANIFEST_FILE), 'wx', 0o600);
  try {
    await file.writeFile(`${JSON.stringify(manifest, null, 2)}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function readManifest(folder: string): Promise<BackupManifest> {
  let manifest: unknown;
  try {
    manifest = JSON.parse(await readFile(join(folder, MANIFEST_FILE), 'utf8'));
  } catch (cause) {
    throw new AppError(
      'BACKUP_FAILED',
      { reason: `${folder} holds no readable ${MANIFEST_FILE}; name a folder that "trestle backup" wrote` },
      { cause },
    );
  }
  if (!Check(BackupManifest, manifest)) {
    throw new AppError('BACKUP_FAILED', { reason: `${MANIFEST_FILE} is not one that this version understands` });
  }
  return manifest;
}

async function fileChecksum(file: string): Promise<string> {
  const sum = createHash('sha256');
  await pipeline(createReadStream(file), sum);
  return sum.digest('hex');
}

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
  /** Called when the files of the backup are in order, before the places of the databases are touched. */
  beforeLocks?(): Promise<void>;
  /** Called when the backup has passed every check, before anything is changed; may refuse it. */
  beforeChange?(manifest: BackupManifest): Promise<void>;
}

interface PreparedRestore extends RestoreTarget {
  readonly source: string;
}

/**
 * Puts a backup back, on either engine: all databases, or none. Everything is checked before anything is touched: the files
 * against the manifest, each database in itself, and that this version knows its schema. SQLite targets are locked until the end.
 */
export async function restoreDatabases(restore: Restore): Promise<BackupManifest> {
  const { folder, targets, clock, replace = false } = restore;
  const manifest = await readManifest(folder);
  const prepared: PreparedRestore[] = [];
  for (const target of targets) prepared.push({ ...target, source: await checkBackup(folder, manifest, target) });
  await restore.beforeLocks?.();
  const owned: Ownership[] = [];
  try {
    for (const { location } of targets) {
      if (location.engine === 'sqlite') owned.push(await ownSqliteFile(location.file, 'command'));
    }
    for (const target of targets) await inspectTarget(target, replace);
    await restore.beforeChange?.(manifest);
    await putBack(prepared, clock, replace);
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
    await refuseNewerSchema(connection, target, 'copy');
    return findProblems(connection, entry.tables);
  });
  if (problems.length > 0) throw new AppError('BACKUP_FAILED', { reason: `${entry.file}: ${problems.join('; ')}` });
  return file;
}

/** A file is replaced as it is, whatever it holds; a schema is brought up to date and filled. */
async function inspectTarget(target: RestoreTarget, replace: boolean): Promise<void> {
  const { name, location } = target;
  if (location.engine === 'postgres') return inspectCopyTarget(target, location, replace);
  if (replace || (await sizeOf(location.file)) === 0) return;
  if (await useSqliteFile(location.file, 'write', holdsRows)) throw new AppError('STORAGE_NOT_EMPTY', { name });
}

/**
 * Puts all databases back, or none: schemas in one transaction; files are copied first, and then take their places one after the
 * other, which needs no room on the disk. Should the program be killed between two of them, none is opened until a restore has ended.
 */
async function putBack(targets: readonly PreparedRestore[], clock: Clock, replace: boolean): Promise<void> {
  await using opened = new AsyncDisposableStack();
  const copies: Parameters<typeof copyDatabases>[0][number][] = [];
  const files: string[] = [];
  const places: (() => Promise<void>)[] = [];
  for (const target of targets) {
    const { location, source } = target;
    if (location.engine === 'sqlite') {
      files.push(location.file);
      places.push(await prepareFile(source, location.file, opened));
    } else copies.push({ from: await openCopy(target, clock, opened), to: { ...target, clock, replace } });
  }
  await copyDatabases(copies);
  for (const file of files) await markUnfinished(file);
  await syncFolders(files);
  for (const takePlace of places) await takePlace();
  await syncFolders(files);
  for (const file of files) await removeUnfinishedMark(file);
}

async function syncFolders(files: readonly string[]): Promise<void> {
  for (const folder of new Set(files.map((file) => dirname(file)))) await syncFolder(folder);
}

/** A copy of the file, because it is brought up to date first: the backup itself stays as it is. */
async function openCopy(target: PreparedRestore, clock: Clock, opened: AsyncDisposableStack): Promise<Engine> {
  const folder = await mkdtemp(join(tmpdir(), 'restore-'));
  opened.defer(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, 'copy.db');
  try {
    await copyFile(target.source, file);
    const engine = await openEngine({ engine: 'sqlite', file });
    opened.defer(() => engine.close());
    await migrate(engine, target, clock, { engine: 'sqlite', file });
    return engine;
  } catch (error) {
    throw failureAt(tmpdir(), error);
  }
}

/** Copies the file beside its place; what it returns puts it there. */
async function prepareFile(source: string, file: string, opened: AsyncDisposableStack): Promise<() => Promise<void>> {
  const partial = `${file}.restoring`;
  await rm(partial, { force: true });
  await makePrivateFile(partial);
  opened.defer(() => rm(partial, { force: true }));
  try {
    await copyFile(source, partial);
    await syncFile(partial);
  } catch (error) {
    throw failureAt(dirname(file), error);
  }
  return async () => {
    // The old database is closed properly first: a log of it that is left over would be applied to the new one.
    if ((await sizeOf(file)) > 0) await foldLog(file).catch(() => undefined);
    for (const rest of [`${file}-wal`, `${file}-shm`, `${file}-journal`]) await rm(rest, { force: true });
    await rename(partial, file);
  };
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

/** Checks the integrity of a database, and its content if `expected` is given. Returns the problems. */
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
