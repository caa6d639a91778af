import { createCipheriv, createDecipheriv, createSecretKey, hash, hkdfSync, type KeyObject } from 'node:crypto';
import { link, open, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Randomness } from '../clock/randomness.ts';
import { AppError, errorCode } from '../errors/app-error.ts';
import { makeFolder } from '../files/make-folder.ts';

/**
 * Authenticated encryption for what must be read again. `context` says what the secret is and whose
 * (`totp:usr_...`): a sealed text opens only where it was sealed for, so that rows cannot be swapped.
 */
export interface SecretBox {
  seal(plaintext: Uint8Array | string, context: string): string;
  open(sealed: string, context: string): Uint8Array;
}

const VERSION = 'v1';
const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

interface BoxKey {
  readonly id: string;
  /** Made once: Node checks and copies plain bytes for every cipher. */
  readonly key: KeyObject;
}

/**
 * The first key seals, every key opens: to rotate, put a new key in front and seal again what is read.
 * Sealed: `v1.<key id>.<nonce, ciphertext, tag in base64url>`.
 */
export function createSecretBox(
  keys: readonly [Uint8Array, ...Uint8Array[]],
  randomness: Pick<Randomness, 'bytes'>,
): SecretBox {
  const boxKeys = keys.map(deriveKey);
  const byId = new Map(boxKeys.map((boxKey) => [boxKey.id, boxKey]));
  const sealing = boxKeys[0] ?? deriveKey(keys[0]);

  return {
    seal(plaintext, context) {
      const nonce = randomness.bytes(NONCE_BYTES);
      const cipher = createCipheriv(CIPHER, sealing.key, nonce).setAAD(additionalData(sealing, context));
      const bytes = typeof plaintext === 'string' ? Buffer.from(plaintext, 'utf8') : plaintext;
      const sealed = Buffer.concat([nonce, cipher.update(bytes), cipher.final(), cipher.getAuthTag()]);
      return `${VERSION}.${sealing.id}.${sealed.toString('base64url')}`;
    },

    open(sealed, context) {
      const [version, id = '', text = '', ...rest] = sealed.split('.');
      if (version !== VERSION || rest.length > 0) throw unreadable('it is not a sealed text of this version');
      const boxKey = byId.get(id);
      if (boxKey === undefined) throw unreadable('the key it was sealed with is not among the secret keys');
      const bytes = Buffer.from(text, 'base64url');
      // Base64 decoding skips what it does not know: only the one spelling that we write may open.
      if (bytes.length < NONCE_BYTES + TAG_BYTES || bytes.toString('base64url') !== text) throw altered();
      return decrypt(boxKey, bytes, context);
    },
  };
}

function decrypt(boxKey: BoxKey, bytes: Buffer, context: string): Uint8Array {
  const nonce = bytes.subarray(0, NONCE_BYTES);
  const tag = bytes.subarray(-TAG_BYTES);
  const decipher = createDecipheriv(CIPHER, boxKey.key, nonce, { authTagLength: TAG_BYTES });
  decipher.setAAD(additionalData(boxKey, context)).setAuthTag(tag);
  const plain = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
  try {
    decipher.final();
  } catch (cause) {
    throw altered(cause);
  }
  return plain;
}

/** Identifies a secret key without revealing anything about it; equals the key id in what the key has sealed. */
export function keyFingerprint(secretKey: Uint8Array): string {
  return deriveKey(secretKey).id;
}

/** Derives a separate key for this use, so that the same secret key can serve other uses; the id reveals nothing. */
function deriveKey(secretKey: Uint8Array): BoxKey {
  if (secretKey.length !== SECRET_KEY_BYTES) {
    throw new AppError('SECRET_KEY_INVALID', { reason: `it has ${secretKey.length} bytes, not ${SECRET_KEY_BYTES}` });
  }
  const key = new Uint8Array(hkdfSync('sha256', secretKey, '', `secret-box ${VERSION}`, SECRET_KEY_BYTES));
  return { key: createSecretKey(key), id: hash('sha256', key, 'hex').slice(0, 8) };
}

function additionalData({ id }: BoxKey, context: string): Buffer {
  return Buffer.from(`${VERSION}.${id}.${context}`, 'utf8');
}

function altered(cause?: unknown): AppError {
  return unreadable('it was altered, or sealed for another place', cause);
}

function unreadable(reason: string, cause?: unknown): AppError {
  return new AppError('SECRET_UNREADABLE', { reason }, { cause });
}

/** The first one is for new work; the others still open what was made before a rotation. */
export type SecretKeys = readonly [Uint8Array, ...Uint8Array[]];

export const SECRET_KEY_BYTES = 32;

