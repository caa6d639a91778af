import { mkdtemp, open, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import type { Clock } from '../clock/clock.ts';
import { AppError } from '../errors/app-error.ts';
import { makeFolder } from '../files/make-folder.ts';
import { type BackupManifest, fileChecksum, writeManifest } from './backup-manifest.ts';
import type { Database } from './database.ts';
import { useSqliteFile } from './sqlite/sqlite-file.ts';
import { digestTables } from './table-digest.ts';

export interface Backup {
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
  if (await exists(target)) throw new AppError('BACKUP_FAILED', { reason: `${target} exists already` });
  await makeFolder(dirname(target));
  const work = await mkdtemp(`${target}.partial-`);
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
    throw error;
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

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

/** Makes the names in a folder durable. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
