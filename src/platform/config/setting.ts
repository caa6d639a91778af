import { isIP } from 'node:net';
import { resolve } from 'node:path';
import type { Static } from 'typebox';
import { createAddressMatcher, isHostName, parseListenAddress } from '../network-address/ip-address.ts';
import { nearestName } from './problem.ts';
import type { CollectionSetting, Folders, GroupSetting, LeafSetting, Reading, Setting } from './setting-declaration.ts';

type Members = Readonly<Record<string, Setting<unknown>>>;
type GroupOf<M extends Members> = Setting<{ readonly [Key in keyof M]: Static<M[Key]> }>;

/** Settings under one key. Each of them may be set on its own. */
function group<const M extends Members>(description: string, members: M): GroupOf<M> {
  const own: GroupSetting = { shape: 'group', description, members };
  return own as GroupOf<M>;
}

type CollectionOptions = Pick<LeafOptions<never>, 'env' | 'reload'> & { readonly description: string };

/** Any number of values; set as a whole. */
function list<T>(
  item: Setting<T>,
  options: CollectionOptions & { readonly default?: readonly unknown[]; readonly minimum?: number },
): Setting<readonly T[]> {
  const { minimum = 0 } = options;
  const fallback = options.default ?? (minimum > 0 ? undefined : []);
  const json = { type: 'array', ...(minimum > 0 && { minItems: minimum }) };
  return collection(item, options, { shape: 'list', fallback, minimum, json });
}

/** Values under keys that the user chooses; set as a whole. Empty by default. */
function record<T>(
  value: Setting<T>,
  options: CollectionOptions & { readonly keyPattern: string; readonly keyExpects: string },
): Setting<Readonly<Record<string, T>>> {
  const { keyPattern, keyExpects } = options;
  const json = { type: 'object', propertyNames: { pattern: keyPattern } };
  const keys = { keyPattern: new RegExp(keyPattern), keyExpects };
  return collection(value, options, { shape: 'record', fallback: {}, json, ...keys });
}

function collection<T>(
  member: Setting<unknown>,
  { description, env, reload = false }: CollectionOptions,
  own: Pick<CollectionSetting, 'shape' | 'fallback' | 'json'> & Partial<CollectionSetting>,
): Setting<T> {
  const type = `${own.shape === 'list' ? 'list' : 'map'} of ${member.shape === 'group' ? 'groups' : member.type}`;
  const unused = { minimum: 0, keyPattern: /^/, keyExpects: '' };
  return { ...unused, description, env, reload, type, member, ...own } as CollectionSetting as Setting<T>;
}

/** What can be said about any single value. An item of a list needs no description of its own. */
interface LeafOptions<Raw> {
  readonly description?: string;
  /** As a file would have it. Without one the setting has to be given. An empty string is allowed only where it is the default. */
  readonly default?: Raw;
  readonly env?: string;
  readonly flag?: string;
  /** `maybe`: masked when printed, but not called a secret. */
  readonly secret?: boolean | 'maybe';
  /** May change while the program runs. */
  readonly reload?: boolean;
  readonly emptyClears?: boolean;
}

type Json = LeafSetting['json'];
type Decode = LeafSetting['decode'];
type Extras = Partial<Pick<LeafSetting, 'secrecy' | 'encode'>>;

/** A kind of leaf: its type and what is expected, in words; the schema of what a file may hold; and how a value is decoded. */
function kind<T, Raw = T>(type: string, expects: string, json: Json, decode: Decode, extras: Extras = {}) {
  return (options: LeafOptions<Raw>): Setting<T> => {
    const { description = '', env, flag, reload = false, emptyClears = false, default: fallback, secret } = options;
    const secrecy = secret === true ? 'secret' : secret === 'maybe' ? 'private' : (extras.secrecy ?? 'open');
    const given = { description, env, flag, reload, emptyClears, fallback, secrecy } as const;
    const own = { shape: 'leaf', type, expects, json, decode, encode: (value: unknown) => value, ...extras } as const;
    return { ...own, ...given } as LeafSetting as Setting<T>;
  };
}

const MAX_CHARACTERS = 4096;
const ONE_LINE = { type: 'string', maxLength: MAX_CHARACTERS };