const MAX_FILE = 4096;

export interface SecretKeySource {
  /** Where the key lives when none is given. Made at first start. */
  readonly file: string;
  /** From the configuration; wins over the file. One key, or several separated by commas or spaces. */
  readonly given?: string | undefined;
  readonly randomness: Pick<Randomness, 'bytes'>;
}

/** Returns the keys that secrets are encrypted with: 32 bytes each, in base64, one per line of the file. */
export async function loadSecretKeys({ file, given, randomness }: SecretKeySource): Promise<SecretKeys> {
  const present = await readSecretKeys({ file, given });
  if (present !== undefined) return present;
  const makeKey = () => `${Buffer.from(randomness.bytes(SECRET_KEY_BYTES)).toString('base64')}\n`;
  await createKeyFile(file, makeKey, randomness);
  // Read back rather than remembered: when two instances start together, both go on with the winner's key.
  const made = await readKeyFile(file);
  if (made === undefined) throw unusable(`${file} was removed while it was being made`);
  return parseKeys(made, file);
}

/** Returns undefined where no key is configured and no key file exists; never creates one. */
export async function readSecretKeys({
  file,
  given,
}: Pick<SecretKeySource, 'file' | 'given'>): Promise<SecretKeys | undefined> {
  if (given !== undefined && given.trim() !== '') return parseKeys(given, 'the given key');
  const stored = await readKeyFile(file);
  return stored === undefined ? undefined : parseKeys(stored, file);
}

/** Writes keys that came with a backup. An existing file is kept. */
export function writeSecretKeys(file: string, keys: SecretKeys, randomness: Pick<Randomness, 'bytes'>): Promise<void> {
  const lines = keys.map((key) => `${Buffer.from(key).toString('base64')}\n`);
  return createKeyFile(file, () => lines.join(''), randomness);
}

function parseKeys(text: string, where: string): SecretKeys {
  const [first, ...others] = text
    .split(/[\s,]+/)
    .filter((part) => part !== '')
    .map((part) => parseKey(part, where));
  if (first === undefined) throw unusable(`${where} is empty; restore it from a backup`);
  return [first, ...others];
}

function parseKey(text: string, where: string): Uint8Array {
  if (!/^[A-Za-z0-9+/_-]{43}=?$/.test(text)) {
    throw unusable(`${where} must be ${SECRET_KEY_BYTES} bytes in base64; make one with: openssl rand -base64 32`);
  }
  return Uint8Array.from(Buffer.from(text, 'base64'));
}

async function readKeyFile(file: string): Promise<string | undefined> {
  try {
    await using handle = await open(file, 'r');
    const { mode, size } = await handle.stat();
    if ((mode & 0o077) !== 0) throw unusable(`other users may read or change ${file}; run: chmod 600 ${file}`);
    if (size > MAX_FILE) throw unusable(`${file} is too large to be a key file`);
    return await handle.readFile('utf8');
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    if (error instanceof AppError) throw error;
    throw unusable(`${file} cannot be read (${errorCode(error)})`, error);
  }
}

/**
 * Written beside its place, made durable, then linked into place: `link` fails where a file already is, so that of two
 * instances one wins, and a crash never leaves half a key.
 */
async function createKeyFile(
  file: string,
  makeText: () => string,
  randomness: Pick<Randomness, 'bytes'>,
): Promise<void> {
  const folder = dirname(file);
  const draft = join(folder, `.secret-key-${Buffer.from(randomness.bytes(9)).toString('hex')}`);
  try {
    await makeFolder(folder);
    await writeDurably(draft, makeText());
    try {
      await link(draft, file);
    } catch (error) {
      if (errorCode(error) !== 'EEXIST') throw error;
    } finally {
      await unlink(draft);
    }
    await using handle = await open(folder, 'r');
    await handle.sync();
  } catch (error) {
    throw unusable(`${file} cannot be made (${errorCode(error)})`, error);
  }
}

async function writeDurably(file: string, text: string): Promise<void> {
  await using handle = await open(file, 'wx', 0o600);
  await handle.writeFile(text);
  await handle.sync();
}

function unusable(reason: string, cause?: unknown): AppError {
  return new AppError('SECRET_KEY_INVALID', { reason }, { cause });
}

/** Keys for one use, from the secret keys: what is made with them tells nothing about those, or about other uses. */
export function deriveKeys([first, ...others]: SecretKeys, purpose: string): SecretKeys {
  const derive = (key: Uint8Array) => new Uint8Array(hkdfSync('sha256', key, '', purpose, SECRET_KEY_BYTES));
  return [derive(first), ...others.map(derive)];
}
