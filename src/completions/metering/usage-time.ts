import { AppError } from '../../platform/errors/app-error.ts';
import { dayOf } from '../keys/budgets.ts';

export const QUARTER_MS = 900_000;
const DAY_MS = 86_400_000;
const QUARTERS_PER_DAY = 96;
const MAX_SKIPPED_QUARTERS = 2 * QUARTERS_PER_DAY;

/** How many quarters of an hour a group of a report has. */
export const UNIT_QUARTERS = { day: QUARTERS_PER_DAY, hour: 4 } as const;
export type TimeUnit = keyof typeof UNIT_QUARTERS;

/** The clocks of a place. */
export interface Zone {
  /** By how many quarters of an hour the clocks there are ahead of UTC. */
  offsetAt(ms: number): number;
}

/** Quarters of an hour, from `from` to before `to`, while the clocks are ahead of UTC by `offset` quarters. */
export interface ZoneSpan {
  readonly from: number;
  readonly to: number;
  readonly offset: number;
}

export function quarterOf(ms: number): number {
  return Math.floor(ms / QUARTER_MS);
}

const OFFSET = /GMT(?:([+-])(\d{2}):(\d{2}))?/;

/** Throws INVALID_REQUEST for a name that is not one of a time zone. */
export function readZone(name: string): Zone {
  let format: Intl.DateTimeFormat;
  try {
    format = new Intl.DateTimeFormat('en-US', { timeZone: name, timeZoneName: 'longOffset' });
  } catch {
    return refuse('tz', 'tz is not the name of a time zone such as Europe/Berlin or UTC');
  }
  return {
    offsetAt(ms) {
      const [, sign, hours, minutes] = OFFSET.exec(format.format(ms)) ?? [];
      const quarters = Number(hours ?? 0) * 4 + Math.round(Number(minutes ?? 0) / 15);
      return sign === '-' ? -quarters : quarters;
    },
  };
}

/** The day that a moment belongs to there: `2030-01-31`. */
export function dayIn(zone: Zone, ms: number): string {
  return dayOf(ms + zone.offsetAt(ms) * QUARTER_MS);
}

/** The first moment of a day there. Where the clocks skip midnight, the day begins later. */
function startOfDay(zone: Zone, day: string): number {
  const midnight = Date.parse(day);
  const near = midnight - zone.offsetAt(midnight) * QUARTER_MS;
  let start = midnight - zone.offsetAt(near) * QUARTER_MS;
  for (let skipped = 0; dayIn(zone, start) < day && skipped < MAX_SKIPPED_QUARTERS; skipped += 1) start += QUARTER_MS;
  return start;
}

/** What a report is about: quarters from `from` to before `to`, and the days that these belong to. */
export interface UsageRange {
  readonly from: number;
  readonly to: number;
  readonly fromDay: string;
  readonly toDay: string;
}

const USUAL_DAYS = 30;

/** Days, which are those of the zone, or moments, which count with their whole quarter of an hour. Throws INVALID_REQUEST. */
export function readRange(
  zone: Zone,
  now: number,
  given: { readonly from?: string; readonly to?: string },
): UsageRange {
  const from = given.from ?? dayIn(zone, now - USUAL_DAYS * DAY_MS);
  const to = given.to ?? dayIn(zone, now);
  const [first, last] = [readMoment('from', from), readMoment('to', to)];
  const isMoment = (text: string) => text.includes('T');
  const range = {
    from: quarterOf(isMoment(from) ? first : startOfDay(zone, from)),
    to: isMoment(to) ? quarterOf(last) + 1 : quarterOf(startOfDay(zone, dayOf(last + DAY_MS))),
    fromDay: isMoment(from) ? dayIn(zone, first) : from,
    toDay: isMoment(to) ? dayIn(zone, last) : to,
  };
  if (range.to <= range.from) refuse(given.to === undefined ? 'from' : 'to', `to (${to}) is before from (${from})`);
  return range;
}

const MOMENT = /^\d{4}-\d{2}-\d{2}(?:T[\d:.]{5,15}(?:Z|[+-]\d{2}:\d{2}))?$/;

/** A day, which begins in UTC, or a moment. Throws INVALID_REQUEST. */
export function readMoment(name: string, text: string): number {
  const at = MOMENT.test(text) ? Date.parse(text) : Number.NaN;
  if (!Number.isNaN(at)) return at;
  return refuse(name, `${name} is not a day such as 2030-01-31, or a moment such as 2030-01-31T10:00:00Z`);
}

/** The range in pieces between which the clocks are changed. */
export function zoneSpans(zone: Zone, from: number, to: number): readonly ZoneSpan[] {
  const offsetOf = (quarter: number) => zone.offsetAt(quarter * QUARTER_MS);
  const spans: ZoneSpan[] = [];
  let start = from;
  let offset = offsetOf(from);
  for (let known = from; known < to; ) {
    const next = Math.min(known + QUARTERS_PER_DAY, to);
    if (offsetOf(next) === offset) {
      known = next;
      continue;
    }
    let [before, after] = [known, next];
    while (after - before > 1) {
      const middle = Math.floor((before + after) / 2);
      if (offsetOf(middle) === offset) before = middle;
      else after = middle;
    }
    spans.push({ from: start, to: after, offset });
    start = after;
    known = after;
    offset = offsetOf(after);
  }
  if (start < to) spans.push({ from: start, to, offset });
  return spans;
}

/** The name of a day or an hour (`2030-01-31T10:00:00+01:00`), by its number since 1970 on the clocks there. */
export function slotName(unit: TimeUnit, slot: number, stored: TimeUnit, offset: number): string {
  const text = new Date(slot * UNIT_QUARTERS[stored] * QUARTER_MS).toISOString();
  if (unit === 'day') return text.slice(0, 10);
  const [hours, minutes] = [Math.floor(Math.abs(offset) / 4), (Math.abs(offset) % 4) * 15].map((part) =>
    String(part).padStart(2, '0'),
  );
  return `${text.slice(0, 19)}${offset === 0 ? 'Z' : `${offset < 0 ? '-' : '+'}${hours}:${minutes}`}`;
}

export function refuse(name: string, reason: string): never {
  throw new AppError('INVALID_REQUEST', { reason, issues: [{ path: `/${name}`, message: reason }] });
}
