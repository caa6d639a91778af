import type { AccountEvent, AccountsEvent } from './account-events.ts';

/** What is known of a session, by the refresh tokens that its client got. */
interface PlayedSession {
  readonly email: string;
  readonly openedAt: number;
  /** Nothing can have ended it before this. */
  mayEndAt: number;
  /** From this on it has ended for sure. */
  endedAt: number;
}

const NEVER = Number.POSITIVE_INFINITY;
const REFUSED = ['INVALID_SESSION', 'INVALID_REFRESH_TOKEN'];

/** What has ended stays ended, and nothing ends by itself. */
export function checkSessions(calls: readonly AccountEvent[], events: readonly AccountsEvent[]): string[] {
  const sessions = findSessions(calls);
  const newest = findNewest(calls);
  noteEnds(calls, sessions);
  // A session lives for hours: only a jump of the clock can make it older than that.
  const hasAged = events.some((event) => event.kind === 'wall-step' && event.byMs > 0);
  return calls.flatMap((call) => {
    if (call.kind === 'login' || call.kind === 'register') return [];
    const by = call.kind === 'refresh' ? call.used : call.by;
    const session = sessions.get(by);
    if (session === undefined) return [];
    if (call.outcome === 'ok' && session.endedAt < call.startedAt) {
      return [
        `${call.kind} with ${by} was answered at ${call.endedAt}, and the session had ended at ${session.endedAt}`,
      ];
    }
    const isGood = session.mayEndAt > call.endedAt && newest.get(by) !== false && !hasAged;
    const isRefused = call.outcome === 'fail' && REFUSED.includes(call.code ?? '');
    return isGood && isRefused
      ? [`${call.kind} with ${by} was refused at ${call.endedAt}, and nothing had ended it`]
      : [];
  });
}

/** Every refresh token by the session that it belongs to. */
function findSessions(calls: readonly AccountEvent[]): Map<string, PlayedSession> {
  const sessions = new Map<string, PlayedSession>();
  for (const call of calls) {
    if (!('refresh' in call) || call.refresh === undefined) continue;
    const fresh = { email: call.email, openedAt: call.startedAt, mayEndAt: NEVER, endedAt: NEVER };
    const known = call.kind === 'refresh' ? sessions.get(call.used) : undefined;
    sessions.set(call.refresh, sessions.get(call.refresh) ?? known ?? fresh);
  }
  return sessions;
}

/** False for tokens that somebody has tried to use before, whatever came of it. */
function findNewest(calls: readonly AccountEvent[]): Map<string, boolean> {
  return new Map(calls.flatMap((call) => (call.kind === 'refresh' ? [[call.used, false] as const] : [])));
}

function noteEnds(calls: readonly AccountEvent[], sessions: ReadonlyMap<string, PlayedSession>): void {
  for (const call of calls) {
    const isSure = call.outcome === 'ok';
    const end = (session: PlayedSession, sure: boolean): void => {
      session.mayEndAt = Math.min(session.mayEndAt, call.startedAt);
      if (sure) session.endedAt = Math.min(session.endedAt, call.endedAt);
    };
    const endAll = (but: PlayedSession | undefined): void => {
      for (const session of new Set(sessions.values())) {
        if (session.email !== call.email || session === but || session.openedAt > call.endedAt) continue;
        // One that was opened meanwhile may have come before or after.
        end(session, isSure && isOpenedBefore(session, call.startedAt, calls, sessions));
      }
    };
    if (call.kind === 'refresh' && call.outcome !== 'ok') {
      const session = sessions.get(call.used);
      if (session !== undefined) end(session, call.code === 'INVALID_REFRESH_TOKEN' && !isBeingEnded(call, calls));
    }
    if (call.kind === 'end' && call.outcome !== 'fail') {
      const session = sessions.get(call.by);
      if (session !== undefined) end(session, isSure);
    }
    if (call.kind === 'end-others' && call.outcome !== 'fail') endAll(sessions.get(call.by));
    if (call.kind === 'password' && call.outcome !== 'fail') endAll(sessions.get(call.refresh ?? ''));
  }
}

/**
 * Whether another call was ending sessions of the same person when a refresh was refused. Its end counts for session tokens
 * when it is acknowledged: until then a session in memory may still be answered, though the store has no refresh token for it.
 */
function isBeingEnded(refused: AccountEvent, calls: readonly AccountEvent[]): boolean {
  return calls.some(
    ({ kind, email, outcome, startedAt, endedAt }) =>
      ['end', 'end-others', 'password'].includes(kind) &&
      email === refused.email &&
      outcome !== 'fail' &&
      startedAt <= refused.endedAt &&
      endedAt > refused.endedAt,
  );
}

/** Whether its client had the answer that opened it before. In the same millisecond it may have come after. */
function isOpenedBefore(
  session: PlayedSession,
  moment: number,
  calls: readonly AccountEvent[],
  sessions: ReadonlyMap<string, PlayedSession>,
): boolean {
  return calls.some(
    (call) =>
      'refresh' in call &&
      call.kind !== 'refresh' &&
      call.endedAt < moment &&
      sessions.get(call.refresh ?? '') === session,
  );
}
