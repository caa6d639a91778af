import { checkProgram, programCounts } from '../check-program.ts';
import type { Ended, ProgramEvent } from '../played-program.ts';
import { isOfStore, type StoreManners } from '../played-store.ts';
import type { LoggedEvent } from '../played-world.ts';

export type PermissionsEvent =
  | ProgramEvent
  | LoggedEvent
  /** An agent asks, and gets a reply; without an option nothing is allowed. */
  | { readonly kind: 'asks'; readonly at: number; readonly title: string }
  | { readonly kind: 'gets'; readonly at: number; readonly title: string; readonly optionId: string }
  /** A person sees a request in a list. */
  | { readonly kind: 'seen'; readonly permissionId: string; readonly state: string; readonly optionId: string }
  | {
      readonly kind: 'answer';
      readonly permissionId: string;
      readonly decision: 'allow' | 'deny';
      readonly outcome: Ended<unknown>['outcome'];
      readonly code: string;
    }
  | { readonly kind: 'cancel'; readonly session: string; readonly outcome: Ended<unknown>['outcome'] }
  | ({ readonly kind: 'set-up' } & StoreManners);

/** A request at the end, when every turn has ended. */
export interface StoredPermission {
  readonly id: string;
  readonly title: string;
  readonly state: string;
  readonly option_id: string;
  readonly expires_at: number;
  readonly answered_at: number | null;
}

type Answer = Extract<PermissionsEvent, { kind: 'answer' }>;

const FINAL = { allow: 'allowed', deny: 'denied' } as const;
const CHOSEN: Readonly<Record<string, string>> = { allowed: 'yes', denied: 'no' };
/** What an answer may be refused with. */
const REFUSALS = ['PERMISSION_ANSWERED', 'PERMISSION_EXPIRED', 'SHUTTING_DOWN'];

/** Judges a run by its log and by the requests that are stored at its end. */
export function checkPermissions(
  events: readonly PermissionsEvent[],
  stored: readonly StoredPermission[],
  unanswered: number,
): string[] {
  const setUp = events.find((event) => event.kind === 'set-up') ?? { fails: 0, isSlow: 0 };
  return [
    ...checkProgram(events, setUp),
    ...stored.flatMap((request) => checkRequest(request, events)),
    ...checkRefusals(events, new Set(stored.map(({ id }) => id)), setUp.fails > 0),
    ...checkReplies(events, stored),
    ...(unanswered === 0 ? [] : [`${unanswered} calls were never answered`]),
  ];
}

export function permissionCounts(
  events: readonly PermissionsEvent[],
  stored: readonly StoredPermission[],
): Record<string, number> {
  const inState = (wanted: string) => stored.filter(({ state }) => state === wanted).length;
  const refused = (code: string) => events.filter((event) => event.kind === 'answer' && event.code === code).length;
  return {
    ...programCounts(events),
    'requests allowed': inState('allowed'),
    'requests denied': inState('denied'),
    'requests cancelled': inState('cancelled'),
    'requests expired': inState('expired'),
    'answers that came second': refused('PERMISSION_ANSWERED'),
    'answers that came too late': refused('PERMISSION_EXPIRED'),
  };
}

/** A request has one end: that of the first answer, of its turn, or of its time. */
function checkRequest(request: StoredPermission, events: readonly PermissionsEvent[]): string[] {
  const { id, state, option_id: option, answered_at: answeredAt, expires_at: expiresAt } = request;
  const answers = events.filter((event): event is Answer => event.kind === 'answer' && event.permissionId === id);
  const counted = answers.filter(({ outcome }) => outcome === 'ok');
  const problems: string[] = [];
  if (state === 'open') problems.push(`${id} is open, and its turn has ended`);
  if (counted.length > 1) problems.push(`${counted.length} answers to ${id} counted`);
  const [first] = counted;
  if (first !== undefined && FINAL[first.decision] !== state) {
    problems.push(`${id} was answered with ${first.decision}, and is ${state}`);
  }
  const isAnswered = state === 'allowed' || state === 'denied';
  // Whether an answer that was lost was stored is not known.
  const mayBe = answers.some(({ outcome, decision }) => outcome !== 'fail' && FINAL[decision] === state);
  if (isAnswered && !mayBe) problems.push(`${id} is ${state}, and nobody said so`);
  if (option !== (CHOSEN[state] ?? '')) problems.push(`${id} is ${state} with the option "${option}"`);
  if (state === 'expired' && (answeredAt ?? 0) < expiresAt) problems.push(`${id} expired before its time`);
  const seen = events.filter((event) => event.kind === 'seen' && event.permissionId === id && event.state !== 'open');
  for (const event of seen) {
    if (event.kind === 'seen' && event.state !== state) problems.push(`${id} was ${event.state}, and is ${state}`);
  }
  return problems;
}

/**
 * A request of a turn whose beginning could not be stored may be seen for a moment, and goes with its session. One whose answer
 * was accepted stays.
 */
function checkRefusals(
  events: readonly PermissionsEvent[],
  stored: ReadonlySet<string>,
  storeFails: boolean,
): string[] {
  return events.flatMap((event) => {
    if (event.kind !== 'answer') return [];
    const { permissionId: id, outcome, code } = event;
    if (outcome === 'ok') return stored.has(id) ? [] : [`${id} was answered, and is not stored`];
    const isGone = code === 'PERMISSION_NOT_FOUND' && storeFails && !stored.has(id);
    const mayBe = outcome !== 'fail' || REFUSALS.includes(code) || isOfStore(code) || isGone;
    return mayBe ? [] : [`an answer to ${id} was refused with ${code}`];
  });
}

/** An agent gets what is stored, or nothing when its turn is over, and never hears a yes that nobody said. */
function checkReplies(events: readonly PermissionsEvent[], stored: readonly StoredPermission[]): string[] {
  const byTitle = new Map(stored.map((request) => [request.title, request]));
  return events.flatMap((event) => {
    if (event.kind !== 'gets' || event.optionId === '') return [];
    const state = byTitle.get(event.title)?.state ?? 'not stored';
    return CHOSEN[state] === event.optionId ? [] : [`an agent got "${event.optionId}" for a request that is ${state}`];
  });
}
