import { createHmac } from 'node:crypto';
import type { SecretKeys } from '../../platform/secrets/secret-keys.ts';
import { sameSecret } from '../../platform/secrets/tokens.ts';

/** Signed paths: who has one may download that one file, until it expires (contract/bridge 1). */
export interface ArtifactLinks {
  sign(artifactId: string, name: string, expiresAt: number): string;
  /** Undefined for a path that we have not signed. */
  read(path: string): { readonly artifactId: string; readonly expiresAt: number } | undefined;
}

const PREFIX = '/artifacts/';

/** The first key signs, every key is good for reading: links outlive a rotation. */
export function createArtifactLinks(keys: SecretKeys): ArtifactLinks {
  const signature = (key: Uint8Array, text: string) => createHmac('sha256', key).update(text).digest('base64url');
  return {
    sign(artifactId, name, expiresAt) {
      const rest = `${expiresAt}/${artifactId}/${encodeURIComponent(name.toWellFormed())}`;
      return `${PREFIX}${signature(keys[0], rest)}/${rest}`;
    },
    read(path) {
      const slash = path.indexOf('/', PREFIX.length);
      if (!path.startsWith(PREFIX) || slash === -1) return undefined;
      const given = path.slice(PREFIX.length, slash);
      const rest = path.slice(slash + 1);
      if (!keys.some((key) => sameSecret(given, signature(key, rest)))) return undefined;
      const [expiresAt = '', artifactId = ''] = rest.split('/');
      return { artifactId, expiresAt: Number(expiresAt) };
    },
  };
}
