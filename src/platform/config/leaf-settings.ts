import { resolve } from 'node:path';
import { nearestName } from './problem.ts';
import {
  annotate,
  type Folders,
  type LeafAnnotation,
  type Reading,
  type Secrecy,
  type Setting,
} from './setting-annotation.ts';

/** What can be said about any single value. An item of a list needs no description of its own. */
export interface LeafOptions<Raw> {
  readonly description?: string;
  /** As a file would have it. Without one the setting has to be given. An empty text is allowed only where it is the default. */
  readonly default?: Raw;
  readonly env?: string;
  readonly flag?: string;
  /** `maybe`: masked when printed, but not called a secret. */
  readonly secret?: boolean | 'maybe';
  /** May change while the program runs. */
  readonly reload?: boolean;
  readonly emptyClears?: boolean;
}

type LeafKind = Pick<LeafAnnotation, 'type' | 'expects'> & {
  /** What a file may hold, as a JSON schema. */
  readonly json: Readonly<Record<string, unknown>>;
  readonly secrecy?: Secrecy;
  readonly write?: LeafAnnotation['write'];
} & (
    | Pick<LeafAnnotation, 'read'>
    /** For one line of text: anything else is refused before. */
    | { decode(text: string, folders: Folders): Reading<unknown> }
  );

export function leaf<T>(options: LeafOptions<unknown>, kind: LeafKind): Setting<T> {
  const json = options.default === undefined ? kind.json : { ...kind.json, default: options.default };
  return annotate<T>(json, {
    shape: 'leaf',
    description: options.description ?? '',
    env: options.env,
    flag: options.flag,
    reload: options.reload ?? false,
    fallback: options.default,
    type: kind.type,
    secrecy: secrecyOf(options.secret, kind.secrecy),
    emptyClears: options.emptyClears ?? false,
    expects: kind.expects,
    read:
      'read' in kind ? kind.read : (raw, _textual, folders) => faultOfText(raw) ?? kind.decode(String(raw), folders),
    write: kind.write ?? ((value) => value),
  });
}

function secrecyOf(secret: boolean | 'maybe' | undefined, otherwise: Secrecy = 'open'): Secrecy {
  if (secret === true) return 'secret';
  return secret === 'maybe' ? 'private' : otherwise;
}

const LONGEST_TEXT = 4096;
const CONTROL_CHARACTER = /\p{Cc}/u;

interface TextOptions extends LeafOptions<string> {
  /** What it has to look like; said in words by `expects`. Goes into the JSON schema, too. */
  readonly pattern?: string;
  readonly expects?: string;
}

/** One line of text. */
export function text(options: TextOptions): Setting<string> {
  const pattern = options.pattern === undefined ? undefined : new RegExp(options.pattern);
  return leaf(options, {
    json: { type: 'string', maxLength: LONGEST_TEXT, ...(options.pattern && { pattern: options.pattern }) },
    type: 'text',
    expects: options.expects ?? 'one line of text',
    decode: (written) =>
      pattern?.test(written) === false ? { wrong: 'does not have the right form' } : { value: written },
  });
}

/** A credential that travels in a header: visible ASCII characters only. Always a secret. */
export function token(options: LeafOptions<string>): Setting<string> {
  return leaf(
    { secret: true, ...options },
    {
      json: { type: 'string', maxLength: LONGEST_TEXT, pattern: '^[!-~]+$' },
      type: 'text',
      expects: 'letters, digits and signs of ASCII, without spaces',
      read(raw) {
        if (/\s/.test(String(raw))) return { wrong: 'has a space or a line end in it' };
        const isAscii = /^[!-~]+$/.test(String(raw));
        return faultOfText(raw) ?? (isAscii ? { value: raw } : { wrong: 'has a character outside ASCII in it' });
      },
    },
  );
}

