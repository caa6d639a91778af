import { pino } from 'pino';
import type { Clock } from '../clock/clock.ts';
import { type Cleaner, createCleaner } from './clean-fields.ts';
import { createKnownSecrets } from './hidden-secrets.ts';
import type { LogOutput } from './log-output.ts';

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
