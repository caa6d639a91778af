import { parseJson } from '../../platform/json/parse-json.ts';

/** A match in a text. */
export interface Found {
  readonly start: number;
  readonly end: number;
  /** What is put in its place by a rail that masks: `[email]`. */
  readonly replacement: string;
}

/** Finds what a rail looks for. Takes linear time. */
export type FindContent = (text: string) => Iterable<Found>;

export const PERSONAL_DATA = ['email', 'phone', 'card', 'iban', 'key'] as const;
export type PersonalData = (typeof PERSONAL_DATA)[number];

const EMAIL = /[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}/g;
/** With the code of a country, or as `(555) 123-4567`. Other digits are too often something else. */
const PHONE =
  /(?<![\w+])(?:\+|00)[1-9](?:[ ./()-]{0,2}\d){6,14}(?!\d)|(?<![\w-])\(?\d{3}\)?[ .-]{1,2}\d{3}[ .-]\d{4}(?![\w-])/g;
const DIGITS = /\d(?:[ -]?\d){12,}/g;
const IBAN = /(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?: ?[A-Za-z0-9]){11,30}/g;
/** Keys of Trestle and of well-known services (the log knows the same, with shorter ones: hidden-secrets.ts), signed tokens, and private keys as they stand in files, also without their end. */
const KEYS = [
  /(?<![A-Za-z0-9])(?:tsk_|tpt_|trk_|agt_|whs_|sk-|sk_|gsk_|xai-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|hf_)[\w-]{16,}/g,
  /(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])/g,
  /(?<![A-Za-z0-9])AIza[\w-]{35}/g,
  /(?<![\w-])eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?/g,
  /-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?/g,
];

const MIN_CARD_DIGITS = 13;
const MAX_CARD_DIGITS = 19;
const MIN_IBAN_LENGTH = 15;

const finders: Readonly<Record<PersonalData, FindContent>> = {
  email: (text) => (text.includes('@') ? matches(EMAIL, text, '[email]') : []),
  phone: (text) => matches(PHONE, text, '[phone]'),
  card: findCards,
  iban: findIbans,
  *key(text) {
    for (const pattern of KEYS) yield* matches(pattern, text, '[key]');
  },
};

export function findPersonalData(kinds: readonly PersonalData[]): FindContent {
  const chosen = kinds.map((kind) => finders[kind]);
  return function* (text) {
    for (const find of chosen) yield* find(text);
  };
}

/** Finds matches of the operator's patterns. */
export function findPatterns(patterns: readonly string[], ignoreCase: boolean, replacement: string): FindContent {
  const compiled = patterns.map((pattern) => new RegExp(pattern, ignoreCase ? 'gi' : 'g'));
  return function* (text) {
    for (const pattern of compiled) yield* matches(pattern, text, replacement);
  };
}

function* matches(pattern: RegExp, text: string, replacement: string): Iterable<Found> {
  for (const match of text.matchAll(pattern)) {
    if (match[0] !== '') yield { start: match.index, end: match.index + match[0].length, replacement };
  }
}

/** Finds card numbers. Digits inside a longer number do not count. */
function* findCards(text: string): Iterable<Found> {
  for (const { start, end } of matches(DIGITS, text, '')) {
    for (let at = start; at < end; at += 1) {
      if (!isDigit(text, at) || isDigit(text, at - 1)) continue;
      const length = cardLength(text, at, end);
      if (length === 0) continue;
      yield { start: at, end: at + length, replacement: '[card]' };
      at += length;
    }
  }
}

/** How long the number of a card is that begins here, with its spaces; 0 when there is none. */
function cardLength(text: string, start: number, end: number): number {
  let digits = '';
  let length = 0;
  for (let at = start; at < end && digits.length < MAX_CARD_DIGITS; at += 1) {
    if (!isDigit(text, at)) continue;
    digits += text[at];
    if (digits.length >= MIN_CARD_DIGITS && !isDigit(text, at + 1) && isCard(digits)) length = at + 1 - start;
  }
  return length;
}

function isDigit(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code >= 48 && code <= 57;
}

/** The check digit by Luhn, and a first digit that networks of cards use. */
function isCard(digits: string): boolean {
  if (!/^[2-6]/.test(digits)) return false;
  let sum = 0;
  for (let place = 0; place < digits.length; place += 1) {
    const digit = Number(digits[digits.length - 1 - place]);
    const doubled = place % 2 === 1 ? digit * 2 : digit;
    sum += doubled > 9 ? doubled - 9 : doubled;
  }
  return sum % 10 === 0;
}