/** Random bytes in base64, such as an encryption key. Always a secret. */
export function keyBytes(options: LeafOptions<string> & { readonly bytes: number }): Setting<string> {
  const { bytes } = options;
  return leaf(
    { secret: true, ...options },
    {
      json: { type: 'string', pattern: '^[A-Za-z0-9+/_-]+={0,2}$' },
      type: `${bytes} bytes in base64`,
      expects: `${bytes} bytes in base64; "openssl rand -base64 ${bytes}" makes one`,
      read(raw) {
        if (typeof raw !== 'string' || !/^[A-Za-z0-9+/_-]+={0,2}$/.test(raw)) return { wrong: 'is not base64' };
        const { length } = Buffer.from(raw, 'base64');
        return length === bytes ? { value: raw } : { wrong: `holds ${length} bytes` };
      },
    },
  );
}

/** A file or folder. Absolute in the result; relative ones start at the file's folder, or at the working directory. */
export function path(options: LeafOptions<string>): Setting<string> {
  return leaf(options, {
    json: { type: 'string', maxLength: LONGEST_TEXT },
    type: 'path',
    expects: 'a path such as ./data, ~/data or /srv/data',
    decode: readPath,
  });
}

/** A program: a bare name, which is looked up in PATH, or a path. */
export function command(options: LeafOptions<string>): Setting<string> {
  return leaf(options, {
    json: { type: 'string', maxLength: LONGEST_TEXT },
    type: 'program',
    expects: 'the name of a program, or its path',
    decode: (written, folders) => (/[\\/]/.test(written) ? readPath(written, folders) : { value: written }),
  });
}

function readPath(written: string, { directory, homeDirectory }: Folders): Reading<string> {
  if (written === '~') return { value: homeDirectory };
  if (/^~[\\/]/.test(written)) return { value: resolve(homeDirectory, written.slice(2)) };
  if (written.startsWith('~')) return { wrong: 'starts with another user’s home', mend: 'write that path in full' };
  return { value: resolve(directory, written) };
}

/** What is wrong with anything that should be one line of text. */
function faultOfText(raw: string | number | boolean): { readonly wrong: string; readonly mend?: string } | undefined {
  if (typeof raw !== 'string') return { wrong: `is a ${kindOf(raw)}`, mend: 'quote it to make it a string' };
  if (raw.length > LONGEST_TEXT) return { wrong: `is longer than ${LONGEST_TEXT} characters` };
  return CONTROL_CHARACTER.test(raw) ? { wrong: 'has a control character or a line end in it' } : undefined;
}

function kindOf(raw: number | boolean): string {
  return typeof raw === 'number' ? 'number' : 'boolean';
}

interface RangeOptions extends LeafOptions<number> {
  readonly minimum: number;
  readonly maximum: number;
}

/** A whole number. */
export function integer(options: RangeOptions): Setting<number> {
  const { minimum, maximum } = options;
  return leaf(options, {
    json: { type: 'integer', minimum, maximum },
    type: `whole number, ${minimum} to ${maximum}`,
    expects: `a whole number from ${minimum} to ${maximum}`,
    read: (raw, textual) => readNumber(raw, textual, /^[+-]?\d{1,16}$/, 'is not a whole number', options),
  });
}

/** Any number. */
export function number(options: RangeOptions): Setting<number> {
  const { minimum, maximum } = options;
  return leaf(options, {
    json: { type: 'number', minimum, maximum },
    type: `number, ${minimum} to ${maximum}`,
    expects: `a number from ${minimum} to ${maximum}`,
    read: (raw, textual) =>
      readNumber(raw, textual, /^[+-]?\d{1,16}(\.\d{1,20})?(e[+-]?\d{1,3})?$/i, 'is not a number', options),
  });
}

/** True or false. */
export function flag(options: LeafOptions<boolean>): Setting<boolean> {
  return leaf(options, {
    json: { type: 'boolean' },
    type: 'true or false',
    expects: 'true or false',
    read(raw, textual) {
      if (typeof raw === 'boolean') return { value: raw };
      const word = textual ? String(raw).trim().toLowerCase() : '';
      if (['true', 'yes', 'on', '1'].includes(word)) return { value: true };
      if (['false', 'no', 'off', '0'].includes(word)) return { value: false };
      return { wrong: 'is neither true nor false' };
    },
  });
}

