import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { MAX_TAGS } from '../contract/keys.ts';
import type { KeyHolder } from './admission.ts';

/** Marks a call, for reports and for the log of calls. */
export const TAGS_HEADER = 'x-tags';
/** As `TAG_PATTERN` of the contract. */
const TAG = /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$/;

/** `version-trace-span-flags` (https://www.w3.org/TR/trace-context/); later versions may go on after another dash. */
const TRACE_PARENT =
  /^(?:00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})|(?!ff|00)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.{0,256})?)$/;
const NO_ID = /^0+$/;

/** The holder with the trace that the request is part of. A header that is not valid begins no trace, and refuses nothing. */
export function withTrace(holder: KeyHolder, { headers }: Pick<RequestHead, 'headers'>): KeyHolder {
  const found = TRACE_PARENT.exec(String(headers.traceparent ?? '')) ?? undefined;
  const [traceId, spanId, flags] = found?.slice(1).filter((part) => part !== undefined) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return holder;
  if (NO_ID.test(traceId) || NO_ID.test(spanId)) return holder;
  return { ...holder, trace: { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & 1) === 1 } };
}

/** The holder with the tags that the request has besides those of the key. Throws INVALID_REQUEST. */
export function withTags(holder: KeyHolder, { headers }: Pick<RequestHead, 'headers'>): KeyHolder {
  const names = String(headers[TAGS_HEADER] ?? '')
    .split(',', MAX_TAGS + 1)
    .map((name) => name.trim())
    .filter((name) => name !== '');
  if (names.length > MAX_TAGS) refuse(`it has more than ${MAX_TAGS} tags`);
  if (names.some((name) => !TAG.test(name)))
    refuse('a tag has 1 to 64 letters, digits and the characters . _ : / - and begins with a letter or a digit');
  return names.length === 0 ? holder : { ...holder, tags: sorted([...(holder.tags ?? []), ...names]) };
}

function refuse(what: string): never {
  const reason = `the header ${TAGS_HEADER} is a list of tags, separated by commas, and ${what}`;
  throw new AppError('INVALID_REQUEST', { reason, issues: [{ path: `/${TAGS_HEADER}`, message: reason }] });
}

function sorted(tags: readonly string[]): readonly string[] {
  return [...new Set(tags)].sort();
}

/** How tags are stored, so that one of them can be looked for: `,a,b,`. */
export function storedTags(tags: readonly string[] = []): string {
  return tags.length === 0 ? '' : `,${sorted(tags).join(',')},`;
}

export function readTags(stored: string): string[] {
  return stored === '' ? [] : stored.slice(1, -1).split(',');
}
