import {
  checkAnswers,
  checkComplete,
  checkContents,
  checkEnds,
  checkOrder,
  checkRuns,
  type Operation,
  type StoredSessions,
} from '../../sessions/check-operations.ts';
import { checkProgram, programCounts } from '../check-program.ts';
import type { CallTimes } from '../played-program.ts';
import type { SessionsAtTheEnd, SessionsEvent } from './session-events.ts';

const ENDS = ['completed', 'failed', 'cancelled'];
/** An agent that is stopped needs up to 4.5 seconds to be quiet. */
const MAX_QUIET_MS = 5_000;

/**
 * Judges a run by its log and by what there is at its end. Of several instances each reserves numbers of its own, and one that is asked
 * about a call that another has yet to begin does not know the call.
 */
export function checkSessions(
  given: readonly SessionsEvent[],
  atTheEnd: SessionsAtTheEnd,
  instances: 'one' | 'several' = 'one',
): string[] {
  const events = instances === 'one' ? given : given.filter((event) => !isTooEarly(given, event));
  const setUp = events.find((event) => event.kind === 'set-up') ?? { fails: 0, isSlow: 0 };
  const { unanswered, ...all } = atTheEnd;
  // Of a closed session only the last number is left.
  const closed = new Set(events.flatMap((event) => (event.kind === 'close' ? [event.session] : [])));
  const open: StoredSessions = {
    updates: all.updates.filter(({ session }) => !closed.has(session)),
    turns: all.turns.filter(({ session }) => !closed.has(session)),
  };
  const operations = operationsOf(events, all);
  const ofOpen = operations.filter((one) => !('session' in one) || !closed.has(one.session));
  return [
    ...checkProgram(events, setUp),
    ...checkOrder(operations),
    ...checkContents(operations, all),
    ...checkComplete(ofOpen, open),
    ...checkEnds(all),
    ...checkRuns(ofOpen, open),
    ...checkAnswers(ofOpen, open),
    ...checkSeenEnds(ofOpen, open),
    ...checkCancels(events, open),
    // Of several instances, one that waits long for the store is taken for dead.
    ...checkReasons(events, open, setUp.fails + (instances === 'one' ? 0 : setUp.isSlow)),
    ...checkContinuations(ofOpen, instances === 'one' ? new Map() : callTimes(events)),
    ...(setUp.fails === 0 && !wasEnded(events) && instances === 'one' ? checkGaps(open) : []),
    ...(unanswered === 0 ? [] : [`${unanswered} calls were never answered`]),
  ];
}

/** The instance that was asked may have looked at any time since the call was made. */
function isTooEarly(events: readonly SessionsEvent[], event: SessionsEvent): boolean {
  if (event.kind !== 'repeat' || event.code !== 'RESUME_NOT_FOUND') return false;
  return !events.some((one) => one.kind === 'run' && one.prompt === event.prompt && one.at < event.startedAt);
}

export function countsOf(events: readonly SessionsEvent[]): Record<string, number> {
  const turns = events.filter((event) => event.kind === 'turn');
  return {
    ...programCounts(events),
    'turns answered': turns.filter(({ outcome }) => outcome === 'ok').length,
    'turns refused, or without an answer': turns.filter(({ outcome }) => outcome !== 'ok').length,
    'calls made again': events.filter(({ kind }) => kind === 'repeat').length,
    'updates seen': events.filter(({ kind }) => kind === 'update').length,
    'resumes in the middle': events.filter((event) => event.kind === 'connected' && event.afterSeq > 0).length,
  };
}

/**
 * An agent that began before its turn was stored, and died with it, leaves no turn: the call may be made again. So may
 * one that was refused, when it bears a key.
 */
function operationsOf(events: readonly SessionsEvent[], { turns }: StoredSessions): Operation[] {
  const ids = new Set(turns.map(({ id }) => id));
  const prompts = new Set(turns.map(({ prompt }) => prompt));
  const repeated = new Set(events.flatMap((event) => (event.kind === 'repeat' ? [event.prompt] : [])));
  return events.flatMap((event): Operation[] => {
    switch (event.kind) {
      case 'connected':
      case 'update':
      case 'repeat':
        return [event];
      case 'turn':
        return [event.outcome === 'fail' && repeated.has(event.prompt) ? { ...event, outcome: 'unknown' } : event];
      case 'run': {
        const { prompt, turnId, end } = event;
        const isUnstored = !prompts.has(prompt) && !repeated.has(prompt);
        const counts = end === undefined && (ids.has(turnId) || isUnstored);
        return counts ? [{ kind: 'asked', prompt }] : [];
      }
      default:
        return [];
    }
  });
}

function wasEnded(events: readonly SessionsEvent[]): boolean {
  return events.some(({ kind }) => ['kill', 'stop', 'freeze', 'outage'].includes(kind));
}

/** The end of a turn is stored before anybody sees it. */
function checkSeenEnds(operations: readonly Operation[], { updates }: StoredSessions): string[] {
  const stored = new Set(updates.map(({ session, seq }) => `${session} ${seq}`));
  return operations.flatMap((one) =>
    one.kind === 'update' && ENDS.includes(one.event) && !stored.has(`${one.session} ${one.seq}`)
      ? [`the end ${one.seq} of ${one.session} was seen and is not stored`]
      : [],
  );
}