/** Decodes one line of text; anything else is refused before. */
function line(decode: (text: string, folders: Folders) => Reading<unknown>): Decode {
  return (raw, _textual, folders) => {
    if (typeof raw !== 'string') return { wrong: `is a ${typeof raw}`, fix: 'quote it to make it a string' };
    if (raw.length > MAX_CHARACTERS) return { wrong: `is longer than ${MAX_CHARACTERS} characters` };
    return /\p{Cc}/u.test(raw) ? { wrong: 'has a control character or a line end in it' } : decode(raw, folders);
  };
}

/** One line of text. `pattern` is what it has to look like, said in words by `expects`; it goes into the JSON schema, too. */
function text(
  options: LeafOptions<string> & { readonly pattern?: string; readonly expects?: string },
): Setting<string> {
  const { pattern = '', expects = 'one line of text' } = options;
  const form = new RegExp(pattern);
  const decode = line((value) => (form.test(value) ? { value } : { wrong: 'does not have the right form' }));
  return kind<string>('text', expects, pattern === '' ? ONE_LINE : { ...ONE_LINE, pattern }, decode)(options);
}

const SECRET = { secrecy: 'secret' } as const;
const VISIBLE = '^[!-~]+$';

const decodeToken = line((value) =>
  new RegExp(VISIBLE).test(value) ? { value } : { wrong: 'has a character outside ASCII in it' },
);

/** Random bytes in base64, such as an encryption key. Always a secret. */
function keyBytes(options: LeafOptions<string> & { readonly bytes: number }): Setting<string> {
  const { bytes } = options;
  const pattern = '^[A-Za-z0-9+/_-]+={0,2}$';
  const expects = `${bytes} bytes in base64; "openssl rand -base64 ${bytes}" makes one`;
  const decode: Decode = (raw) => {
    if (typeof raw !== 'string' || !new RegExp(pattern).test(raw)) return { wrong: 'is not base64' };
    const { length } = Buffer.from(raw, 'base64');
    return length === bytes ? { value: raw } : { wrong: `holds ${length} bytes` };
  };
  return kind<string>(`${bytes} bytes in base64`, expects, matching(pattern), decode, SECRET)(options);
}

function decodePath(written: string, { directory, homeDirectory }: Folders): Reading<string> {
  if (!written.startsWith('~')) return { value: resolve(directory, written) };
  if (/^~(?:[\\/]|$)/.test(written)) return { value: resolve(homeDirectory, written.slice(2)) };
  return { wrong: 'starts with another user’s home', fix: 'write that path in full' };
}

type Range<Bound> = Readonly<Record<'minimum' | 'maximum', Bound>>;

const ranged = (type: string, name: string, pattern: RegExp) => (options: LeafOptions<number> & Range<number>) => {
  const { minimum, maximum } = options;
  const decode: Decode = (raw, textual) => {
    // A number that a file has as a number still has to match: 1.5 is not whole, .nan and .inf are not numbers.
    const written = String(raw).trim();
    if (!pattern.test(written)) return { wrong: `is not a ${name}` };
    if (typeof raw !== 'number' && !textual) return { wrong: 'is a text', fix: `write ${raw} without quotes` };
    return withinRange(Number(written), minimum, maximum);
  };
  const range = `${minimum} to ${maximum}`;
  return kind<number>(`${name}, ${range}`, `a ${name} from ${range}`, { type, minimum, maximum }, decode)(options);
};

function withinRange(value: number, minimum: number, maximum: number): Reading<number> {
  return value < minimum || value > maximum ? { wrong: 'is out of range' } : { value };
}

function decodeFlag(raw: unknown, textual: boolean): Reading<boolean> {
  if (typeof raw === 'boolean') return { value: raw };
  const word = textual ? String(raw).trim().toLowerCase() : '';
  if (['true', 'yes', 'on', '1'].includes(word)) return { value: true };
  return ['false', 'no', 'off', '0'].includes(word) ? { value: false } : { wrong: 'is neither true nor false' };
}

/** One of some words. Empty is a choice where it is the default. */
function choice<const Choice extends string, const Default extends Choice | '' = never>(
  choices: readonly Choice[],
  options: LeafOptions<Default>,
): Setting<Choice | Default> {
  const expects = `one of ${choices.join(', ')}`;
  const decode: Decode = (raw, textual) => {
    const word = textual ? String(raw).trim() : raw;
    if (choices.some((known) => known === word)) return { value: word };
    const near = nearestName(String(word), choices);
    const fix = `expected ${expects}; did you mean "${near}"?`;
    return { wrong: 'is not a possible value', ...(near !== undefined && { fix }) };
  };
  const type = choices.map((word) => `\`${word}\``).join(', ');
  return kind<Choice | Default>(type, expects, { type: 'string', enum: [...choices] }, decode)(options);
}