/** The longest part that passes the check of ISO 7064: words may follow without another sign between. */
function* findIbans(text: string): Iterable<Found> {
  for (const { start, end } of matches(IBAN, text, '')) {
    for (let stop = end; stop - start >= MIN_IBAN_LENGTH; stop -= 1) {
      if (text[stop - 1] === ' ' || /[A-Za-z0-9]/.test(text[stop] ?? ' ')) continue;
      if (!isIban(text.slice(start, stop).replaceAll(' ', ''))) continue;
      yield { start, end: stop, replacement: '[iban]' };
      break;
    }
  }
}

function isIban(written: string): boolean {
  let rest = 0;
  for (const letter of `${written.slice(4)}${written.slice(0, 4)}`) {
    const value = Number.parseInt(letter, 36);
    rest = (rest * (value > 9 ? 100 : 10) + value) % 97;
  }
  return rest === 1;
}

/** Names of members that contain identifiers or bytes, and no text to check. */
const NOT_WORDS: ReadonlySet<string> = new Set([
  ...['model', 'role', 'type', 'id', 'object', 'name', 'call_id', 'tool_call_id', 'tool_use_id', 'item_id', 'status'],
  ...['format', 'encoding_format', 'detail', 'media_type', 'mime_type', 'mimeType', 'cache_control', 'finish_reason'],
  ...['signature', 'encrypted_content', 'reasoning_signature', 'thoughtSignature'],
]);
/** Bytes in base64, or words: some documents are plain text. */
const BYTES: ReadonlySet<string> = new Set(['data', 'file_data', 'b64_json', 'url', 'image_url', 'uri']);
const DATA_URL = /^data:[\w/+.;=-]{0,200},/;
const MIN_BASE64 = 100;
/** Searched for, because a pattern that repeats a sign until the end takes stack for each: 6 MiB of base64 are too many. */
const NOT_BASE64 = /[^\w+/=-]/;
/** Members whose own members may have any name, such as arguments of calls. */
const FREE: ReadonlySet<string> = new Set(['arguments', 'input', 'args', 'metadata', 'response']);
/** The smallest number that is checked, because shorter ones are not phone or card numbers. */
const MIN_NUMBER = 1_000_000;

/**
 * Visits all texts in a JSON value, always in the same order, and puts what `take` returns in their place. What does not
 * change stays the very same value. The arguments of calls are JSON inside of a string: they are visited as what they hold.
 */
export function mapTexts<Value>(value: Value, take: (text: string) => string): Value {
  return mapValue(value, '', false, take) as Value;
}

function mapValue(value: unknown, name: string, isFree: boolean, take: (text: string) => string): unknown {
  if (typeof value === 'string') return mapString(value, name, isFree, take);
  if (typeof value === 'number' && isFree && Number.isSafeInteger(value) && value >= MIN_NUMBER) {
    const text = String(value);
    const taken = take(text);
    return taken === text ? value : taken;
  }
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    const mapped = value.map((item) => mapValue(item, name, isFree, take));
    return mapped.some((item, index) => item !== value[index]) ? mapped : value;
  }
  const given = value as Readonly<Record<string, unknown>>;
  let changed: Record<string, unknown> | undefined;
  for (const key of Object.keys(given)) {
    const before = given[key];
    const after = mapValue(before, key, isFree || (FREE.has(key) && isNested(before)), take);
    if (after === before) continue;
    changed ??= { ...given };
    changed[key] = after;
  }
  return changed ?? value;
}

function isNested(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function mapString(text: string, name: string, isFree: boolean, take: (text: string) => string): string {
  if (text === '' || (!isFree && NOT_WORDS.has(name)) || (BYTES.has(name) && isBase64(text))) return text;
  return name === 'arguments' ? mapArguments(text, take) : take(text);
}

function isBase64(text: string): boolean {
  const bytes = text.slice(DATA_URL.exec(text)?.[0].length ?? 0);
  return bytes.length >= MIN_BASE64 && !NOT_BASE64.test(bytes);
}

/** The arguments of a call, as text. What is not JSON is visited as it is. */
export function mapArguments(text: string, take: (text: string) => string): string {
  let parsed: unknown;
  try {
    parsed = parseJson(text);
  } catch {
    return isJson(text) ? mapDeep(text, take) : take(text);
  }
  const mapped = mapValue(parsed, '', true, take);
  return mapped === parsed ? text : JSON.stringify(mapped);
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*"?|[-+.\deE]+/g;

/** JSON nested so deep that a walk through its levels might use up the stack: its strings and numbers are visited as they stand. */
function mapDeep(text: string, take: (text: string) => string): string {
  return text.replace(STRING_OR_NUMBER, (literal) => {
    // Of `true` and `false`, their last letter.
    if (literal === 'e') return literal;
    const value: unknown = JSON.parse(literal);
    const mapped = mapValue(value, '', true, take);
    return mapped === value ? literal : JSON.stringify(mapped);
  });
}
