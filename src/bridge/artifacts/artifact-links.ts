import { createHmac } from 'node:crypto';
import type { Dispatcher } from 'undici';
import { AppError, type ErrorCode, errorCode } from '../../platform/errors/app-error.ts';
import type { SecretKeys } from '../../platform/secrets/secret-keys.ts';
import { sameSecret } from '../../platform/secrets/tokens.ts';
import type { RelayedFile } from '../agents/agent-provider.ts';
import { networkReason } from '../agents/post-for-events.ts';

/** The target of a signed path: a file that this bridge keeps, or the link of another bridge. */
export type SignedFile =
  | { readonly expiresAt: number; readonly artifactId: string }
  | { readonly expiresAt: number; readonly place: string; readonly path: string };

/** Signed paths: anyone who has one may download that one file, until the path expires. */
export interface ArtifactLinks {
  sign(artifactId: string, name: string, expiresAt: number): string;
  /**
   * Signs a path that leads through this bridge to a link of another one, whose time it keeps. `place` is `node.` and the
   * id of a node, or `agent.` and the id of a remote agent. Undefined for a text that is not a link of a bridge.
   */
  relay(place: string, path: string): string | undefined;
  /** Undefined for a path that this bridge has not signed. */
  read(path: string): SignedFile | undefined;
}

const PREFIX = '/artifacts/';
/** Separates the id of an agent from the id of its runner in the name of a place. */
export const RUNNER_MARK = '~';
const MAX_PATH_LENGTH = 6000;
const SEGMENT = /^[\w.!~*'()%-]{1,1024}$/;

/** The first key signs, every key is accepted when reading: links outlive a rotation. */
export function createArtifactLinks(keys: SecretKeys): ArtifactLinks {
  const signature = (key: Uint8Array, text: string) => createHmac('sha256', key).update(text).digest('base64url');
  const signed = (rest: string) => `${PREFIX}${signature(keys[0], rest)}/${rest}`;
  return {
    sign: (artifactId, name, expiresAt) =>
      signed(`${expiresAt}/${artifactId}/${encodeURIComponent(name.toWellFormed())}`),
    relay(place, path) {
      const segments = path.slice(PREFIX.length).split('/');
      const [, expiresAt = ''] = segments;
      const isLink =
        path.startsWith(PREFIX) &&
        path.length <= MAX_PATH_LENGTH &&
        /^\d{1,15}$/.test(expiresAt) &&
        segments.length >= 4 &&
        segments.every((segment) => SEGMENT.test(segment)) &&
        // `..`, also in its encoded spellings, would lead to another path of that bridge.
        new URL(path, 'http://bridge').pathname === path;
      return isLink ? signed(`${expiresAt}/${place}/${segments.join('/')}`) : undefined;
    },
    read(path) {
      const slash = path.indexOf('/', PREFIX.length);
      if (!path.startsWith(PREFIX) || slash === -1) return undefined;
      const given = path.slice(PREFIX.length, slash);
      const rest = path.slice(slash + 1);
      if (!keys.some((key) => sameSecret(given, signature(key, rest)))) return undefined;
      const [expiresAt = '', what = '', ...further] = rest.split('/');
      // The id of a file has no dot, and the name of a place always has one.
      if (!what.includes('.')) return { expiresAt: Number(expiresAt), artifactId: what };
      return { expiresAt: Number(expiresAt), place: what, path: `${PREFIX}${further.join('/')}` };
    },
  };
}

/**
 * Replaces the links in the result of a turn, of a job or of a list of jobs that came from another bridge. Changes the
 * result, which was just parsed.
 */
export function relinkArtifacts(result: unknown, relay: (path: string) => string | undefined): void {
  const { artifacts, result: ofJob, jobs } = Object(result) as Readonly<Record<string, unknown>>;
  if (Array.isArray(artifacts)) {
    for (const artifact of artifacts as unknown[]) {
      const { downloadUrl } = Object(artifact) as Readonly<Record<string, unknown>>;
      const own = typeof downloadUrl === 'string' ? relay(downloadUrl) : undefined;
      if (own !== undefined) Object.assign(artifact as object, { downloadUrl: own });
    }
  }
  if (typeof ofJob === 'object' && ofJob !== null) relinkArtifacts(ofJob, relay);
  if (Array.isArray(jobs)) for (const job of jobs as unknown[]) relinkArtifacts(job, relay);
}

export interface FileRequest {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The node or agent that has the file; shown in the error. */
  readonly place: string;
  readonly signal: AbortSignal;
  readonly dispatcher?: Dispatcher;
}

/** The largest file that has a link. */
export const MAX_ARTIFACT_BYTES = 64 * 1024 * 1024;
const HEADERS_TIMEOUT_MS = 30_000;
const IDLE_TIMEOUT_MS = 30_000;
const MAX_ERROR_BYTES = 64 * 1024;
const REFUSALS: Readonly<Record<number, ErrorCode>> = {
  403: 'ARTIFACT_LINK_INVALID',
  404: 'NOT_FOUND',
  410: 'ARTIFACT_EXPIRED',
};
const CONTENT_TYPE = /^[a-z]{1,20}\/[a-z0-9.+-]{1,80}(?:; charset=utf-8)?$/;

/** Requests a file by its link on another bridge. Redirects are not followed: the credential stays with that bridge. */
export async function requestFile({ url, headers, place, signal, dispatcher }: FileRequest): Promise<RelayedFile> {
  const unreachable = (reason: string, cause?: unknown) =>
    new AppError('ARTIFACT_UNREACHABLE', { place, reason }, { cause });
  const { request } = await import('undici');
  const response = await request(url, {
    headers,
    signal,
    headersTimeout: HEADERS_TIMEOUT_MS,
    bodyTimeout: IDLE_TIMEOUT_MS,
    ...(dispatcher !== undefined && { dispatcher }),
  }).catch((error: unknown) => {
    throw unreachable(errorCode(error) === '' && error instanceof Error ? error.message : networkReason(error), error);
  });
  const { statusCode, body } = response;
  // An error may come before anything reads the body; the reader gets the error too.
  body.on('error', () => undefined);
  if (statusCode !== 200) {
    await body.dump({ limit: MAX_ERROR_BYTES, signal }).catch(() => undefined);
    const code = REFUSALS[statusCode];
    throw code === undefined ? unreachable(`it answered with status ${statusCode}`) : new AppError(code);
  }
  const sizeBytes = Number(response.headers['content-length']);
  const given = String(response.headers['content-type'] ?? '');
  if (!Number.isSafeInteger(sizeBytes) || sizeBytes > MAX_ARTIFACT_BYTES) {
    body.destroy();
    throw unreachable(`it did not say how large the file is, or the file is larger than ${MAX_ARTIFACT_BYTES} bytes`);
  }
  return { contentType: CONTENT_TYPE.test(given) ? given : 'application/octet-stream', sizeBytes, body };
}
