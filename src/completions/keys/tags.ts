import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { MAX_TAGS } from '../contract/keys.ts';
import type { KeyHolder } from './admission.ts';

/** Marks a call, for reports and for the log of calls. */
export const TAGS_HEADER = 'x-tags';
/** As `TAG_PATTERN` of the contract. */
const TAG = /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$/;

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
