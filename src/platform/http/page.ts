import { createHash } from 'node:crypto';
import type { Call } from './surface.ts';

/** What every page of ours may load: its own files, no other host, and no markup made from data. */
const EVERY_PAGE = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
];

/** The content policy of a page. `more`: what this page needs besides. */
export function pagePolicy(...more: readonly string[]): string {
  return [...EVERY_PAGE, ...more].join('; ');
}

/** A text that browsers may keep, and its tag. */
export interface StoredText {
  readonly text: string;
  readonly etag: string;
}

export function storedText(text: string): StoredText {
  return { text, etag: `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"` };
}

/** Sends a page under its policy. */
export function sendPage(call: Call<unknown>, policy: string, page: StoredText): unknown {
  call.reply
    .header('content-security-policy', policy)
    .header('referrer-policy', 'no-referrer')
    .header('cross-origin-opener-policy', 'same-origin');
  return sendText(call, 'text/html; charset=utf-8', page);
}

/** Always asked for again, and answered without a body while it is the same: a new release shows immediately. */
export function sendText({ head, reply }: Call<unknown>, contentType: string, { text, etag }: StoredText): unknown {
  reply.header('cache-control', 'no-cache').header('etag', etag).header('x-content-type-options', 'nosniff');
  // The header may be a list, and a proxy that compresses marks the tag as weak.
  if (head.headers['if-none-match']?.includes(etag)) return reply.code(304).send();
  return reply.type(contentType).send(text);
}
