import type { Clock } from '../../platform/clock/clock.ts';
import { type RawJson, rawJson } from '../../platform/json-rpc/envelope.ts';
import { isQuestion, wireText } from './update-text.ts';

/** Where the updates for a client go: a connection, or the stream of an answer. */
export interface NotificationSink {
  update(params: RawJson, seq: number): void;
  /** Takes updates in the form in which they are stored, instead of `update`. `at`: when it was stored, if that is past. */
  stored?(text: string, at: number | undefined, seq: number): void;
  /** Also gets questions that wait for an answer, which clients of the first surface do not know. */
  readonly takesQuestions?: boolean;
  /** True while so much waits for the client that it must catch up before it gets more. */
  isBehind(): boolean;
  /** Resolves when the client has caught up; with false when it is gone. */
  drained(): Promise<boolean>;
  /** Called when its updates can no longer be read from the store. Its client must then resume. */
  lost(): void;
  /** True for another instance, which forwards the updates to its own clients. */
  readonly isInstance?: boolean;
}

/**
 * Sends what was stored of a session after one number, up to another, at the receiver's own pace. Resolves with the last
 * number that was looked at: nothing up to it is left to send.
 */
export type Replay = (
  sessionKey: string,
  receiver: NotificationSink,
  afterSeq: number,
  upToSeq?: number,
) => Promise<number>;

/**
 * Sends the updates of sessions to their receivers. A receiver that keeps up gets each update as it is published. A slow one gets
 * them at its own pace, from memory while few wait, otherwise from the log, so that a slow receiver needs no more memory.
 */
export interface UpdateHub {
  /** `text` as it is stored. */
  publish(sessionKey: string, seq: number, text: string): void;
  /**
   * Does nothing when the receiver is subscribed already. `afterSeq`: it has all updates up to this number, the last one, and
   * wants all that come after it.
   */
  subscribe(sessionKey: string, receiver: NotificationSink, afterSeq?: number): void;
  unsubscribe(sessionKey: string, receiver: NotificationSink): void;
  /** Subscribes with a past: first what came after a number, then all that follows. Resolves when the past was sent. */
  subscribeAfter(sessionKey: string, receiver: NotificationSink, afterSeq: number): Promise<void>;
  /** The last number that a receiver with a past has got; undefined: it is not subscribed with one. */
  sentUpTo(sessionKey: string, receiver: NotificationSink): number | undefined;
  /** Resolves when a receiver has got all updates up to a number, or gets no more. Rejects when they cannot be read. */
  reached(sessionKey: string, receiver: NotificationSink, seq: number): Promise<void>;
  /**
   * Undefined while the session's receivers keep up. Otherwise resolves when those that have just fallen behind have caught
   * up, and soon in any case: the publisher of a burst waits for readers that are reading, never long for one that is not.
   */
  room(sessionKey: string): Promise<void> | undefined;
  /** Sends what is stored to every receiver that has a past and has got less. `upTo`: the last number that is stored, if known. */
  catchUp(sessionKey: string, upTo?: number): void;
  /** Whether receivers get from the log what lies between their last update and the next: it may come from elsewhere. */
  keepWhole(sessionKey: string, isOn: boolean): void;
  /** Another bridge may have used numbers of the session up to this one: the same for receivers that have got less. */
  usedElsewhere(sessionKey: string, upTo: number): void;
  isFollowed(sessionKey: string): boolean;
  /** Records that a receiver gets an update in another way. False when it has that update already. */
  gets(sessionKey: string, receiver: NotificationSink, seq: number): boolean;
  /** The sessions that are followed. */
  followed(): readonly string[];
  /** Removes the receivers of a closed session. Those that follow it stay, and get the updates of the next session of that name. */
  close(sessionKey: string): void;
  /** Removes all receivers of a session that will never exist. */
  end(sessionKey: string): void;
  /** Calls the listener with the receivers of each session that `end` has ended, and the last number that each has got. */
  onEnd(listener: (sessionKey: string, receivers: ReadonlyMap<NotificationSink, number>) => void): void;
  /** Removes a connection that has closed. */
  forget(receiver: NotificationSink): void;
}

