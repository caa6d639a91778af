import { createHash, createHmac } from 'node:crypto';
import type { Clock } from '../../platform/clock/clock.ts';
import type { Randomness } from '../../platform/clock/randomness.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { SecretKeys } from '../../platform/secrets/secret-keys.ts';
import { sameSecret } from '../../platform/secrets/tokens.ts';

/** A request that another instance has signed, and whose body is still to be read. */
export interface SignedRequest {
  /** Throws RELAY_REFUSED for any body but the one that was signed. */
  checkBody(body: Uint8Array): void;
}

/** Requests between the instances of one database: each is for one instance, counts once, and only for a short time. */
export interface RelaySignatures {
  /** The headers of a request with that body to an instance. */
  sign(request: UnsignedRequest): Readonly<Record<string, string>>;
  /** Throws RELAY_REFUSED for a request that no instance of this database has signed for this one just now, and for a repeated one. */
  check(head: Pick<RequestHead, 'method' | 'path' | 'headers'>): SignedRequest;
}

interface UnsignedRequest {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  /** Empty for none. */
  readonly body: string;
  readonly target: string;
}

interface RelaySignaturesOptions {
  /** Derived from the secret key, which all instances of a database share. The first one signs, each is accepted. */
  readonly keys: SecretKeys;
  /** The id of this instance. Each start of the program has another one, so it is an epoch, too. */
  readonly instance: string;
  /** The clocks of machines may differ: both sides go by that of the database. */
  databaseNow(): number;
  readonly clock: Pick<Clock, 'monotonic'>;
  readonly randomness: Pick<Randomness, 'bytes'>;
}

export const RELAY_HEADER = 'x-trestle-relay';
const VERSION = 'v1';
const NONCE_BYTES = 18;
/** Between the time of a request and that of the database, either way. */
const MAX_AGE_MS = 30_000;
/** Longer than a request counts, so that none counts twice. */
const NONCE_KEPT_MS = 2 * MAX_AGE_MS;
const MAX_NONCES = 100_000;
const FORM = /^v1\.(ins_[A-Za-z0-9]{1,64})\.(\d{1,15})\.([\w-]{24})\.([\w-]{43})\.([\w-]{43})$/;

export function createRelaySignatures(options: RelaySignaturesOptions): RelaySignatures {
  const { keys, instance, databaseNow, clock, randomness } = options;
  /** By nonce, until when it is kept; the oldest first. */
  const seen = new Map<string, number>();

  function noteNonce(nonce: string): void {
    const now = clock.monotonic();
    for (const [old, until] of seen) {
      if (until > now) break;
      seen.delete(old);
    }
    if (seen.has(nonce)) throw refused('it was sent before');
    if (seen.size >= MAX_NONCES) throw new AppError('OVERLOADED');
    seen.set(nonce, now + NONCE_KEPT_MS);
  }

  return {
    sign({ method, path, body, target }) {
      const nonce = Buffer.from(randomness.bytes(NONCE_BYTES)).toString('base64url');
      const claims = [target, Math.round(databaseNow()), nonce, digestOf(body)].join('.');
      return { [RELAY_HEADER]: `${VERSION}.${claims}.${signatureOf(keys[0], method, path, claims)}` };
    },
    check({ method, path, headers }) {
      const given = headers[RELAY_HEADER];
      const [, target = '', time = '', nonce = '', digest = '', signature = ''] = FORM.exec(String(given)) ?? [];
      const claims = [target, time, nonce, digest].join('.');
      const isSigned = keys.some((key) => sameSecret(signature, signatureOf(key, method, path, claims)));
      if (signature === '' || !isSigned) throw refused('its signature is not that of an instance of this database');
      if (target !== instance) throw refused('it is for another instance');
      if (Math.abs(databaseNow() - Number(time)) > MAX_AGE_MS) throw refused('its time has passed');
      noteNonce(nonce);
      return {
        checkBody(body) {
          if (!sameSecret(digestOf(body), digest)) throw refused('its body was changed');
        },
      };
    },
  };
}

function digestOf(body: string | Uint8Array): string {
  return createHash('sha256').update(body).digest('base64url');
}

function signatureOf(key: Uint8Array, method: string, path: string, claims: string): string {
  return createHmac('sha256', key).update(`${VERSION}\n${method}\n${path}\n${claims}`).digest('base64url');
}

function refused(reason: string): AppError {
  return new AppError('RELAY_REFUSED', { reason });
}
