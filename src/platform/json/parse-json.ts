import { Buffer, isUtf8 } from 'node:buffer';
import { AppError } from '../errors/app-error.ts';

const DEFAULT_MAX_DEPTH = 128;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const BYTE_ORDER_MARK = 0xfeff;

/**
 * `JSON.parse` for text from outside. Throws PARSE_ERROR, with a reason that never repeats the text, for what is not
 * JSON and for arrays and objects nested deeper than `maxDepth`: whoever walks or serialises the value later may recurse.
 *
 * A member named `__proto__` becomes an ordinary own property, as `JSON.parse` has it: it is passed on like any other
 * and changes no prototype. A leading byte order mark is skipped (RFC 8259 section 8.1 leaves that to the reader).
 */
export function parseJson(text: string, options?: { maxDepth?: number }): unknown {
  const maxDepth = options?.maxDepth ?? DEFAULT_MAX_DEPTH;
  const source = text.charCodeAt(0) === BYTE_ORDER_MARK ? text.slice(1) : text;
  if (mayBeDeeperThan(source, maxDepth) && isDeeperThan(source, maxDepth)) {
    throw new AppError('PARSE_ERROR', { reason: `it is nested deeper than ${maxDepth} levels` });
  }
  try {
    return JSON.parse(source);
  } catch (error) {
    throw new AppError('PARSE_ERROR', { reason: reasonOf(source, error) });
  }
}

/**
 * Whether JSON text has more values than `most`, by the commas and opening brackets outside of its strings. Stops at the
 * limit: for text that has far more, this takes a fraction of the time of parsing it.
 */
export function hasMoreValues(text: string, most: number): boolean {
  let count = 0;
  for (let at = 0; at < text.length; at += 1) {
    const character = text.charCodeAt(at);
    if (character === QUOTE) at = endOfString(text, at);
    else if (character === COMMA || (character | 0x20) === 0x7b) {
      count += 1;
      if (count > most) return true;
    }
  }
  return false;
}

/** Bytes to text, refusing what is not UTF-8 with PARSE_ERROR instead of replacing it. */
export function decodeUtf8(bytes: Uint8Array): string {
  if (!isUtf8(bytes)) throw new AppError('PARSE_ERROR', { reason: 'it is not valid UTF-8' });
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
}

/** Counts opening brackets natively and stops at the limit: text with few brackets, however long, needs no exact scan. */
function mayBeDeeperThan(text: string, maxDepth: number): boolean {
  if (text.length <= maxDepth) return false;
  let count = 0;
  for (const bracket of ['{', '[']) {
    for (let at = text.indexOf(bracket); at !== -1; at = text.indexOf(bracket, at + 1)) {
      count += 1;
      if (count > maxDepth) return true;
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
  let at = text.indexOf('"', start + 1);
  while (at !== -1) {
    let before = at - 1;
    while (text.charCodeAt(before) === BACKSLASH) before -= 1;
    if ((at - before) % 2 === 1) return at;
    at = text.indexOf('"', at + 1);
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
