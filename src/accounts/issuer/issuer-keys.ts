import type { JSONWebKeySet, JWTVerifyGetKey } from 'jose';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { boundedFetch } from '../../platform/http/bounded-fetch.ts';

/** The public keys of another Trestle, by which its tokens are checked. */
export interface IssuerKeys {
  /** The key that a token names. Throws ISSUER_UNAVAILABLE while the keys are not known and cannot be read. */
  readonly keyOf: JWTVerifyGetKey;
  /** Reads the keys now, and returns how many there are. Throws an error with the reason. */
  read(): Promise<number>;
}

interface IssuerKeysOptions {
  /** Without a slash at the end. */
  readonly issuer: string;
  readonly clock: Pick<Clock, 'monotonic'>;
  /** Called when the keys could not be read. */
  onFailure?(error: unknown): void;
}

const TIMEOUT_MS = 5_000;
/** Keys are published for a day longer than they sign, so that this is far from too long. */
const KEPT_MS = 10 * 60_000;
/** A key that is not known may be new; it is looked for at most this often. */
const UNKNOWN_KEY_PAUSE_MS = 30_000;
/** After a failure, calls are refused for this long without another attempt. */
const FAILURE_PAUSE_MS = 5_000;

type LocalKeys = ReturnType<typeof import('jose').createLocalJWKSet>;

export function createIssuerKeys({ issuer, clock, onFailure = () => undefined }: IssuerKeysOptions): IssuerKeys {
  let known: { readonly keys: LocalKeys; readonly readAt: number } | undefined;
  let failedAt = Number.NEGATIVE_INFINITY;
  let reading: Promise<LocalKeys> | undefined;

  const age = (moment: number) => clock.monotonic() - moment;

  async function read(): Promise<LocalKeys> {
    const { createLocalJWKSet } = await import('jose');
    const url = `${issuer}/.well-known/jwks.json`;
    const headers = { accept: 'application/json' };
    const response = await boundedFetch(url, { headers, redirect: 'manual' }, { timeoutMs: TIMEOUT_MS });
    if (response.status !== 200) throw new Error(`it answered with status ${response.status}`);
    const keys = createLocalJWKSet((await response.json()) as JSONWebKeySet);
    known = { keys, readAt: clock.monotonic() };
    return keys;
  }

  /** Calls that come together share one read. */
  function readOnce(): Promise<LocalKeys> {
    if (age(failedAt) < FAILURE_PAUSE_MS) throw unavailable(issuer);
    reading ??= read()
      .catch((error: unknown) => {
        failedAt = clock.monotonic();
        onFailure(error);
        throw unavailable(issuer, error);
      })
      .finally(() => {
        reading = undefined;
      });
    return reading;
  }

  return {
    async keyOf(header, token) {
      const { errors } = await import('jose');
      const isFresh = known !== undefined && age(known.readAt) < KEPT_MS;
      const keys = isFresh && known !== undefined ? known.keys : await readOnce();
      try {
        return await keys(header, token);
      } catch (error) {
        const mayBeNew = known === undefined || age(known.readAt) >= UNKNOWN_KEY_PAUSE_MS;
        if (!(error instanceof errors.JWKSNoMatchingKey) || !mayBeNew) throw error;
        return (await readOnce())(header, token);
      }
    },
    async read() {
      const keys = await read();
      return keys.jwks().keys.length;
    },
  };
}

function unavailable(issuer: string, cause?: unknown): AppError {
  const details = { issuer, retryAfterSeconds: FAILURE_PAUSE_MS / 1000 };
  return new AppError('ISSUER_UNAVAILABLE', details, { cause });
}
