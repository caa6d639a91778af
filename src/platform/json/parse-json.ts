import { Buffer, isUtf8 } from 'node:buffer';
import { AppError } from '../errors/app-error.ts';

const DEFAULT_MAX_DEPTH = 128;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
/** After so many characters of a string its end is looked for natively: faster, but not for a string full of quotes. */
const NEAR = 64;
const BYTE_ORDER_MARK = 0xfeff;

/**
 * `JSON.parse` for text from outside. Throws PARSE_ERROR, with a reason that never repeats the text, for what is not
 * JSON and for arrays and objects nested deeper than `maxDepth`: code that walks or serialises the value later may recurse.
 *
 * A member named `__proto__` becomes an ordinary own property, as `JSON.parse` has it: it is passed on like any other
 * and changes no prototype. A leading byte order mark is skipped (RFC 8259 section 8.1 leaves that to the reader).
 */
export function parseJson(text: string, options?: { maxDepth?: number; limits?: ValueLimits }): unknown {
  const maxDepth = options?.maxDepth ?? DEFAULT_MAX_DEPTH;
  const source = text.charCodeAt(0) === BYTE_ORDER_MARK ? text.slice(1) : text;
  if (hasMore(source, ['{', '['], maxDepth) && isDeeperThan(source, maxDepth)) {
    throw new AppError('PARSE_ERROR', { reason: `it is nested deeper than ${maxDepth} levels` });
  }
  if (options?.limits !== undefined) refuseManyValues(source, options.limits);
  try {
    return JSON.parse(source);
  } catch (error) {
    throw new AppError('PARSE_ERROR', { reason: reasonOf(source, error) });
  }
}

/** How many values the JSON of a request may have: with more, parsing and checking it would hold up all other callers. */
export interface ValueLimits {
  /** Elements, members, arrays and objects together. */
  readonly values: number;
  /** Members of objects. Their names may all differ, and each new name costs the parser a microsecond or more. */
  readonly members: number;
}

const DEFAULT_LIMITS: ValueLimits = { values: 200_000, members: 50_000 };

/**
 * `parseJson` for the body or the message of a request. Throws REQUEST_TOO_COMPLEX, before anything is parsed, for JSON
 * of more values than the limits: megabytes are long texts and attachments, not hundreds of thousands of values.
 */
export function parseRequest(body: string | Uint8Array, limits?: Partial<ValueLimits>): unknown {
  const text = typeof body === 'string' ? body : decodeUtf8(body);
  return parseJson(text, { limits: limits === undefined ? DEFAULT_LIMITS : { ...DEFAULT_LIMITS, ...limits } });
}

function refuseManyValues(text: string, limits: ValueLimits): void {
  // A member takes four characters at least, and another value two.
  if (text.length <= Math.min(4 * limits.members, 2 * limits.values)) return;
  if (!hasMore(text, [':'], limits.members) && !hasMore(text, [',', '{', '['], limits.values)) return;
  const { values, members } = countValues(text, limits);
  if (members > limits.members) throw new AppError('REQUEST_TOO_COMPLEX', { limit: limits.members, parts: 'members' });
  if (values > limits.values) throw new AppError('REQUEST_TOO_COMPLEX', { limit: limits.values, parts: 'values' });
}

/** Counts what is outside of strings: a comma or an opening bracket is a value, a colon is a member. Stops at a limit. */
function countValues(text: string, limits: ValueLimits): ValueLimits {
  let values = 0;
  let members = 0;
  for (let at = 0; at < text.length && values <= limits.values && members <= limits.members; at += 1) {
    const character = text.charCodeAt(at);
    if (character === QUOTE) at = endOfString(text, at);
    else if (character === COMMA || (character | 0x20) === 0x7b) values += 1;
    else if (character === COLON) members += 1;
  }
  return { values, members };
}

/** Bytes to text, refusing what is not UTF-8 with PARSE_ERROR instead of replacing it. */
export function decodeUtf8(bytes: Uint8Array): string {
  if (!isUtf8(bytes)) throw new AppError('PARSE_ERROR', { reason: 'it is not valid UTF-8' });
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
}

/** Counts characters natively and stops at the limit: text with few of them, however long, needs no exact scan. */
function hasMore(text: string, characters: readonly string[], most: number): boolean {
  if (text.length <= most) return false;
  let count = 0;
  for (const character of characters) {
    for (let at = text.indexOf(character); at !== -1; at = text.indexOf(character, at + 1)) {
      count += 1;
      if (count > most) return true;
    }
  }
  return false;
}

/** Brackets inside strings do not count. Text that is not JSON may be measured wrongly: the parser refuses it anyway. */
function isDeeperThan(text: string, maxDepth: number): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    const character = text.charCodeAt(at);
    if (character === QUOTE) {
      at = endOfString(text, at);
      // `{` and `[` differ from each other, as `}` and `]` do, in this one bit.
    } else if ((character | 0x20) === 0x7b) {
      depth += 1;
      if (depth > maxDepth) return true;
    } else if ((character | 0x20) === 0x7d) {
      depth -= 1;
    }
  }
  return false;
}

/** The place of the quote that closes the string opened at `start`; the end of the text when none does. */
function endOfString(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length) {
    for (const near = at + NEAR; at < near; at += 1) {
      const character = text.charCodeAt(at);
      if (character === QUOTE) return at;
      if (character === BACKSLASH) at += 1;
    }
    const quote = text.indexOf('"', at);
    if (quote === -1) break;
    let before = quote - 1;
    while (before >= at && text.charCodeAt(before) === BACKSLASH) before -= 1;
    if ((quote - before) % 2 === 1) return quote;
    at = quote + 1;
  }
  return text.length;
}

/** V8 quotes the text in most of its messages: only the position is taken over. */
function reasonOf(text: string, error: unknown): string {
  if (text.trim() === '') return 'it is empty';
  const message = error instanceof Error ? error.message : '';
  if (message === 'Unexpected end of JSON input') return 'it ends too early';
  const position = / JSON at position (\d+)(?: \(line \d+ column \d+\))?$/.exec(message)?.[1];
  return position === undefined ? 'it has something unexpected in it' : `unexpected text at position ${position}`;
}
