import { scrypt } from 'node:crypto';
import { existsSync } from 'node:fs';
import { access, constants, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import type { Randomness } from '../platform/clock/randomness.ts';
import type { AnyDatabase } from '../platform/database/database.ts';
import { findFact, replaceFact, SECRET_KEY_FACT, settleFact } from '../platform/database/tables.ts';
import { AppError, errorCode } from '../platform/errors/app-error.ts';
import { makeFolder } from '../platform/files/make-folder.ts';
import {
  createSecretBox,
  keyFingerprint,
  loadSecretKeys,
  readSecretKeys,
  SECRET_KEY_BYTES,
  type SecretKeySource,
  type SecretKeys,
  writeSecretKeys,
} from '../platform/secrets/secret-keys.ts';

/** Everything that lies in the data directory, by name. */
export interface DataFiles {
  readonly folder: string;
  readonly secretKey: string;
  /** Running child processes are noted here, so that a start after a crash finds what is left of them. */
  readonly processes: string;
  database(service: string): string;
  controlSocket(service: string): string;
}

export function dataFiles(folder: string): DataFiles {
  return {
    folder,
    secretKey: join(folder, 'secret.key'),
    processes: join(folder, 'processes'),
    database: (service) => join(folder, `${service}.db`),
    controlSocket: (service) => join(folder, `${service}.sock`),
  };
}

/** Makes the folder (for its owner only) when it is not there, and checks that files can be made in it. */
export async function prepareDataDirectory(folder: string): Promise<DataFiles> {
  try {
    await makeFolder(folder);
    await access(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    const code = errorCode(error);
    const reason = code === 'EEXIST' || code === 'ENOTDIR' ? 'it is a file, or below one' : code;
    throw new AppError('DATA_DIRECTORY_UNUSABLE', { folder, reason }, { cause: error });
  }
  return dataFiles(folder);
}

/**
 * Runs what looks at the data directory and stores nothing. Removes the folders that it made, unless another program has
 * put something there: a mistyped `--data-dir` leaves nothing on the disk.
 */
export async function lookIntoDataDirectory<Result>(folder: string, look: () => Promise<Result>): Promise<Result> {
  const made: string[] = [];
  for (let path = folder; !existsSync(path) && dirname(path) !== path; path = dirname(path)) made.push(path);
  try {
    return await look();
  } finally {
    const inner = made.length === 0 ? [] : [dataFiles(folder).processes];
    for (const path of [...inner, ...made]) await rmdir(path).catch(() => undefined);
  }
}

/**
 * The secret key and the data that is encrypted with it belong together. Every database stores the fingerprint of its
 * key, and every backup carries it, so that neither is ever used with another key: people with a second factor could no
 * longer log in.
 */

/** Loads the keys and checks that they belong to these databases. Creates a key only where no data needs another one. */
export async function openSecretKeys(databases: readonly AnyDatabase[], source: SecretKeySource): Promise<SecretKeys> {
  const expected = await Promise.all(databases.map((database) => findFact(database, SECRET_KEY_FACT)));
  const needed = expected.find((fingerprint) => fingerprint !== undefined);
  if (needed !== undefined && (await readSecretKeys(source)) === undefined) {
    throw new AppError('SECRET_KEY_MISSING', { file: source.file, fingerprint: needed });
  }
  const keys = await loadSecretKeys(source);
  for (const [index, database] of databases.entries()) await checkKey(database, expected[index], keys, source.file);
  return keys;
}

async function checkKey(
  database: AnyDatabase,
  expected: string | undefined,
  keys: SecretKeys,
  file: string,
): Promise<void> {
  const [current, ...older] = keys.map(keyFingerprint);
  if (current === undefined) return;
  const stored = expected ?? (await settleFact(database, SECRET_KEY_FACT, current));
  if (stored === current) return;
  if (!older.includes(stored)) {
    throw new AppError('SECRET_KEY_MISMATCH', { name: database.name, file, expected: stored, found: current });
  }
  // The key was rotated: a new one stands in front of the one that the data was encrypted with.
  await replaceFact(database, SECRET_KEY_FACT, current);
}

/** Accepts the present key for data that was encrypted with one that is lost. What was encrypted stays unreadable. */
export async function adoptSecretKey(databases: readonly AnyDatabase[], keys: SecretKeys): Promise<string> {
  const fingerprint = keyFingerprint(keys[0]);
  for (const database of databases) await replaceFact(database, SECRET_KEY_FACT, fingerprint);
  return fingerprint;
}

/** Whether these keys can open what was encrypted with the key of that fingerprint. */
export function opens(keys: SecretKeys, fingerprint: string): boolean {
  return keys.some((key) => keyFingerprint(key) === fingerprint);
}

const PACKED_CONTEXT = 'backup: secret key';
const SALT_BYTES = 16;
/** About 100 ms and 128 MiB: a passphrase that people can remember must be expensive to guess. */
const SCRYPT = { N: 2 ** 17, r: 8, p: 1, maxmem: 256 * 1024 * 1024 };
const deriveFromPassphrase = promisify<string, Uint8Array, number, typeof SCRYPT, Buffer>(scrypt);

/** Encrypts the keys with a passphrase, for a backup: `<salt>.<sealed>`. */
async function packKeys(keys: SecretKeys, passphrase: string, randomness: Pick<Randomness, 'bytes'>): Promise<string> {
  const salt = randomness.bytes(SALT_BYTES);
  const box = createSecretBox([await deriveFromPassphrase(passphrase, salt, SECRET_KEY_BYTES, SCRYPT)], randomness);
  const text = keys.map((key) => Buffer.from(key).toString('base64')).join('\n');
  return `${Buffer.from(salt).toString('base64url')}.${box.seal(text, PACKED_CONTEXT)}`;
}

/** What a backup says about the secret key, and the key itself when there is a passphrase to encrypt it with. */
export async function describeBackupKey(
  source: SecretKeySource,
  passphrase: string | undefined,
): Promise<{ readonly fingerprint: string; readonly packed?: string } | undefined> {
  const keys = await readSecretKeys(source);
  if (keys === undefined) return undefined;
  const fingerprint = keyFingerprint(keys[0]);
  if (passphrase === undefined) return { fingerprint };
  return { fingerprint, packed: await packKeys(keys, passphrase, source.randomness) };
}

async function unpackKeys(packed: string, passphrase: string, randomness: Pick<Randomness, 'bytes'>): Promise<string> {
  const dot = packed.indexOf('.');
  const salt = Buffer.from(packed.slice(0, dot), 'base64url');
  const box = createSecretBox([await deriveFromPassphrase(passphrase, salt, SECRET_KEY_BYTES, SCRYPT)], randomness);
  try {
    return Buffer.from(box.open(packed.slice(dot + 1), PACKED_CONTEXT)).toString('utf8');
  } catch (cause) {
    throw new AppError('BACKUP_FAILED', { reason: 'the passphrase does not open the key of this backup' }, { cause });
  }
}

interface RestoredKeyOptions {
  readonly source: SecretKeySource;
  /** Of the backup. A backup of release 0.1.0 has none. */
  readonly fingerprint: string | undefined;
  /** The keys that came with the backup, encrypted. */
  readonly packed: string | undefined;
  readonly passphrase: string | undefined;
}

/** Makes sure, before anything is restored, that the key of a backup is in place; puts back the one that came with it. */
export async function prepareRestoredKey(options: RestoredKeyOptions): Promise<void> {
  const { source, fingerprint, packed, passphrase } = options;
  const present = await readSecretKeys(source);
  if (present !== undefined) {
    if (fingerprint === undefined || opens(present, fingerprint)) return;
    const found = keyFingerprint(present[0]);
    throw new AppError('SECRET_KEY_MISMATCH', { name: 'backup', file: source.file, expected: fingerprint, found });
  }
  if (packed === undefined || passphrase === undefined) {
    throw new AppError('SECRET_KEY_MISSING', { file: source.file, fingerprint: fingerprint ?? 'unknown' });
  }
  const given = await unpackKeys(packed, passphrase, source.randomness);
  const keys = await readSecretKeys({ file: source.file, given });
  if (keys !== undefined) await writeSecretKeys(source.file, keys, source.randomness);
}
