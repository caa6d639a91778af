import type { Clock } from '../clock/clock.ts';
import {
  createKnownSecrets,
  hideCredentials,
  isCount,
  isSecretName,
  type KnownSecrets,
  REDACTED,
} from './hidden-secrets.ts';
import type { LogOutput } from './log-output.ts';

/** Limits of one line, so that any value can be logged quickly. */
const MAX_VALUES = 1000;
const MAX_CHARACTERS = 32_768;
const MAX_TEXT = 8192;
const MAX_NAME = 200;
const MAX_MEMBERS = 200;
const MAX_DEPTH = 8;
/** Patterns need to see this much beyond a cut, so that none is cut in two. */
const LOOK_BEYOND = 1200;

/** Control characters that JSON leaves as they are, and those that turn the direction of a line: a terminal obeys both. */
const UNSAFE = /[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Names that the line itself uses: a field cannot pass itself off as them. */
const OWN_NAMES: readonly string[] = ['level', 'time', 'msg'];

/** The remaining limits of one line. */
interface Budget {
  values: number;
  characters: number;
  /** The objects that the current one lies in. */
  readonly around: object[];
}

/** Makes copies of what is to be logged that are small, free of secrets, and plain JSON. Never throws. */
function createCleaner(known: KnownSecrets) {
  function cleanText(text: string, most: number, budget: Budget): string {
    const limit = Math.max(0, Math.min(most, budget.characters));
    const beyond = known.longest + LOOK_BEYOND;
    const seen = text.length > limit + beyond ? text.slice(0, limit + beyond) : text;
    const hidden = hideCredentials(known.hide(seen));
    // The end of a cut text may be a part of a secret, which could not be recognised.
    const end = seen === text ? limit : Math.min(limit, hidden.length - beyond);
    const kept = hidden.length > end ? `${hidden.slice(0, Math.max(0, end))}... (${text.length} characters)` : hidden;
    budget.characters -= kept.length;
    return kept.replaceAll(UNSAFE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
  }

  function cleanValue(value: unknown, budget: Budget): unknown {
    budget.values -= 1;
    if (budget.values < 0) return '[more]';
    if (typeof value === 'string') return cleanText(value, MAX_TEXT, budget);
    if (typeof value === 'bigint') return cleanText(String(value), MAX_NAME, budget);
    if (typeof value === 'number') return known.hide(String(value)) === String(value) ? value : REDACTED;
    if (typeof value === 'object' && value !== null) return cleanNested(value, budget);
    return typeof value === 'boolean' || value === null ? value : undefined;
  }

  function cleanNested(value: object, budget: Budget): unknown {
    if (budget.around.includes(value)) return '[circular]';
    if (budget.around.length >= MAX_DEPTH) return '[deeper]';
    budget.around.push(value);
    try {
      if (Array.isArray(value)) return cleanList(value, budget);
      if (value instanceof Error) return cleanError(value, budget);
      if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return `[${value.byteLength} bytes]`;
      if (value instanceof Map || value instanceof Set) return `[${value.size} entries]`;
      if (value instanceof URLSearchParams) return cleanText(`?${value}`, MAX_TEXT, budget);
      if ('toJSON' in value && typeof value.toJSON === 'function') return cleanValue(value.toJSON(), budget);
      return cleanMembers(value, budget);
    } catch {
      return '[unreadable]';
    } finally {
      budget.around.pop();
    }
  }

  function cleanList(list: readonly unknown[], budget: Budget): unknown[] {
    const copy: unknown[] = [];
    for (let index = 0; index < list.length && index < MAX_MEMBERS && budget.values > 0; index += 1) {
      const item = list[index];
      // Raw headers come as a list of names and values.
      const before = index > 0 ? list[index - 1] : undefined;
      const secret = typeof before === 'string' && typeof item === 'string' && isSecretName(before);
      copy.push(secret ? REDACTED : (cleanValue(item, budget) ?? null));
    }
    if (copy.length < list.length) copy.push(`[${list.length - copy.length} more]`);
    return copy;
  }

  function cleanMembers(from: object, budget: Budget): Record<string, unknown> {
    const copy: Record<string, unknown> = {};
    let left = MAX_MEMBERS;
    for (const name of Object.keys(from)) {
      left -= 1;
      if (left < 0 || budget.values <= 0) return { ...copy, '[more]': true };
      const shown = name === '__proto__' ? '[__proto__]' : cleanText(name, MAX_NAME, budget);
      try {
        const value: unknown = Reflect.get(from, name);
        const secret = isSecretName(name) && typeof value !== 'boolean' && value !== null && value !== undefined;
        copy[shown] = secret && !isCount(name, value) ? REDACTED : cleanValue(value, budget);
      } catch {
        copy[shown] = '[unreadable]';
      }
    }
    return copy;
  }

  function cleanError(error: Error, budget: Budget): Record<string, unknown> {
    const { name, message, stack, cause } = error;
    return {
      type: cleanText(String(name), MAX_NAME, budget),
      message: cleanText(String(message), MAX_TEXT, budget),
      ...cleanMembers(error, budget),
      // The stack repeats the message in front of the frames.
      ...(typeof stack === 'string' && {
        stack: cleanText(stack.slice(stack.indexOf('\n    at ') + 1), MAX_TEXT, budget),
      }),
      ...(cause !== undefined && { cause: cleanValue(cause, budget) }),
      ...(error instanceof AggregateError && { errors: cleanValue(error.errors, budget) }),
    };
  }

  return {
    fields(fields: LogFields): Record<string, unknown> {
      const budget: Budget = { values: MAX_VALUES, characters: MAX_CHARACTERS, around: [] };
      const cleaned = cleanNested(fields, budget);
      const copy = typeof cleaned === 'object' ? (cleaned as Record<string, unknown>) : { fields: cleaned };
      for (const name of OWN_NAMES) {
        if (!Object.hasOwn(copy, name)) continue;
        copy[`${name}_`] = copy[name];
        delete copy[name];
      }
      return copy;
    },
    text: (text: string) => cleanText(text, MAX_TEXT, { values: 0, characters: MAX_TEXT, around: [] }),
  };
}

export type LogFields = Readonly<Record<string, unknown>>;
/** The higher ones later. */
const LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const;
type LogLevel = Exclude<(typeof LEVELS)[number], 'silent'>;
type Write = (fields: LogFields, message: string) => void;

/** Fields first, then a message that is the same every time: `log.warn({ address }, 'too many wrong credentials')`. */
export interface Logger extends Readonly<Record<LogLevel, Write>> {
  /** Lets callers skip the preparation of fields for a disabled level. */
  isLevelEnabled(level: LogLevel): boolean;
  /** A logger that puts these fields into each of its lines. */
  child(fields: LogFields): Logger;
  /** Returns when all lines are out. */
  flush(): void;
}

export interface LoggerOptions {
  readonly level: LogLevel | 'silent';
  /** `pretty` for a person at a terminal. */
  readonly format: 'json' | 'pretty';
  readonly output: LogOutput;
  readonly clock: Pick<Clock, 'now'>;
  /** The secrets that the program was given. Hand out the same list until they change: it is prepared once per list. */
  readonly secrets: () => readonly string[];
}

/** Every line passes through a cleaner: no secret, no control character, no endless object reaches the output. */
export function createLogger({ level, format, output, clock, secrets }: LoggerOptions): Logger {
  let list: readonly string[] = [];
  let cleaner = createCleaner(createKnownSecrets(list));
  const currentCleaner = (): typeof cleaner => {
    const current = secrets();
    if (current !== list) cleaner = createCleaner(createKnownSecrets(current));
    list = current;
    return cleaner;
  };
  const lowest = LEVELS.indexOf(level);
  const isLevelEnabled = (at: LogLevel): boolean => LEVELS.indexOf(at) >= lowest;

  const loggerWith = (bound: LogFields): Logger => {
    const writer = (at: LogLevel) => (fields: LogFields, message: string) => {
      if (!isLevelEnabled(at)) return;
      const clean = currentCleaner();
      const time = new Date(clock.now()).toISOString();
      const line = { level: at, time, ...bound, ...clean.fields(fields), msg: clean.text(message) };
      output.write(format === 'json' ? `${JSON.stringify(line)}\n` : prettyLine(line));
    };
    return {
      debug: writer('debug'),
      info: writer('info'),
      warn: writer('warn'),
      error: writer('error'),
      isLevelEnabled,
      child: (fields) => loggerWith({ ...bound, ...currentCleaner().fields(fields) }),
      flush: () => output.flush(),
    };
  };
  return loggerWith({});
}

/** One line for a person at a terminal: time of day, level, message, then the fields; an error's frames below it. */
function prettyLine({ level, time, msg, ...fields }: Record<'level' | 'time' | 'msg', string>): string {
  const frames: string[] = [];
  const parts = Object.entries<{ readonly stack?: unknown } | null | undefined>(fields).flatMap(([name, value]) => {
    if (value === undefined) return [];
    if (typeof value?.stack !== 'string') return `${name}=${formatValue(value)}`;
    frames.push(...value.stack.split('\n').map((frame) => `    ${frame.trim()}`));
    return `${name}=${formatValue({ ...value, stack: undefined })}`;
  });
  const first = [time.slice(11, 23), level.toUpperCase().padEnd(5), msg, ...parts].join(' ');
  return `${[first, ...frames].map(escapeControls).join('\n')}\n`;
}

function formatValue(value: unknown): string {
  return typeof value === 'string' && /^[^\s"=\p{Cc}]+$/u.test(value) ? value : JSON.stringify(value);
}

function escapeControls(text: string): string {
  return text.replaceAll(/\p{Cc}/gu, (character) => JSON.stringify(character).slice(1, -1));
}