interface Subscription {
  readonly receiver: NotificationSink;
  /** The last number that was sent or skipped. */
  sentUpTo: number;
  /** Set while the receiver is behind. */
  feeding: Promise<void> | undefined;
  /** Set while the publisher waits for the receiver. Resolves when the receiver has caught up or the time is over. */
  grace: Promise<void> | undefined;
  /** What was published while it is behind. */
  waiting: { readonly seq: number; readonly text: string }[];
  waitingLength: number;
  /** More updates were published than may wait in memory: they are read from the log. */
  isInLog: boolean;
  isOver: boolean;
  /** It wants all updates after a number, not only new ones. */
  hasPast: boolean;
  readonly whenReached: { readonly seq: number; readonly resolve: () => void }[];
}

/** How long a publisher waits for a receiver that falls behind. After that, the publisher continues without it. */
const GRACE_MS = 250;
const MAX_WAITING = 1000;
const MAX_WAITING_LENGTH = 1024 * 1024;
/** The maximum number of sessions of a connection. Beyond it, the connection loses the session that it used first. */
const SESSIONS_PER_RECEIVER = 10_000;

export function createUpdateHub(replay: Replay, clock: Pick<Clock, 'after'>): UpdateHub {
  const bySession = new Map<string, Map<NotificationSink, Subscription>>();
  const byReceiver = new Map<NotificationSink, Set<string>>();
  const whole = new Set<string>();
  /** Of sessions that are followed: the number that another bridge may have used last. */
  const elsewhere = new Map<string, number>();
  const endListeners: Parameters<UpdateHub['onEnd']>[0][] = [];

  /** Whether another bridge may have stored updates between the last one of a receiver and this one. */
  function isGap(sessionKey: string, { hasPast, sentUpTo }: Subscription, seq: number): boolean {
    if (!hasPast || seq <= sentUpTo + 1) return false;
    return whole.has(sessionKey) || sentUpTo < (elsewhere.get(sessionKey) ?? 0);
  }

  /** Sends the missing updates from the log, and then new ones. */
  function feedFromLog(sessionKey: string, subscription: Subscription): void {
    subscription.isInLog = true;
    feed(sessionKey, subscription).catch(() => subscription.receiver.lost());
  }

  function add(sessionKey: string, receiver: NotificationSink): Subscription {
    const receivers = bySession.get(sessionKey) ?? new Map<NotificationSink, Subscription>();
    bySession.set(sessionKey, receivers);
    const known = receivers.get(receiver);
    if (known !== undefined) return known;
    const subscription: Subscription = {
      receiver,
      sentUpTo: 0,
      feeding: undefined,
      grace: undefined,
      waiting: [],
      waitingLength: 0,
      isInLog: false,
      isOver: false,
      hasPast: false,
      whenReached: [],
    };
    receivers.set(receiver, subscription);
    const sessions = byReceiver.get(receiver) ?? new Set<string>();
    byReceiver.set(receiver, sessions);
    sessions.add(sessionKey);
    const [first] = sessions;
    if (sessions.size > SESSIONS_PER_RECEIVER && first !== undefined) unsubscribe(first, receiver);
    return subscription;
  }

  function unsubscribe(sessionKey: string, receiver: NotificationSink): void {
    const receivers = bySession.get(sessionKey);
    const subscription = receivers?.get(receiver);
    if (subscription !== undefined) {
      subscription.isOver = true;
      subscription.waiting = [];
      for (const { resolve } of subscription.whenReached.splice(0)) resolve();
    }
    if (receivers?.delete(receiver) && receivers.size === 0) {
      bySession.delete(sessionKey);
      elsewhere.delete(sessionKey);
    }
    const sessions = byReceiver.get(receiver);
    if (sessions?.delete(sessionKey) && sessions.size === 0) byReceiver.delete(receiver);
  }

  /** Feeds a receiver at its own pace until nothing waits for it. */
  function feed(sessionKey: string, subscription: Subscription): Promise<void> {
    subscription.feeding ??= feedAll(sessionKey, subscription).catch((error: unknown) => {
      // Callers that wait for a number get the failure.
      subscription.whenReached.length = 0;
      unsubscribe(sessionKey, subscription.receiver);
      throw error;
    });
    return subscription.feeding;
  }

  async function feedAll(sessionKey: string, subscription: Subscription): Promise<void> {
    const { receiver } = subscription;
    const subscribed = whileSubscribed(subscription);
    while (!subscription.isOver) {
      if (!(await receiver.drained())) {
        unsubscribe(sessionKey, receiver);
        return;
      }
      const { waiting, isInLog } = subscription;
      subscription.waiting = [];
      subscription.waitingLength = 0;
      subscription.isInLog = false;
      if (isInLog) noteSent(subscription, await replay(sessionKey, subscribed, subscription.sentUpTo));
      else if (waiting.length === 0) {
        // Reset without an await after the check, so that the next published update is sent directly.
        subscription.feeding = undefined;
        return;
      }
      for (const { seq, text } of waiting) {
        if (isGap(sessionKey, subscription, seq))
          noteSent(subscription, await replay(sessionKey, subscribed, subscription.sentUpTo));
        if (subscription.isOver || seq <= subscription.sentUpTo) continue;
        // Its bridge was lost before it had stored this. What that one was storing may still appear, and what lies between
        // as well: with this one sent, nobody would look for that.
        if (isGap(sessionKey, subscription, seq)) {
          subscription.isInLog = true;
          break;
        }
        deliver(receiver, text, seq);
        noteSent(subscription, seq);
        if (receiver.isBehind() && !(await receiver.drained())) break;
      }
    }
  }

  function beginGrace(subscription: Subscription): void {
    const { promise, resolve } = Promise.withResolvers<void>();
    const stopTimer = clock.after(GRACE_MS, end);
    function end(): void {
      stopTimer();
      subscription.grace = undefined;
      resolve();
    }
    subscription.grace = promise;
    subscription.feeding?.then(end, end);
  }

  return {
    publish(sessionKey, seq, text) {
      const receivers = bySession.get(sessionKey);
      if (receivers === undefined) return;
      let params: RawJson | undefined;
      for (const subscription of receivers.values()) {
        const { receiver } = subscription;
        if (seq <= subscription.sentUpTo) continue;
        if (subscription.feeding !== undefined) {
          wait(subscription, seq, text);
          continue;
        }
        if (isGap(sessionKey, subscription, seq)) {
          feedFromLog(sessionKey, subscription);
          continue;
        }
        if (receiver.stored === undefined) {
          if (isHiddenFrom(receiver, text)) {
            subscription.sentUpTo = seq;
            continue;
          }
          params ??= rawJson(wireText(text));
          receiver.update(params, seq);
        } else {
          receiver.stored(text, undefined, seq);
        }
        subscription.sentUpTo = seq;
        if (!receiver.isBehind()) continue;
        feed(sessionKey, subscription).catch(() => receiver.lost());
        beginGrace(subscription);
      }
    },
    subscribe(sessionKey, receiver, afterSeq) {
      const subscription = add(sessionKey, receiver);
      if (afterSeq === undefined) return;
      subscription.sentUpTo = Math.max(subscription.sentUpTo, afterSeq);
      subscription.hasPast = true;
    },
    unsubscribe,
    async subscribeAfter(sessionKey, receiver, afterSeq) {
      const subscription = add(sessionKey, receiver);
      subscription.hasPast = true;
      // The same connection asked for it twice: the first replay continues.
      if (subscription.feeding === undefined) {
        subscription.sentUpTo = afterSeq;
        subscription.isInLog = true;
      }
      await feed(sessionKey, subscription);
    },
    sentUpTo(sessionKey, receiver) {
      const subscription = bySession.get(sessionKey)?.get(receiver);
      return subscription?.hasPast === true ? subscription.sentUpTo : undefined;
    },
    async reached(sessionKey, receiver, seq) {
      const subscription = bySession.get(sessionKey)?.get(receiver);
      if (subscription?.feeding === undefined || subscription.sentUpTo >= seq) return;
      const { promise, resolve } = Promise.withResolvers<void>();
      subscription.whenReached.push({ seq, resolve });
      await Promise.race([promise, subscription.feeding]);
    },
    room(sessionKey) {
      for (const { grace } of bySession.get(sessionKey)?.values() ?? []) if (grace !== undefined) return grace;
      return undefined;
    },
    catchUp(sessionKey, upTo = Number.POSITIVE_INFINITY) {
      for (const subscription of bySession.get(sessionKey)?.values() ?? []) {
        if (subscription.hasPast && subscription.sentUpTo < upTo) feedFromLog(sessionKey, subscription);
      }
    },
    keepWhole(sessionKey, isOn) {
      if (isOn) whole.add(sessionKey);
      else whole.delete(sessionKey);
    },
    usedElsewhere(sessionKey, upTo) {
      if (bySession.has(sessionKey)) elsewhere.set(sessionKey, upTo);
    },
    isFollowed: (sessionKey) => bySession.has(sessionKey),
    gets(sessionKey, receiver, seq) {
      const subscription = bySession.get(sessionKey)?.get(receiver);
      if (subscription === undefined) return true;
      if (seq <= subscription.sentUpTo) return false;
      noteSent(subscription, seq);
      return true;
    },
    followed: () => [...bySession.keys()],
    close(sessionKey) {
      for (const { hasPast, receiver } of [...(bySession.get(sessionKey)?.values() ?? [])]) {
        if (!hasPast && receiver.isInstance !== true) unsubscribe(sessionKey, receiver);
      }
    },
    end(sessionKey) {
      const subscriptions = [...(bySession.get(sessionKey)?.values() ?? [])];
      const receivers = new Map(subscriptions.map(({ receiver, sentUpTo }) => [receiver, sentUpTo]));
      for (const receiver of receivers.keys()) {
        unsubscribe(sessionKey, receiver);
        // Its clients wait for the next session of that name, and may use it before that instance looks again.
        if (receiver.isInstance === true) receiver.lost();
      }
      for (const listener of endListeners) listener(sessionKey, receivers);
    },
    onEnd: (listener) => void endListeners.push(listener),
    forget(receiver) {
      for (const sessionKey of byReceiver.get(receiver) ?? []) unsubscribe(sessionKey, receiver);
    },
  };
}

