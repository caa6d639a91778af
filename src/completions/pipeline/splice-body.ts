import { startOfValue } from './read-usage.ts';

const MODEL = Buffer.from('"model"');
/** How an ASCII letter of a key could be written differently. */
const ESCAPED_ASCII = Buffer.from('\\u00');
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const MAX_JSON_NAME = 4096;

/**
 * The bytes of a request with another model, and with `before` (members, with their comma) put in front of it;
 * everything else stays as it came. Undefined when it is not plain where the model stands: the key must be there once,
 * in its usual spelling, so that what is replaced is what a parser reads.
 */
export function spliceModel(body: Buffer, from: string, to: string, before = ''): Buffer | undefined {
  const at = body.indexOf(MODEL);
  if (at === -1 || body.indexOf(MODEL, at + 1) !== -1 || body.includes(ESCAPED_ASCII)) return undefined;
  const start = startOfValue(body, at + MODEL.length);
  if (start === -1 || body[start] !== QUOTE) return undefined;
  const end = endOfString(body, start);
  if (end === -1 || end - start > MAX_JSON_NAME || body.toString('utf8', start + 1, end - 1) !== from) return undefined;
  const middle = Buffer.from(`${before}"model":${JSON.stringify(to)}`);
  return Buffer.concat([body.subarray(0, at), middle, body.subarray(end)], at + middle.length + body.length - end);
}

/** The place after the closing quote; -1 for what is escaped: such a name is rare enough to take the other way. */
function endOfString(bytes: Buffer, start: number): number {
  const end = bytes.indexOf(QUOTE, start + 1);
  if (end === -1) return -1;
  for (let at = start + 1; at < end; at += 1) if (bytes[at] === BACKSLASH) return -1;
  return end + 1;
}
