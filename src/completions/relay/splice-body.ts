import { startOfValue } from './token-usage.ts';

const MODEL_TEXT = '"model"';
const MODEL = Buffer.from(MODEL_TEXT);
/** The start of an escape, in which an ASCII letter of a key could be written. */
const ESCAPED_ASCII = Buffer.from('\\u00');
const MODEL_OR_ESCAPED = /"model"|\\u00/g;
/** Above this size a regular expression searches: a native search slows down at every byte that a mark begins with. */
const MAX_NATIVE_SEARCH = 256 * 1024;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN = 0x7b;
const CLOSE = 0x7d;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const MAX_JSON_NAME = 4096;
/** The longest spelling of the key: every letter as an escape of six characters. */
const MAX_SPELLING = 5 * 6 + 2;

/**
 * Returns the bytes of a request with another model, and with `before` (members, with their comma) in front of the model, as
 * parts that follow each other; all other bytes are the caller's own, not a copy. Undefined when the place of the model is not
 * certain: the request's own key must be there once, in its usual spelling, so that a parser would read the value that is replaced.
 */
export function spliceModel(body: Buffer, from: string, to: string, before = ''): readonly Buffer[] | undefined {
  const only = body.length > MAX_NATIVE_SEARCH ? placeInLarge(body) : placeInSmall(body);
  const at = only === -1 ? placeAmongMembers(body) : only;
  if (at === -1) return undefined;
  const start = startOfValue(body, at + MODEL.length);
  if (start === -1 || body[start] !== QUOTE) return undefined;
  const end = endOfString(body, start);
  if (end === -1 || end - start > MAX_JSON_NAME || body.toString('utf8', start + 1, end - 1) !== from) return undefined;
  const middle = Buffer.from(`${before}"model":${JSON.stringify(to)}`);
  return [body.subarray(0, at), middle, body.subarray(end)];
}

/** Finds the only `"model"` of a body; -1 when there are none or several, or when one may be written with escapes. */
function placeInSmall(body: Buffer): number {
  const at = body.indexOf(MODEL);
  return at === -1 || body.indexOf(MODEL, at + 1) !== -1 || body.includes(ESCAPED_ASCII) ? -1 : at;
}

/** Searches part by part, so that the text of a large body is not there as a whole. */
function placeInLarge(body: Buffer): number {
  let found = -1;
  for (let start = 0; start < body.length; start += MAX_NATIVE_SEARCH) {
    // A mark that begins in this part ends at most its length later.
    const text = body.toString('latin1', start, start + MAX_NATIVE_SEARCH + MODEL.length - 1);
    MODEL_OR_ESCAPED.lastIndex = 0;
    for (let match = MODEL_OR_ESCAPED.exec(text); match !== null; match = MODEL_OR_ESCAPED.exec(text)) {
      if (match.index >= MAX_NATIVE_SEARCH) break;
      if (found !== -1 || match[0] !== MODEL_TEXT) return -1;
      found = start + match.index;
    }
  }
  return found;
}

/**
 * Finds the key `"model"` of the request itself, where schemas and contents have the same key or escapes: reads the members of
 * the outermost object one by one. -1 when the key is there twice, or is written with escapes. `body` is valid JSON.
 */
function placeAmongMembers(body: Buffer): number {
  let found = -1;
  let depth = 0;
  for (let at = 0; at < body.length; at += 1) {
    const byte = body[at];
    if (byte === OPEN || byte === OPEN_LIST) depth += 1;
    else if (byte === CLOSE || byte === CLOSE_LIST) depth -= 1;
    else if (byte === QUOTE) {
      const start = at;
      at = closingQuote(body, start);
      if (at === -1) return -1;
      if (depth !== 1 || at - start > MAX_SPELLING || startOfValue(body, at + 1) === -1) continue;
      const key = body.toString('utf8', start, at + 1);
      if (key.includes('\\') ? JSON.parse(key) === 'model' : key === MODEL_TEXT) {
        if (found !== -1 || key !== MODEL_TEXT) return -1;
        found = start;
      }
    }
  }
  return found;
}

/** The quote that ends a string: the first with an even number of backslashes before it. */
function closingQuote(bytes: Buffer, start: number): number {
  for (let end = bytes.indexOf(QUOTE, start + 1); end !== -1; end = bytes.indexOf(QUOTE, end + 1)) {
    let before = end - 1;
    while (bytes[before] === BACKSLASH) before -= 1;
    if ((end - before) % 2 === 1) return end;
  }
  return -1;
}

/** The place after the closing quote; -1 for what is escaped: such a name is rare enough to take the other way. */
function endOfString(bytes: Buffer, start: number): number {
  const end = bytes.indexOf(QUOTE, start + 1);
  if (end === -1) return -1;
  for (let at = start + 1; at < end; at += 1) if (bytes[at] === BACKSLASH) return -1;
  return end + 1;
}
