import { hkdfSync } from 'node:crypto';
import { SECRET_KEY_BYTES, type SecretKeys } from './secret-keys.ts';

/** Keys for one use, from the secret keys: what is made with them tells nothing about those, or about other uses. */
export function deriveKeys([first, ...others]: SecretKeys, purpose: string): SecretKeys {
  const derive = (key: Uint8Array) => new Uint8Array(hkdfSync('sha256', key, '', purpose, SECRET_KEY_BYTES));
  return [derive(first), ...others.map(derive)];
}
