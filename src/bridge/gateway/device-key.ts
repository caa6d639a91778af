import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { link, open, readFile, stat, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Randomness } from '../../platform/clock/randomness.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';

/** The identity under which a gateway knows this bridge: an Ed25519 key that never leaves it. */
export interface DeviceKey {
  /** SHA-256 of the raw public key, in hex. */
  readonly id: string;
  /** The raw public key in base64url. */
  readonly publicKey: string;
  /** In base64url. */
  sign(text: string): string;
}

const RAW_KEY_BYTES = 32;

/** Reads the key, or makes it the first time. It is for its owner only, as the secret key is. */
export async function loadDeviceKey(file: string, randomness: Pick<Randomness, 'bytes'>): Promise<DeviceKey> {
  const stored = await readKey(file);
  if (stored !== undefined) return describeKey(stored);
  await createKey(file, randomness);
  // Of two bridges that start at once both go on with the key that was there first.
  const made = await readKey(file);
  if (made === undefined) throw unusable(`${file} was removed while it was being made`);
  return describeKey(made);
}

function describeKey(privateKey: KeyObject): DeviceKey {
  const raw = createPublicKey(privateKey).export({ format: 'der', type: 'spki' }).subarray(-RAW_KEY_BYTES);
  return {
    id: createHash('sha256').update(raw).digest('hex'),
    publicKey: raw.toString('base64url'),
    sign: (text) => sign(null, Buffer.from(text, 'utf8'), privateKey).toString('base64url'),
  };
}

async function readKey(file: string): Promise<KeyObject | undefined> {
  try {
    const { mode } = await stat(file);
    if ((mode & 0o077) !== 0) throw unusable(`other users may read or change ${file}; run: chmod 600 ${file}`);
    const key = createPrivateKey(await readFile(file, 'utf8'));
    if (key.asymmetricKeyType !== 'ed25519') throw unusable(`${file} holds no Ed25519 key`);
    return key;
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    if (error instanceof AppError) throw error;
    throw unusable(`${file} cannot be read (${errorCode(error)})`, error);
  }
}

/** Written beside its place and linked there, which fails where a file already is. */
async function createKey(file: string, randomness: Pick<Randomness, 'bytes'>): Promise<void> {
  const draft = join(dirname(file), `.device-key-${Buffer.from(randomness.bytes(9)).toString('hex')}`);
  const { privateKey } = generateKeyPairSync('ed25519');
  try {
    {
      await using handle = await open(draft, 'wx', 0o600);
      await handle.writeFile(privateKey.export({ format: 'pem', type: 'pkcs8' }));
      await handle.sync();
    }
    await link(draft, file)
      .catch((error: unknown) => {
        if (errorCode(error) !== 'EEXIST') throw error;
      })
      .finally(() => unlink(draft));
  } catch (error) {
    throw unusable(`${file} cannot be made (${errorCode(error)})`, error);
  }
}

function unusable(reason: string, cause?: unknown): AppError {
  return new AppError('DEVICE_KEY_INVALID', { reason }, { cause });
}
