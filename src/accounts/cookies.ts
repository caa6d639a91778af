import type { RequestHead } from '../platform/http/surface.ts';

export const SESSION_COOKIE = 'xc_session';
export const DEVICE_COOKIE = 'xc_device';
export const VERIFICATION_COOKIE = 'xc_verification';
/** Ties a login with another provider to the browser that began it. */
export const OAUTH_COOKIE = 'xc_oauth';

export interface CookieOptions {
  readonly secure: boolean;
  /** 0 removes the cookie. */
  readonly maxAgeSeconds: number;
}

/** Returns a cookie that is HttpOnly, limited to this host (no Domain), and not sent with writes from other sites. */
export function cookieText(name: string, value: string, { secure, maxAgeSeconds }: CookieOptions): string {
  const flags = `Path=/; HttpOnly; SameSite=Lax${secure ? '; Secure' : ''}`;
  return `${name}=${value}; Max-Age=${maxAgeSeconds}; ${flags}`;
}

/**
 * Returns the value of a cookie; empty when there is none. Two different values for one name count as none, because another
 * host of the same domain may have set one of them.
 */
export function readCookie({ headers }: Pick<RequestHead, 'headers'>, name: string): string {
  let found: string | undefined;
  for (const part of (headers.cookie ?? '').split(';')) {
    const mark = part.indexOf('=');
    if (mark === -1 || part.slice(0, mark).trim() !== name) continue;
    const value = part.slice(mark + 1).trim();
    if (found !== undefined && found !== value) return '';
    found = value;
  }
  return found ?? '';
}
