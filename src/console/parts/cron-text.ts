const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'];
const MONTHS = [
  ...['January', 'February', 'March', 'April', 'May', 'June', 'July'],
  ...['August', 'September', 'October', 'November', 'December'],
];
const UNITS: Readonly<Record<string, string>> = { m: 'minute', h: 'hour', d: 'day' };

interface Field {
  /** Every so many; 1 for `*`. */
  readonly step?: number;
  /** The single values that are named. */
  readonly values?: readonly number[];
  /** From the first value to the last one. */
  readonly isRange?: boolean;
}

/** Reads `*`, a step such as every 15, `8`, `1-5` and `1,3,5`; undefined for anything more, and for names of days and months. */
function readField(text: string, min: number, max: number): Field | undefined {
  const [, step] = /^\*(?:\/(\d{1,2}))?$/.exec(text) ?? [];
  if (text === '*') return { step: 1 };
  if (step !== undefined) return Number(step) > 0 ? { step: Number(step) } : undefined;
  const [, from, to] = /^(\d{1,2})-(\d{1,2})$/.exec(text) ?? [];
  const values = from === undefined ? text.split(',').map(Number) : [Number(from), Number(to)];
  const isFine = /^[\d,-]+$/.test(text) && values.every((value) => value >= min && value <= max);
  return isFine ? { values, isRange: from !== undefined } : undefined;
}

const two = (number: number) => `${number}`.padStart(2, '0');

/** `a`, `a and b`, `a, b and c`. */
function listed(words: readonly string[]): string {
  return words.length < 2 ? words.join() : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}

function namesOf({ values = [], isRange = false }: Field, nameOf: (value: number) => string): string {
  return isRange ? values.map(nameOf).join(' to ') : listed(values.map(nameOf));
}

/** When in a day: `at 08:00`, `every 15 minutes`, `every hour at minute 5`. */
function timesText(minute: Field, hour: Field): string | undefined {
  const [first] = minute.values ?? [];
  const isOneMinute = minute.values?.length === 1;
  if (hour.values !== undefined && !hour.isRange && isOneMinute) {
    return `at ${listed(hour.values.map((value) => `${two(value)}:${two(first ?? 0)}`))}`;
  }
  if (hour.step === undefined && !hour.isRange) return undefined;
  // `*/45` is 0 and 45, and no interval.
  if (60 % (minute.step ?? 1) !== 0 || 24 % (hour.step ?? 1) !== 0) return undefined;
  const [from = 0, to = 0] = hour.values ?? [];
  const within = (firstMinute: number, lastMinute: number) =>
    hour.isRange ? ` from ${two(from)}:${two(firstMinute)} to ${two(to)}:${two(lastMinute)}` : '';
  if (minute.step !== undefined && (hour.step === 1 || hour.isRange)) {
    return `every ${minute.step === 1 ? 'minute' : `${minute.step} minutes`}${within(0, 59)}`;
  }
  if (!isOneMinute || first === undefined) return undefined;
  if (hour.isRange) return `every hour${within(first, first)}`;
  return `${hour.step === 1 ? 'every hour' : `every ${hour.step} hours`}${first === 0 ? '' : ` at minute ${first}`}`;
}

/** On which days: `every day`, `Monday to Friday`, `on day 1 of the month`. */
function daysText(day: Field, month: Field, weekday: Field): string | undefined {
  const isEvery = (field: Field) => field.step === 1;
  if ([day, month, weekday].some(({ step = 1 }) => step !== 1)) return undefined;
  // Cron takes either of the two then, which words do not make clearer.
  if (!isEvery(day) && !isEvery(weekday)) return undefined;
  const months = isEvery(month) ? '' : ` in ${namesOf(month, (value) => MONTHS[value - 1] ?? '')}`;
  if (!isEvery(weekday)) {
    const names = namesOf(weekday, (value) => DAYS[value] ?? '');
    return `${weekday.isRange || weekday.values?.length !== 1 ? names : `every ${names}`}${months}`;
  }
  if (isEvery(day)) return `every day${months}`;
  const isOne = day.values?.length === 1;
  const ofMonth = months === '' ? ' of the month' : months;
  return `on ${isOne ? 'day' : 'days'} ${namesOf(day, String)}${ofMonth}`;
}

/** A cron pattern in words, such as `Monday to Friday at 08:00`; undefined for patterns that words do not make clearer. */
export function cronText(pattern: string): string | undefined {
  const parts = pattern.trim().split(/\s+/);
  if (parts.length !== 5) return undefined;
  const [minute, hour, day, month, weekday] = parts.map((part, place) => {
    const [min, max] = RANGES[place] ?? [0, 0];
    return readField(part, min, max);
  });
  if (!minute || !hour || !day || !month || !weekday) return undefined;
  const [times, days] = [timesText(minute, hour), daysText(day, month, weekday)];
  if (times === undefined || days === undefined) return undefined;
  return days === 'every day' && times.startsWith('every') ? times : `${days} ${times}`;
}

/** Of minute, hour, day of the month, month, and day of the week. */
const RANGES: readonly (readonly [number, number])[] = [
  [0, 59],
  [0, 23],
  [1, 31],
  [1, 12],
  [0, 7],
];

/** `every 6 hours` for `6h`. */
export function everyText(every: string): string {
  const [count, unit] = [every.slice(0, -1), UNITS[every.slice(-1)] ?? ''];
  return count === '1' ? `every ${unit}` : `every ${count} ${unit}s`;
}
