import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { type Static, Type } from 'typebox';
import { Check } from 'typebox/value';
import { AppError } from '../errors/app-error.ts';

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

export async function writeManifest(folder: string, manifest: BackupManifest): Promise<void> {
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
