import type { Clock } from '../../platform/clock/clock.ts';

/** Updates of one session that reach one connection over several answers: each is passed on once, in order. */
export interface UpdateRelay {
  open(receiver: object, sessionName: string): RelayedUpdates;
}

/** The updates within one answer. */
export interface RelayedUpdates {
  take(seq: number, send: () => void): void;
  /** Undefined while more may be taken; otherwise resolves when what waits behind another answer was passed on. */
  room(): Promise<void> | undefined;
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
  /** Set while an answer waits until something is passed on. */
  progress: PromiseWithResolvers<void> | undefined;
}

/** With more than this waiting, an answer is not read on. */
const MAX_WAITING = 100;
/** An answer that waits this long takes over: the one that leads has stopped. */
const MAX_WAIT_MS = 1000;

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
      const session = sessions.get(sessionName) ?? { lastSeq: 0, answers: [], progress: undefined };
      sessions.set(sessionName, session);
      const own: OpenAnswer = { waiting: [], whenPassed: undefined };
      session.answers.push(own);

      const takeOver = (): void => {
        session.answers = [own, ...session.answers.filter((other) => other !== own)];
        passOn(session);
      };

      /** Whether nothing comes between what was passed on and what waits here. */
      const isNext = (): boolean => (own.waiting[0]?.seq ?? 0) <= session.lastSeq + 1;

      /** Reading on would only fill the memory. An amount does not say that the leading answer has stopped; time does. */
      const wait = async (): Promise<void> => {
        while (own.waiting.length > MAX_WAITING) {
          const { lastSeq } = session;
          if (isNext()) break;
          session.progress ??= Promise.withResolvers<void>();
          const { promise, resolve } = session.progress;
          const stopTimer = clock.after(MAX_WAIT_MS, resolve);
          await promise;
          stopTimer();
          if (session.lastSeq === lastSeq) break;
        }
        if (own.waiting.length > MAX_WAITING) takeOver();
      };

      return {
        take(seq, send) {
          if (seq <= session.lastSeq) return;
          own.waiting.push({ seq, send });
          if (session.answers[0] === own) passOn(session);
          else if (own.waiting.length > MAX_WAITING && isNext()) takeOver();
        },
        room: () => (own.waiting.length > MAX_WAITING ? wait() : undefined),
        async end() {
          const { promise, resolve } = Promise.withResolvers<void>();
          own.whenPassed = resolve;
          passOn(session);
          const stopTimer = clock.after(MAX_WAIT_MS, takeOver);
          await promise;
          stopTimer();
          if (session.answers.length === 0 && sessions.get(sessionName) === session) sessions.delete(sessionName);
        },
      };
    },
  };
}

/** Passes on the updates of the leading answer; when it has ended, the next one leads. */
function passOn(session: SharedSession): void {
  const { lastSeq } = session;
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
  if (session.lastSeq > lastSeq) {
    session.progress?.resolve();
    session.progress = undefined;
  }
  session.answers = session.answers.filter(({ waiting, whenPassed }) => {
    while (waiting[0] !== undefined && waiting[0].seq <= session.lastSeq) waiting.shift();
    if (waiting.length > 0 || whenPassed === undefined) return true;
    whenPassed();
    return false;
  });
}

/** The updates of the leading answer, and earlier ones of others, such as `queued`. */
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
