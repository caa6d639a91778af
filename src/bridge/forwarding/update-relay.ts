import type { Clock } from '../../platform/clock/clock.ts';

/** Updates of one session that reach one connection over several answers: each is passed on once, in order. */
export interface UpdateRelay {
  open(receiver: object, sessionName: string): RelayedUpdates;
}

/** The updates within one answer. */
export interface RelayedUpdates {
  take(seq: number, send: () => void): void;
  /** Resolves when all that it brought was passed on, by whichever answer. */
  end(): Promise<void>;
}

interface OpenAnswer {
  readonly waiting: { readonly seq: number; readonly send: () => void }[];
  /** Set when it has ended, and waits for what it brought to be passed on. */
  whenPassed: (() => void) | undefined;
}

interface SharedSession {
  lastSeq: number;
  /** As they were asked for: the first one leads, the others wait behind it. */
  answers: OpenAnswer[];
}

/** One that has so many waiting, or waits so long for its end, takes over: the one that leads has lost its way. */
const MOST_WAITING = 1000;
const LONGEST_WAIT_MS = 1000;

/**
 * On one connection a client may have several calls about one session under way. Each answer of the other node brings all
 * updates of the session since it was asked for; the client expects each of them once.
 */
export function createUpdateRelay(clock: Pick<Clock, 'after'>): UpdateRelay {
  const byReceiver = new WeakMap<object, Map<string, SharedSession>>();

  return {
    open(receiver, sessionName) {
      const sessions = byReceiver.get(receiver) ?? new Map<string, SharedSession>();
      byReceiver.set(receiver, sessions);
      const session = sessions.get(sessionName) ?? { lastSeq: 0, answers: [] };
      sessions.set(sessionName, session);
      const own: OpenAnswer = { waiting: [], whenPassed: undefined };
      session.answers.push(own);

      const takeOver = (): void => {
        session.answers = [own, ...session.answers.filter((other) => other !== own)];
        passOn(session);
      };

      return {
        take(seq, send) {
          if (seq <= session.lastSeq) return;
          own.waiting.push({ seq, send });
          if (session.answers[0] === own || own.waiting.length > MOST_WAITING) takeOver();
        },
        async end() {
          const { promise, resolve } = Promise.withResolvers<void>();
          own.whenPassed = resolve;
          passOn(session);
          const stopTimer = clock.after(LONGEST_WAIT_MS, takeOver);
          await promise;
          stopTimer();
          if (session.answers.length === 0 && sessions.get(sessionName) === session) sessions.delete(sessionName);
        },
      };
    },
  };
}

/** Passes on what the leading answer has; those that have ended make room for the next. */
function passOn(session: SharedSession): void {
  for (let leader = session.answers[0]; leader !== undefined; leader = session.answers[0]) {
    for (const { seq, send } of dueOf(session, leader)) {
      if (seq <= session.lastSeq) continue;
      session.lastSeq = seq;
      send();
    }
    if (leader.whenPassed === undefined) break;
    session.answers.shift();
    leader.whenPassed();
  }
  session.answers = session.answers.filter(({ waiting, whenPassed }) => {
    while (waiting[0] !== undefined && waiting[0].seq <= session.lastSeq) waiting.shift();
    if (waiting.length > 0 || whenPassed === undefined) return true;
    whenPassed();
    return false;
  });
}

/** What the leading answer has, and what others have from before it, such as that a turn of theirs is queued. */
function dueOf({ answers }: SharedSession, leader: OpenAnswer): OpenAnswer['waiting'] {
  const own = leader.waiting.splice(0);
  const upTo = own.at(-1)?.seq ?? 0;
  if (answers.length === 1) return own;
  const earlier = answers.flatMap(({ waiting }) => waiting.filter(({ seq }) => seq <= upTo));
  return [...own, ...earlier].sort((left, right) => left.seq - right.seq);
}

/** The number of an update; undefined for what has none. */
export function seqOf(params: unknown): number | undefined {
  const { seq } = Object(params) as Readonly<Record<string, unknown>>;
  return typeof seq === 'number' && Number.isSafeInteger(seq) ? seq : undefined;
}
