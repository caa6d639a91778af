import { DURATION_PATTERN, formatDuration, parseDuration } from './duration.ts';
import { type LeafOptions, leaf } from './leaf.ts';
import { nearestName } from './nearest-name.ts';
import type { Reading, Setting } from './setting-annotation.ts';

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
