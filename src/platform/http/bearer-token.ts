import type { RequestHead } from './surface.ts';

/** The token of `Authorization: Bearer <token>`; empty, which matches no secret, for anything else. */
export function bearerToken({ headers }: RequestHead): string {
  return /^bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1] ?? '';
}