/**
 * Which turns a cancel was accepted for, and went on. A turn that is stored as failed may have been ended by another instance, and a
 * process that was disturbed since it began the turn may not know that yet.
 */
function checkCancels(events: readonly SessionsEvent[], { turns }: StoredSessions): string[] {
  const stored = new Map(turns.map((turn) => [turn.id, turn]));
  const runs = events.filter((event) => event.kind === 'run');
  const disturbances = events.flatMap((event) =>
    event.kind === 'kill' || event.kind === 'stop' || event.kind === 'freeze' ? [event] : [],
  );
  const cancels = events.flatMap((event) => (event.kind === 'cancel' ? [event] : []));
  return cancels.flatMap(({ session, outcome, startedAt, endedAt }) => {
    if (outcome !== 'ok') return [];
    const quietAt = endedAt + MAX_QUIET_MS;
    const goOn = runs.filter(({ turnId, home, at, end }) => {
      const turn = stored.get(turnId);
      if (end !== undefined || at >= startedAt || turn?.session !== session) return false;
      if (turn.status === 'failed') return false;
      const isDisturbed = disturbances.some((one) => one.home === home && one.at >= at && one.at <= quietAt);
      return !isDisturbed && !runs.some((one) => one.turnId === turnId && one.end !== undefined && one.at <= quietAt);
    });
    return goOn.map(({ turnId }) => `turn ${turnId} went on after a cancel of ${session} that was accepted`);
  });
}

/** No turn is cancelled or interrupted by itself. */
function checkReasons(events: readonly SessionsEvent[], { turns }: StoredSessions, fails: number): string[] {
  const cancelled = new Set(events.flatMap((event) => (event.kind === 'cancel' ? [event.session] : [])));
  const ended = new Map(
    events.flatMap((event) => (event.kind === 'run' && event.end !== undefined ? [[event.turnId, event.end]] : [])),
  );
  const refused = new Set(
    events.flatMap((event) => (event.kind === 'turn' && event.outcome === 'fail' ? [event.prompt] : [])),
  );
  return turns.flatMap(({ id, session, status, prompt }) => {
    if (status === 'cancelled' && !cancelled.has(session)) return [`turn ${id} was cancelled by nobody`];
    if (status === 'completed' && ended.get(id) !== 'completed')
      return [`turn ${id} is completed, and no agent did it`];
    const isInterrupted = status === 'failed' && ended.get(id) === undefined && !refused.has(prompt);
    if (isInterrupted && fails === 0 && !wasEnded(events)) return [`turn ${id} failed, and no agent has failed`];
    return [];
  });
}

/** By prompt, when the calls were made and answered: the answers of several instances overtake each other. */
function callTimes(events: readonly SessionsEvent[]): ReadonlyMap<string, CallTimes> {
  return new Map(events.flatMap((event) => (event.kind === 'turn' ? [[event.prompt, event]] : [])));
}

/** Who has seen an agent at work in a session can go on with it, until it is started afresh. */
function checkContinuations(operations: readonly Operation[], times: ReadonlyMap<string, CallTimes>): string[] {
  const started = new Set<string>();
  const starts = new Set(
    operations.flatMap((one) => (one.kind === 'turn' && one.method === 'session.start' ? [one.prompt] : [])),
  );
  /** Since when. */
  const worked = new Map<string, number>();
  const lastSeq = new Map<string, number>();
  /** Whether a start that came to nothing was made before that refusal, and is answered after it. */
  const isStartedAfresh = (session: string, refused: CallTimes | undefined, index: number) =>
    operations.slice(index + 1).some((one) => {
      if ((one.kind !== 'turn' && one.kind !== 'repeat') || one.session !== session || !starts.has(one.prompt))
        return false;
      const { startedAt = Number.POSITIVE_INFINITY } = times.get(one.prompt) ?? {};
      return one.status !== 'completed' && startedAt <= (refused?.endedAt ?? 0);
    });
  return operations.flatMap((one, index) => {
    if (one.kind === 'update' && one.seq > (lastSeq.get(one.session) ?? 0)) {
      // What is seen once more says nothing new.
      lastSeq.set(one.session, one.seq);
      const isWork = ['running', 'delta', 'completed'].includes(one.event);
      if (isWork && !worked.has(one.session)) worked.set(one.session, one.at);
    }
    if (one.kind !== 'turn' && one.kind !== 'repeat') return [];
    const { session, status, code, prompt } = one;
    if (starts.has(prompt)) {
      if (started.has(session) && status !== 'completed') worked.delete(session);
      started.add(session);
    }
    // A call that is made again hears what it was told then.
    const isRefused = one.kind === 'turn' && code === 'SESSION_CONTINUATION_UNAVAILABLE';
    const workedAt = worked.get(session) ?? Number.POSITIVE_INFINITY;
    const isLost = isRefused && workedAt < (times.get(prompt)?.startedAt ?? Number.POSITIVE_INFINITY);
    return isLost && !isStartedAfresh(session, times.get(prompt), index)
      ? [`session ${session} could not be continued with ${prompt}`]
      : [];
  });
}

/** Numbers follow each other where nothing was lost. */
function checkGaps({ updates }: StoredSessions): string[] {
  return [...Map.groupBy(updates, ({ session }) => session)].flatMap(([session, own]) =>
    own.flatMap(({ seq }, index) => (seq === index + 1 ? [] : [`update ${seq} of ${session} is number ${index + 1}`])),
  );
}
