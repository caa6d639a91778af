import { pino } from 'pino';
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

/** What one line may take: whatever is handed to the logger, writing it stays quick. */
const MOST_VALUES = 1000;
const MOST_CHARACTERS = 32_768;
const MOST_OF_A_TEXT = 8192;
const MOST_OF_A_NAME = 200;
const MOST_MEMBERS = 200;
const DEEPEST = 8;
/** Patterns need to see this much beyond a cut, so that none is cut in two. */
const LOOK_BEYOND = 1200;

/** Control characters that JSON leaves as they are, and those that turn the direction of a line: a terminal obeys both. */
const UNSAFE = /[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

interface Cleaner {
  fields(fields: Readonly<Record<string, unknown>>): Record<string, unknown>;
  text(text: string): string;
}

interface Budget {
  values: number;
  characters: number;
  /** The objects that the current one lies in. */
  readonly around: object[];
}

/** Makes copies of what is to be logged that are small, free of secrets, and plain JSON. Never throws. */
function createCleaner(known: KnownSecrets): Cleaner {
  function cleanText(text: string, most: number, budget: Budget): string {
    const limit = Math.max(0, Math.min(most, budget.characters));
    const beyond = known.longest + LOOK_BEYOND;
    const seen = text.length > limit + beyond ? text.slice(0, limit + beyond) : text;
    const hidden = hideCredentials(known.hide(seen));
    // The end of a cut text may be the first half of a secret, which nothing could recognise.
    const end = seen === text ? limit : Math.min(limit, hidden.length - beyond);
    const kept = hidden.length > end ? `${hidden.slice(0, Math.max(0, end))}... (${text.length} characters)` : hidden;
    budget.characters -= kept.length;
    return kept.replaceAll(UNSAFE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
  }

  function cleanValue(value: unknown, budget: Budget): unknown {
    budget.values -= 1;
    if (budget.values < 0) return '[more]';
    switch (typeof value) {
      case 'string':
        return cleanText(value, MOST_OF_A_TEXT, budget);
      case 'number':
        return known.hide(String(value)) === String(value) ? value : REDACTED;
      case 'bigint':
        return cleanText(String(value), MOST_OF_A_NAME, budget);
      case 'object':
        return value === null ? null : cleanNested(value, budget);
      case 'boolean':
        return value;
      default:
        return undefined;
    }
  }

  function cleanNested(value: object, budget: Budget): unknown {
    if (budget.around.includes(value)) return '[circular]';
    if (budget.around.length >= DEEPEST) return '[deeper]';
    budget.around.push(value);
    try {
      return cleanObject(value, budget);
    } catch {
      return '[unreadable]';
    } finally {
      budget.around.pop();
    }
  }

  function cleanObject(value: object, budget: Budget): unknown {
    if (Array.isArray(value)) return cleanList(value, budget);
    if (value instanceof Error) return cleanError(value, budget);
    if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return `[${value.byteLength} bytes]`;
    if (value instanceof Map || value instanceof Set) return `[${value.size} entries]`;
    if (value instanceof URLSearchParams) return cleanText(`?${value}`, MOST_OF_A_TEXT, budget);
    if ('toJSON' in value && typeof value.toJSON === 'function') return cleanValue(value.toJSON(), budget);
    const copy: Record<string, unknown> = {};
    copyMembers(value, copy, budget);
    return copy;
  }

  function cleanList(list: readonly unknown[], budget: Budget): unknown[] {
    const copy: unknown[] = [];
    for (let index = 0; index < list.length && index < MOST_MEMBERS && budget.values > 0; index += 1) {
      const item = list[index];
      // Raw headers come as a list of names and values.
      const before = index > 0 ? list[index - 1] : undefined;
      const secret = typeof before === 'string' && typeof item === 'string' && isSecretName(before);
      copy.push(secret ? REDACTED : (cleanValue(item, budget) ?? null));
    }
    if (copy.length < list.length) copy.push(`[${list.length - copy.length} more]`);
    return copy;
  }

  function copyMembers(from: object, copy: Record<string, unknown>, budget: Budget): void {
    let members = 0;
    for (const name in from) {
      if (!Object.hasOwn(from, name)) continue;
      members += 1;
      if (members > MOST_MEMBERS || budget.values <= 0) {
        copy['[more]'] = true;
        return;
      }
      const shown = name === '__proto__' ? '[__proto__]' : cleanText(name, MOST_OF_A_NAME, budget);
      copy[shown] = cleanMember(name, from, budget);
    }
  }

  function cleanMember(name: string, from: object, budget: Budget): unknown {
    try {
      const value: unknown = Reflect.get(from, name);
      const secret = isSecretName(name) && typeof value !== 'boolean' && value !== null && value !== undefined;
      return secret && !isCount(name, value) ? REDACTED : cleanValue(value, budget);
    } catch {
      return '[unreadable]';
    }
  }

  function cleanError(error: Error, budget: Budget): Record<string, unknown> {
    const copy: Record<string, unknown> = {
      type: cleanText(String(error.name), MOST_OF_A_NAME, budget),
      message: cleanText(String(error.message), MOST_OF_A_TEXT, budget),
    };
    copyMembers(error, copy, budget);
    if (typeof error.stack === 'string') copy.stack = cleanText(framesOf(error.stack), MOST_OF_A_TEXT, budget);
    if (error.cause !== undefined) copy.cause = cleanValue(error.cause, budget);
    if (error instanceof AggregateError) copy.errors = cleanValue(error.errors, budget);
    return copy;
  }

  return {
    fields(fields) {
      const copy: Record<string, unknown> = {};
      const budget: Budget = { values: MOST_VALUES, characters: MOST_CHARACTERS, around: [fields] };
      try {
        copyMembers(fields, copy, budget);
      } catch {
        copy['[unreadable]'] = true;
      }
      return copy;
    },
    text: (text) => cleanText(text, MOST_OF_A_TEXT, { values: 0, characters: MOST_OF_A_TEXT, around: [] }),
  };
}

/** The message stands in a field of its own; the stack repeats it in front of the frames. */
function framesOf(stack: string): string {
  const first = stack.indexOf('\n    at ');
  return first === -1 ? stack : stack.slice(first + 1);
}

export type LogFields = Readonly<Record<string, unknown>>;
type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent';

type Write = (fields: LogFields, message: string) => void;

/** Fields first, then a message that is the same every time: `log.warn({ address }, 'too many wrong credentials')`. */
export interface Logger {
  readonly debug: Write;
  readonly info: Write;
  readonly warn: Write;
  readonly error: Write;
  /** For callers that would otherwise prepare fields that nobody reads. */
  isLevelEnabled(level: Exclude<LogLevel, 'silent'>): boolean;
  /** A logger that puts these fields into each of its lines. */
  child(fields: LogFields): Logger;
  /** Returns when all lines are out. */
  flush(): void;
}

export interface LoggerOptions {
  readonly level: LogLevel;
  /** `pretty` for a person at a terminal. */
  readonly format: 'json' | 'pretty';
  readonly output: LogOutput;
  readonly clock: Pick<Clock, 'now'>;
  /** The secrets that the program was given. Hand out the same list until they change: it is prepared once per list. */
  readonly secrets: () => readonly string[];
}

/** Names that the line itself uses: a field cannot pass itself off as them. */
const OWN_NAMES: readonly string[] = ['level', 'time', 'msg'];

/** Every line passes through a cleaner: no secret, no control character, no endless object reaches the output. */
export function createLogger({ level, format, output, clock, secrets }: LoggerOptions): Logger {
  const currentCleaner = cleanerFor(secrets);
  const time = () => new Date(clock.now()).toISOString();
  const lines = pino(
    {
      level,
      base: null,
      timestamp: () => `,"time":"${time()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    output,
  );

  const write = (at: Exclude<LogLevel, 'silent'>, bound: LogFields, fields: LogFields, message: string): void => {
    if (!lines.isLevelEnabled(at)) return;
    const cleaner = currentCleaner();
    const cleaned = withoutOwnNames({ ...bound, ...cleaner.fields(fields) });
    const text = cleaner.text(message);
    if (format === 'json') lines[at](cleaned, text);
    else output.write(prettyLine(time(), at, text, cleaned));
  };

  const loggerWith = (bound: LogFields): Logger => ({
    debug: (fields, message) => write('debug', bound, fields, message),
    info: (fields, message) => write('info', bound, fields, message),
    warn: (fields, message) => write('warn', bound, fields, message),
    error: (fields, message) => write('error', bound, fields, message),
    isLevelEnabled: (level) => lines.isLevelEnabled(level),
    child: (fields) => loggerWith({ ...bound, ...currentCleaner().fields(fields) }),
    flush: () => output.flush(),
  });
  return loggerWith({});
}

function cleanerFor(secrets: () => readonly string[]): () => Cleaner {
  let list: readonly string[] = [];
  let cleaner = createCleaner(createKnownSecrets(list));
  return () => {
    const current = secrets();
    if (current !== list) {
      list = current;
      cleaner = createCleaner(createKnownSecrets(list));
    }
    return cleaner;
  };
}

function withoutOwnNames(fields: Record<string, unknown>): Record<string, unknown> {
  for (const name of OWN_NAMES) {
    if (!(name in fields)) continue;
    fields[`${name}_`] = fields[name];
    delete fields[name];
  }
  return fields;
}

/** One line for a person at a terminal: time of day, level, message, then the fields; an error's frames below it. */
function prettyLine(time: string, level: string, message: string, fields: Readonly<Record<string, unknown>>): string {
  const parts = [time.slice(11, 23), level.toUpperCase().padEnd(5), escapeControls(message)];
  const frames: string[] = [];
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined) continue;
    if (isErrorCopy(value)) {
      const { stack, ...rest } = value;
      frames.push(...stack.split('\n').map((frame) => `    ${escapeControls(frame.trim())}`));
      parts.push(`${escapeControls(name)}=${formatValue(rest)}`);
    } else {
      parts.push(`${escapeControls(name)}=${formatValue(value)}`);
    }
  }
  return `${[parts.join(' '), ...frames].join('\n')}\n`;
}

function formatValue(value: unknown): string {
  return typeof value === 'string' && /^[^\s"=\p{Cc}]+$/u.test(value) ? value : JSON.stringify(value);
}

function isErrorCopy(value: unknown): value is { readonly stack: string } {
  return typeof value === 'object' && value !== null && 'stack' in value && typeof value.stack === 'string';
}

function escapeControls(text: string): string {
  return text.replaceAll(/\p{Cc}/gu, (character) => JSON.stringify(character).slice(1, -1));
}
