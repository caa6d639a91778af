import { createHmac } from 'node:crypto';
import { sameSecret } from '../../platform/secrets/tokens.ts';

const TOLERANCE_MS = 5 * 60_000;
const LONGEST_HEADER = 1024;
const MOST_SIGNATURES = 4;

/**
 * When a webhook was signed (`X-App-Signature: t=<unix seconds>,v1=<hex of HMAC-SHA256 over "t.body">`), in milliseconds;
 * undefined unless the signature is right and from the last five minutes. Several `v1` may stand there while the secret
 * is being replaced.
 */
export function signedAt(
  header: string | undefined,
  body: Uint8Array,
  secret: string,
  now: number,
): number | undefined {
  if (secret === '' || header === undefined || header.length > LONGEST_HEADER) return undefined;
  const parts = header.split(',').map((part) => part.trim());
  const times = parts.filter((part) => part.startsWith('t='));
  const [time = ''] = times;
  const signatures = parts.filter((part) => part.startsWith('v1=')).slice(0, MOST_SIGNATURES);
  if (times.length !== 1 || !/^t=\d{1,12}$/.test(time)) return undefined;
  const seconds = time.slice(2);
  const at = Number(seconds) * 1000;
  if (Math.abs(now - at) > TOLERANCE_MS) return undefined;
  const expected = createHmac('sha256', secret).update(`${seconds}.`).update(body).digest('hex');
  return signatures.some((signature) => sameSecret(signature.slice(3).toLowerCase(), expected)) ? at : undefined;
}
