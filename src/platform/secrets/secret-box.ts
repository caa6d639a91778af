import { createCipheriv, createDecipheriv, hash, hkdfSync } from 'node:crypto';
import type { Randomness } from '../clock/randomness.ts';
import { AppError } from '../errors/app-error.ts';
import { SECRET_KEY_BYTES } from './secret-keys.ts';

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
  readonly key: Uint8Array;
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
  return { key, id: hash('sha256', key, 'hex').slice(0, 8) };
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
