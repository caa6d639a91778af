import type { CallsQuery } from '../../../completions/contract/calls.ts';

/** The filters of the list of calls, as they are in the address of its page. */

/** Groups of a report that stand for several names, or for none. */
const NOT_NAMES: ReadonlySet<string> = new Set(['', 'none', 'other', 'unknown']);

interface Counted {
  /** What a report is grouped by, and the group. */
  readonly group: string;
  readonly value: string;
  /** The first and the last day, or minute: `2030-01-31T10:00`. */
  readonly from: string;
  readonly to: string;
  /** The own id, `user:<id>`. Undefined: nobody logs in here, and everyone sees all calls. */
  readonly me: string | undefined;
}

/** The address of the calls that a report counts. Undefined where the list of calls has no such filter. */
export function callsHref({ group, value, from, to, me }: Counted): string | undefined {
  const filter = filterOf(group, value, me);
  return filter && `/console/calls?${new URLSearchParams({ ...filter, from, to })}`;
}

function filterOf(group: string, value: string, me: string | undefined): Record<string, string> | undefined {
  if (group === 'day') return {};
  if (NOT_NAMES.has(value)) return undefined;
  if (group === 'team') return { owner: value };
  // Everyone lists their own calls and those for their teams, even anyone who may see the sums of others.
  if (group === 'owner') return me === undefined || me === value ? { owner: value } : undefined;
  return ['model', 'key', 'api'].includes(group) ? { [group]: value } : undefined;
}

/** A day, or a day with a minute. */
const MOMENT = /^\d{4}-\d\d-\d\d(T\d\d:\d\d)?$/;

/** A day, or a minute, of the zone of the browser as the moment when it begins or ends. */
export function momentOf(name: 'from' | 'to', given: string | null): Pick<CallsQuery, 'from' | 'to'> {
  const [text, minute] = MOMENT.exec(given ?? '') ?? [];
  if (text === undefined) return {};
  const rest = name === 'from' ? ['T00:00', ':00'] : ['T23:59', ':59.999'];
  const at = Date.parse(`${text}${minute === undefined ? rest[0] : ''}${rest[1]}`);
  return Number.isNaN(at) ? {} : { [name]: new Date(at).toISOString() };
}

/** The hour that begins at `10:00` on a day: its first and its last minute. */
export function hourOf(day: string, time: string): { readonly from: string; readonly to: string } {
  return { from: `${day}T${time}`, to: `${day}T${time.slice(0, 3)}59` };
}