const UNITS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 } as const;

/** What a duration looks like: a whole number and its unit. */
const DURATION = /^(\d{1,12})(ms|s|m|h|d)$/;

/** `30s` as milliseconds; undefined when it is not a duration. */
export function parseDuration(written: string): number | undefined {
  const [, count, unit] = DURATION.exec(written) ?? [];
  const milliseconds = Number(count) * UNITS[unit as keyof typeof UNITS];
  return Number.isSafeInteger(milliseconds) ? milliseconds : undefined;
}

/** Milliseconds in the largest unit that holds them exactly: 90000 is `90s`. */
export function formatDuration(milliseconds: number): string {
  const [unit, size] = Object.entries(UNITS).find(([, each]) => milliseconds % each === 0) ?? ['ms', 1];
  return milliseconds === 0 ? '0s' : `${milliseconds / size}${unit}`;
}

/** `30s` in a file, milliseconds in the result. Minimum and maximum are durations, too. */
function duration(options: LeafOptions<string> & Range<string>): Setting<number> {
  const { minimum, maximum } = options;
  const range = `${minimum} to ${maximum}`;
  const decode: Decode = (raw) => {
    const written = String(raw).trim();
    const value = parseDuration(written);
    if (value !== undefined) return withinRange(value, parseDuration(minimum) ?? 0, parseDuration(maximum) ?? Infinity);
    if (!/^\d{1,12}$/.test(written)) return { wrong: 'is not a duration' };
    return { wrong: 'has no unit', fix: `say ${written}s for seconds or ${written}ms for milliseconds` };
  };
  const expects = `a duration from ${range}, such as 30s, 10m or 30d`;
  const json = matching(DURATION.source);
  const encode = (value: unknown): string => formatDuration(value as number);
  return kind<number, string>(`duration, ${range}`, expects, json, decode, { encode })(options);
}

interface UrlOptions extends LeafOptions<string> {
  /** Without the colon: `['https']`. */
  readonly schemes: readonly string[];
  /** A user, a password and a query may be part of it; the password is masked when printed. */
  readonly credentials?: boolean;
}

