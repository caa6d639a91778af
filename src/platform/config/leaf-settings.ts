import { resolve } from 'node:path';
import { nearestName } from './problem.ts';
import type { Folders, LeafSetting, Reading, Setting } from './setting-declaration.ts';

/** What can be said about any single value. An item of a list needs no description of its own. */
export interface LeafOptions<Raw> {
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

/** A kind of leaf: the schema of what a file may hold, and how a value is decoded. */
type LeafKind = Pick<LeafSetting, 'json' | 'type' | 'expects' | 'decode'> &
  Partial<Pick<LeafSetting, 'secrecy' | 'encode'>>;

export function leaf<T>(options: LeafOptions<unknown>, kind: LeafKind): Setting<T> {
  const { description = '', env, flag, reload = false, emptyClears = false, default: fallback, secret } = options;
  const secrecy = secret === true ? 'secret' : secret === 'maybe' ? 'private' : (kind.secrecy ?? 'open');
  const common = { description, env, flag, reload, emptyClears, fallback, secrecy } as const;
  return { shape: 'leaf', encode: (value: unknown) => value, ...kind, ...common } as LeafSetting as Setting<T>;
}

const MAX_CHARACTERS = 4096;
const ONE_LINE = { type: 'string', maxLength: MAX_CHARACTERS };

/** Decodes one line of text; anything else is refused before. */
export function line(decode: (text: string, folders: Folders) => Reading<unknown>): LeafKind['decode'] {
  return (raw, _textual, folders) => {
    if (typeof raw !== 'string') return { wrong: `is a ${typeof raw}`, fix: 'quote it to make it a string' };
    if (raw.length > MAX_CHARACTERS) return { wrong: `is longer than ${MAX_CHARACTERS} characters` };
    return /\p{Cc}/u.test(raw) ? { wrong: 'has a control character or a line end in it' } : decode(raw, folders);
  };
}

interface TextOptions extends LeafOptions<string> {
  /** What it has to look like; said in words by `expects`. Goes into the JSON schema, too. */
  readonly pattern?: string;
  readonly expects?: string;
}

/** One line of text. */
function text(options: TextOptions): Setting<string> {
  const { pattern = '', expects = 'one line of text' } = options;
  const form = new RegExp(pattern);
  return leaf(options, {
    json: pattern === '' ? ONE_LINE : { ...ONE_LINE, pattern },
    type: 'text',
    expects,
    decode: line((value) => (form.test(value) ? { value } : { wrong: 'does not have the right form' })),
  });
}

/** A credential that travels in a header: visible ASCII characters only. Always a secret. */
function token(options: LeafOptions<string>): Setting<string> {
  const pattern = '^[!-~]+$';
  const decode = line((value) =>
    new RegExp(pattern).test(value) ? { value } : { wrong: 'has a character outside ASCII in it' },
  );
  return leaf(options, {
    json: { ...ONE_LINE, pattern },
    type: 'text',
    expects: 'letters, digits and signs of ASCII, without spaces',
    secrecy: 'secret',
    decode: (raw, ...rest) =>
      /\s/.test(String(raw)) ? { wrong: 'has a space or a line end in it' } : decode(raw, ...rest),
  });
}

/** Random bytes in base64, such as an encryption key. Always a secret. */
function keyBytes(options: LeafOptions<string> & { readonly bytes: number }): Setting<string> {
  const { bytes } = options;
  const pattern = '^[A-Za-z0-9+/_-]+={0,2}$';
  return leaf(options, {
    json: { type: 'string', pattern },
    type: `${bytes} bytes in base64`,
    expects: `${bytes} bytes in base64; "openssl rand -base64 ${bytes}" makes one`,
    secrecy: 'secret',
    decode(raw) {
      if (typeof raw !== 'string' || !new RegExp(pattern).test(raw)) return { wrong: 'is not base64' };
      const { length } = Buffer.from(raw, 'base64');
      return length === bytes ? { value: raw } : { wrong: `holds ${length} bytes` };
    },
  });
}

/** A file or folder. Absolute in the result; relative ones start at the file's folder, or at the working directory. */
function path(options: LeafOptions<string>): Setting<string> {
  const expects = 'a path such as ./data, ~/data or /srv/data';
  return leaf(options, { json: ONE_LINE, type: 'path', expects, decode: line(decodePath) });
}

/** A program: a bare name, which is looked up in PATH, or a path. */
function command(options: LeafOptions<string>): Setting<string> {
  return leaf(options, {
    json: ONE_LINE,
    type: 'program',
    expects: 'the name of a program, or its path',
    decode: line((value, folders) => (/[\\/]/.test(value) ? decodePath(value, folders) : { value })),
  });
}

function decodePath(written: string, { directory, homeDirectory }: Folders): Reading<string> {
  if (!written.startsWith('~')) return { value: resolve(directory, written) };
  if (/^~(?:[\\/]|$)/.test(written)) return { value: resolve(homeDirectory, written.slice(2)) };
  return { wrong: 'starts with another user’s home', fix: 'write that path in full' };
}

interface RangeOptions extends LeafOptions<number> {
  readonly minimum: number;
  readonly maximum: number;
}

/** A whole number. */
function integer(options: RangeOptions): Setting<number> {
  return ranged(options, 'integer', 'whole number', /^[+-]?\d{1,16}$/);
}

/** Any number. */
function number(options: RangeOptions): Setting<number> {
  return ranged(options, 'number', 'number', /^[+-]?\d{1,16}(\.\d{1,20})?(e[+-]?\d{1,3})?$/i);
}

function ranged(options: RangeOptions, type: string, name: string, pattern: RegExp): Setting<number> {
  const { minimum, maximum } = options;
  return leaf(options, {
    json: { type, minimum, maximum },
    type: `${name}, ${minimum} to ${maximum}`,
    expects: `a ${name} from ${minimum} to ${maximum}`,
    decode(raw, textual) {
      // A number that a file has as a number still has to match: 1.5 is not whole, .nan and .inf are not numbers.
      const written = String(raw).trim();
      if (!pattern.test(written)) return { wrong: `is not a ${name}` };
      if (typeof raw !== 'number' && !textual) return { wrong: 'is a text', fix: `write ${raw} without quotes` };
      const value = Number(written);
      return value < minimum || value > maximum ? { wrong: 'is out of range' } : { value };
    },
  });
}

/** True or false. */
function flag(options: LeafOptions<boolean>): Setting<boolean> {
  return leaf(options, {
    json: { type: 'boolean' },
    type: 'true or false',
    expects: 'true or false',
    decode(raw, textual) {
      if (typeof raw === 'boolean') return { value: raw };
      const word = textual ? String(raw).trim().toLowerCase() : '';
      if (['true', 'yes', 'on', '1'].includes(word)) return { value: true };
      if (['false', 'no', 'off', '0'].includes(word)) return { value: false };
      return { wrong: 'is neither true nor false' };
    },
  });
}

/** One of some words. Empty is a choice where it is the default. */
function choice<const Choice extends string, const Default extends Choice | '' = never>(
  choices: readonly Choice[],
  options: LeafOptions<Default>,
): Setting<Choice | Default> {
  const expects = `one of ${choices.join(', ')}`;
  return leaf(options, {
    json: { type: 'string', enum: [...choices] },
    type: choices.map((word) => `\`${word}\``).join(', '),
    expects,
    decode(raw, textual) {
      const word = textual ? String(raw).trim() : raw;
      if (choices.some((known) => known === word)) return { value: word };
      const near = nearestName(String(word), choices);
      const wrong = 'is not a possible value';
      return near === undefined ? { wrong } : { wrong, fix: `expected ${expects}; did you mean "${near}"?` };
    },
  });
}

interface DurationOptions extends LeafOptions<string> {
  /** Durations, too: `1s`. */
  readonly minimum: string;
  readonly maximum: string;
}

/** `30s` in a file, milliseconds in the result. */
function duration(options: DurationOptions): Setting<number> {
  const minimum = parseDuration(options.minimum) ?? 0;
  const maximum = parseDuration(options.maximum) ?? Number.MAX_SAFE_INTEGER;
  return leaf(options, {
    json: { type: 'string', pattern: DURATION.source },
    type: `duration, ${options.minimum} to ${options.maximum}`,
    expects: `a duration from ${options.minimum} to ${options.maximum}, such as 30s, 10m or 30d`,
    decode(raw): Reading<number> {
      const written = String(raw).trim();
      const value = parseDuration(written);
      if (value !== undefined) return value < minimum || value > maximum ? { wrong: 'is out of range' } : { value };
      if (!/^\d{1,12}$/.test(written)) return { wrong: 'is not a duration' };
      return { wrong: 'has no unit', fix: `say ${written}s for seconds or ${written}ms for milliseconds` };
    },
    encode: (value) => formatDuration(value as number),
  });
}

export const leafKinds = { text, token, keyBytes, path, command, choice, integer, number, flag, duration };

const UNITS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 } as const;

/** What a duration looks like: a whole number and its unit. */
const DURATION = /^(\d{1,12})(ms|s|m|h|d)$/;

/** `30s` as milliseconds; undefined when it is not a duration. */
export function parseDuration(text: string): number | undefined {
  const [, count, unit] = DURATION.exec(text) ?? [];
  const milliseconds = Number(count) * UNITS[unit as keyof typeof UNITS];
  return Number.isSafeInteger(milliseconds) ? milliseconds : undefined;
}

/** Milliseconds in the largest unit that holds them exactly: 90000 is `90s`. */
export function formatDuration(milliseconds: number): string {
  const [unit, size] = Object.entries(UNITS).find(([, each]) => milliseconds % each === 0) ?? ['ms', 1];
  return milliseconds === 0 ? '0s' : `${milliseconds / size}${unit}`;
}
