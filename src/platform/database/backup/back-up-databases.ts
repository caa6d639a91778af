import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdtemp, open, readFile, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { type Static, Type } from 'typebox';
import { Check } from 'typebox/value';
import type { Clock } from '../../clock/clock.ts';
import { AppError } from '../../errors/app-error.ts';
import { makeFolder } from '../../files/make-folder.ts';
import type { Database } from '../database.ts';
import { useSqliteFile } from '../sqlite/sqlite-file.ts';
import { digestTables } from '../tables.ts';

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

export type BackupManifest = Static<typeof BackupManifest>;

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

export async function readManifest(folder: string): Promise<BackupManifest> {
  let manifest: unknown;
  try {
    manifest = JSON.parse(await readFile(join(folder, MANIFEST_FILE), 'utf8'));
  } catch (cause) {
    throw new AppError('BACKUP_FAILED', { reason: `${folder} holds no readable ${MANIFEST_FILE}` }, { cause });
  }
  if (!Check(BackupManifest, manifest)) {
    throw new AppError('BACKUP_FAILED', { reason: `${MANIFEST_FILE} is not one that this version understands` });
  }
  return manifest;
}

export async function fileChecksum(file: string): Promise<string> {
  const sum = createHash('sha256');
  await pipeline(createReadStream(file), sum);
  return sum.digest('hex');
}