/** Gives a receiver one update in the form that it takes. */
export function deliver(receiver: NotificationSink, text: string, seq: number, at?: number): void {
  if (receiver.stored !== undefined) receiver.stored(text, at, seq);
  else if (!isHiddenFrom(receiver, text)) receiver.update(rawJson(wireText(text)), seq);
}

function isHiddenFrom({ takesQuestions = false }: NotificationSink, text: string): boolean {
  return !takesQuestions && isQuestion(text);
}

const TURN_MEMBER = '"turnId":"';

/** The receiver for the updates of one turn. Every update begins with its names, and no text can look like one of them. */
export function ofTurn(receiver: NotificationSink, turnId: string): NotificationSink {
  return {
    ...receiver,
    update(params, seq) {
      const { text } = params;
      if (text.startsWith(`${turnId}"`, text.indexOf(TURN_MEMBER) + TURN_MEMBER.length)) receiver.update(params, seq);
    },
  };
}

/**
 * The receiver of a subscription: what is read for it while the subscription ends is not sent any more, and what was sent counts from
 * that moment. It may have a subscription to the same session by another way then.
 */
function whileSubscribed(subscription: Subscription): NotificationSink {
  const { receiver } = subscription;
  const send = (seq: number, action: () => void): void => {
    if (subscription.isOver) return;
    action();
    noteSent(subscription, seq);
  };
  return {
    ...receiver,
    update: (params, seq) => send(seq, () => receiver.update(params, seq)),
    ...(receiver.stored !== undefined && {
      stored: (text: string, at: number | undefined, seq: number) => send(seq, () => receiver.stored?.(text, at, seq)),
    }),
  };
}

function noteSent(subscription: Subscription, seq: number): void {
  const { whenReached } = subscription;
  subscription.sentUpTo = seq;
  while (whenReached[0] !== undefined && whenReached[0].seq <= seq) whenReached.shift()?.resolve();
}

function wait(subscription: Subscription, seq: number, text: string): void {
  if (subscription.isInLog) return;
  subscription.waiting.push({ seq, text });
  subscription.waitingLength += text.length;
  if (subscription.waiting.length <= MAX_WAITING && subscription.waitingLength <= MAX_WAITING_LENGTH) return;
  subscription.waiting = [];
  subscription.waitingLength = 0;
  subscription.isInLog = true;
}
