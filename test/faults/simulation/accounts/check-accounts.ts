import { checkProgram, programCounts } from '../check-program.ts';
import type { AccountEvent, AccountsEvent, RefreshEvent, StoredPeople } from './account-events.ts';
import { checkPasswords } from './check-passwords.ts';
import { checkSessions } from './check-sessions.ts';

/** For so long a used refresh token gives its pair again. */
const REPLAY_MS = 10_000;

/** Judges a run by its log and by what is stored at its end. */
export function checkAccounts(events: readonly AccountsEvent[], stored: StoredPeople, unanswered: number): string[] {
  const setUp = events.find((event) => event.kind === 'set-up') ?? { fails: 0, isSlow: 0 };
  const calls = events.filter(isCall);
  return [
    ...checkProgram(events, setUp),
    ...calls.flatMap(({ kind, email, outcome }) =>
      kind === 'register' && outcome === 'ok' && !stored.emails.includes(email) ? [`${email} is lost`] : [],
    ),
    ...stored.forks.map(({ session_id: id, generation }) => `generation ${generation} of ${id} has two refresh tokens`),
    ...checkRotations(calls),
    ...checkSessions(calls, events),
    ...checkPasswords(calls, events),
    ...(unanswered === 0 ? [] : [`${unanswered} calls were never answered`]),
  ];
}

export function countsOf(events: readonly AccountsEvent[]): Record<string, number> {
  const calls = events.filter(isCall);
  const count = (kind: AccountEvent['kind'], outcome: AccountEvent['outcome']) =>
    calls.filter((call) => call.kind === kind && call.outcome === outcome).length;
  return {
    ...programCounts(events),
    'jumps of the clock': events.filter(({ kind }) => kind === 'wall-step').length,
    logins: count('login', 'ok'),
    'logins refused': count('login', 'fail'),
    refreshes: count('refresh', 'ok'),
    'refreshes refused': count('refresh', 'fail'),
    'passwords changed': count('password', 'ok'),
    'calls without an answer': calls.filter(({ outcome }) => outcome === 'unknown').length,
  };
}

function isCall(event: AccountsEvent): event is AccountEvent {
  return 'email' in event;
}

/** A used token gives nothing but the pair that it gave first, and that only for ten seconds. */
function checkRotations(calls: readonly AccountEvent[]): string[] {
  const uses = Map.groupBy(
    calls.filter((call): call is RefreshEvent => call.kind === 'refresh' && call.outcome === 'ok'),
    ({ used }) => used,
  );
  return [...uses].flatMap(([used, [first, ...later]]) =>
    later.flatMap((use) => {
      if (first === undefined) return [];
      if (use.refresh !== first.refresh || use.token !== first.token) {
        return [`${used} gave ${first.refresh}, and then ${use.refresh}`];
      }
      // By the wall clock, which may have been set meanwhile, and to both sides: that is what the service has.
      const [from, to] = wallTimes(first);
      const [againFrom, againTo] = wallTimes(use);
      const apart = Math.max(againFrom - to, from - againTo);
      return apart > REPLAY_MS ? [`${used} was answered again after ${apart} ms`] : [];
    }),
  );
}

function wallTimes({ wallStartedAt, wallEndedAt }: AccountEvent): readonly [from: number, to: number] {
  return [Math.min(wallStartedAt, wallEndedAt), Math.max(wallStartedAt, wallEndedAt)];
}