/** A URL. Without credentials it is a place to append paths to: a final slash is dropped, and nothing may follow the path. */
function url(options: UrlOptions): Setting<string> {
  const { schemes, credentials = false } = options;
  const decode = line((written) => {
    const parsed = /^[a-z][a-z\d+.-]*:\/\/\S+$/i.test(written) ? URL.parse(written) : null;
    if (parsed === null) return { wrong: 'is not a URL' };
    if (!schemes.includes(parsed.protocol.slice(0, -1))) return { wrong: 'has another scheme' };
    if (credentials && /@/.test(parsed.pathname + parsed.search + parsed.hash)) {
      // The parser took the host to end inside the password; what follows would be printed as a path.
      return { wrong: 'has an @ after the host: signs such as / ? # in a password are written as %2F %3F %23' };
    }
    if (credentials) return { value: written };
    if (parsed.username + parsed.password !== '')
      return { wrong: 'has a user or password in it', fix: 'leave them out' };
    if (/[?#]/.test(written)) return { wrong: 'has a query or fragment', fix: 'end it after the path' };
    return parsed.hostname === '' ? { wrong: 'names no host' } : { value: written.replace(/\/{1,9}$/, '') };
  });
  const expects = `a URL that starts with ${schemes.map((scheme) => `${scheme}://`).join(' or ')}`;
  const json = matching(`^(${schemes.join('|')})://`);
  return kind<string>('URL', expects, json, decode, credentials ? { secrecy: 'url' } : {})(options);
}

interface OriginOptions extends LeafOptions<string> {
  /** Also accepts `http://localhost:*`. */
  readonly anyPort?: boolean;
  /** A word that is accepted as it is, because it stands for an origin that is not known yet. */
  readonly word?: string;
}

/** A web origin as browsers send it. */
function origin(options: OriginOptions): Setting<string> {
  const { word, anyPort: allowed = false } = options;
  const decode = line((written) => {
    if (written === word) return { value: written };
    if (/^\*$|:\/\/\*/.test(written))
      return { wrong: 'has a wildcard for a host', fix: 'list each origin by its name' };
    const anyPort = allowed && written.endsWith(':*');
    const base = anyPort ? written.slice(0, -2) : written;
    const parsed = /^[a-z][a-z\d+.-]*:\/\/[^\s*]+$/i.test(base) ? URL.parse(base) : null;
    if (parsed === null || parsed.host === '') return { wrong: 'is not an origin' };
    const proper = `${parsed.protocol}//${anyPort ? parsed.hostname : parsed.host}`;
    if (proper === base) return { value: written };
    // Browsers send origins in exactly one spelling, and they are compared as text.
    return { wrong: 'is not spelled as browsers send it', fix: `say ${proper}${anyPort ? ':*' : ''}` };
  });
  const pattern = '[a-z][a-z0-9+.-]*://[^/?#*\\s]+(:\\*)?';
  const json = matching(word === undefined ? `^${pattern}$` : `^(?:${word}|${pattern})$`);
  const example = allowed ? 'https://app.example or http://localhost:*' : 'https://app.example';
  return kind<string>('origin', `an origin such as ${example}, without a path`, json, decode)(options);
}

function decodeHostName(text: string): Reading<string> {
  const written = text.toLowerCase();
  const bare = written.startsWith('[') && written.endsWith(']') ? written.slice(1, -1) : written;
  if (isIP(bare) === 6) return { value: `[${bare}]` };
  if (isIP(written) === 4 || isHostName(written)) return { value: written };
  const found = URL.parse(written.includes('://') ? written : `http://${written}`)?.hostname ?? '';
  return { wrong: 'is not a host name', ...(isHostName(found) && { fix: `say ${found}` }) };
}

function decodeCidr(written: string): Reading<string> {
  try {
    createAddressMatcher([written.trim()]);
    return { value: written.trim() };
  } catch {
    return { wrong: 'is not a range of addresses' };
  }
}

function decodeListenAddress(raw: unknown): Reading<string> {
  const written = String(raw).trim();
  const parsed = parseListenAddress(written);
  return 'wrong' in parsed ? parsed : { value: written };
}

const matching = (pattern: string): Json => ({ type: 'string', pattern });

/** How settings are declared: one call each, from which type, validation, names, schema, documentation and masking follow. */
export const setting = {
  group,
  list,
  record,
  text,
  keyBytes,
  choice,
  duration,
  url,
  origin,
  integer: ranged('integer', 'whole number', /^[+-]?\d{1,16}$/),
  number: ranged('number', 'number', /^[+-]?\d{1,16}(\.\d{1,20})?(e[+-]?\d{1,3})?$/i),
  /** True or false. */
  flag: kind<boolean>('true or false', 'true or false', { type: 'boolean' }, decodeFlag),
  /** A credential that travels in a header: visible ASCII characters only. Always a secret. */
  token: kind<string>(
    'text',
    'letters, digits and signs of ASCII, without spaces',
    { ...ONE_LINE, pattern: VISIBLE },
    (raw, ...rest) =>
      /\s/.test(String(raw)) ? { wrong: 'has a space or a line end in it' } : decodeToken(raw, ...rest),
    SECRET,
  ),
  /** A file or folder. Absolute in the result; relative ones start at the file's folder, or at the working directory. */
  path: kind<string>('path', 'a path such as ./data, ~/data or /srv/data', ONE_LINE, line(decodePath)),
  /** A program: a bare name, which is looked up in PATH, or a path. */
  command: kind<string>(
    'program',
    'the name of a program, or its path',
    ONE_LINE,
    line((written, folders) => (/[\\/]/.test(written) ? decodePath(written, folders) : { value: written })),
  ),
  /** A host name or address, without a port. Lower case in the result; IPv6 with brackets, as in a Host header. */
  hostName: kind<string>(
    'host name',
    'a host name or address without scheme and port, such as app.example',
    matching('^(\\[[0-9a-fA-F:.]+\\]|[A-Za-z0-9_.:-]+)$'),
    line(decodeHostName),
  ),
  /** A range of addresses, or one address. */
  cidr: kind<string>(
    'CIDR',
    'a range such as 10.0.0.0/8, or one address',
    matching('^[0-9a-fA-F:.]+(/[0-9]{1,3})?$'),
    line(decodeCidr),
  ),
  /** `127.0.0.1:8787`. */
  listenAddress: kind<string>(
    'address:port',
    'an address and a port, such as 127.0.0.1:8787 or [::1]:8787',
    matching('^(\\[[^\\[\\]]+\\]|[^:\\[\\]*]+):[0-9]{1,5}$'),
    decodeListenAddress,
  ),
};