/** One of some words. Empty is a choice where it is the default. */
export function choice<const Choice extends string, const Default extends Choice | '' = never>(
  choices: readonly Choice[],
  options: LeafOptions<Default>,
): Setting<Choice | Default> {
  const expects = `one of ${choices.join(', ')}`;
  return leaf(options, {
    json: { type: 'string', enum: [...choices] },
    type: choices.map((word) => `\`${word}\``).join(', '),
    expects,
    read(raw, textual) {
      const word = textual ? String(raw).trim() : raw;
      if (choices.some((known) => known === word)) return { value: word };
      const near = nearestName(String(word), choices);
      if (near === undefined) return { wrong: 'is not a possible value' };
      return { wrong: 'is not a possible value', mend: `expected ${expects}; did you mean "${near}"?` };
    },
  });
}

interface DurationOptions extends LeafOptions<string> {
  /** Durations, too: `1s`. */
  readonly minimum: string;
  readonly maximum: string;
}

/** `30s` in a file, milliseconds in the result. */
export function duration(options: DurationOptions): Setting<number> {
  const minimum = parseDuration(options.minimum) ?? 0;
  const maximum = parseDuration(options.maximum) ?? Number.MAX_SAFE_INTEGER;
  return leaf(options, {
    json: { type: 'string', pattern: DURATION_PATTERN },
    type: `duration, ${options.minimum} to ${options.maximum}`,
    expects: `a duration from ${options.minimum} to ${options.maximum}, such as 30s, 10m or 30d`,
    read(raw): Reading<number> {
      const text = String(raw).trim();
      const value = parseDuration(text);
      if (value === undefined) {
        if (!/^\d{1,12}$/.test(text)) return { wrong: 'is not a duration' };
        return { wrong: 'has no unit', mend: `say ${text}s for seconds or ${text}ms for milliseconds` };
      }
      return value < minimum || value > maximum ? { wrong: 'is out of range' } : { value };
    },
    write: (value) => formatDuration(value as number),
  });
}

function readNumber(
  raw: string | number | boolean,
  textual: boolean,
  pattern: RegExp,
  otherwise: string,
  { minimum, maximum }: RangeOptions,
): Reading<number> {
  // A number that a file has as a number still passes the pattern: 1.5 is not whole, .nan and .inf are none at all.
  const text = typeof raw === 'number' || textual ? String(raw).trim() : '';
  if (!pattern.test(text))
    return typeof raw === 'string' && !textual ? quoted(raw, pattern, otherwise) : { wrong: otherwise };
  const value = Number(text);
  return value < minimum || value > maximum ? { wrong: 'is out of range' } : { value };
}

function quoted(raw: string, pattern: RegExp, otherwise: string): Reading<number> {
  return pattern.test(raw) ? { wrong: 'is a text', mend: `write ${raw} without quotes` } : { wrong: otherwise };
}

const UNITS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 } as const;

/** What a duration looks like: a whole number and its unit. */
const DURATION_PATTERN = '^\\d{1,12}(ms|s|m|h|d)$';

const DURATION = /^(\d{1,12})(ms|s|m|h|d)$/;

/** `30s` as milliseconds; undefined when it is no duration. */
export function parseDuration(text: string): number | undefined {
  const [, count, unit] = DURATION.exec(text) ?? [];
  if (count === undefined || unit === undefined) return undefined;
  const milliseconds = Number(count) * UNITS[unit as keyof typeof UNITS];
  return Number.isSafeInteger(milliseconds) ? milliseconds : undefined;
}

/** Milliseconds in the largest unit that holds them exactly: 90000 is `90s`. */
export function formatDuration(milliseconds: number): string {
  if (milliseconds === 0) return '0s';
  for (const [unit, size] of Object.entries(UNITS)) {
    if (milliseconds % size === 0) return `${milliseconds / size}${unit}`;
  }
  return `${milliseconds}ms`;
}
