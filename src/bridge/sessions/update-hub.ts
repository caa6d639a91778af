import { type RawJson, rawJson } from '../../platform/json-rpc/raw-json.ts';

/** A connection that gets updates. */
export interface UpdateReceiver {
  update(params: RawJson, seq: number): void;
  /** Resolves when the connection can take more; with false when it is gone. */
  drained(): Promise<boolean>;
}

/** Who gets the updates of which session. It knows nothing of what is stored. */
export interface UpdateHub {
  publish(sessionKey: string, seq: number, text: string): void;
  /** Does nothing when the receiver is subscribed already. */
  subscribe(sessionKey: string, receiver: UpdateReceiver): void;
  unsubscribe(sessionKey: string, receiver: UpdateReceiver): void;
  /**
   * Subscribes with a past: `replay` sends what came after a number, in order, and answers with the number of the last
   * update it sent. What is published meanwhile follows then.
   */
  subscribeAfter(
    sessionKey: string,
    receiver: UpdateReceiver,
    afterSeq: number,
    replay: (afterSeq: number) => Promise<number>,
  ): Promise<void>;
  /** The session is over: nobody is its client any more. */
  end(sessionKey: string): void;
  /** The connection is gone. */
  forget(receiver: UpdateReceiver): void;
}

interface Subscription {
  /** What came while the past is being replayed. */
  waiting: { readonly seq: number; readonly params: RawJson }[] | undefined;
  /** More came than may wait: it is in the log, and is replayed as well. */
  hasOverflowed: boolean;
  /** What the replay has sent already: the last update of a turn is stored before it is published. */
  sentUpTo: number;
}

const MOST_WAITING = 1000;
/** A connection that has used more sessions than this gets no more updates of the one it used first. */
const SESSIONS_PER_RECEIVER = 10_000;

export function createUpdateHub(): UpdateHub {
  const bySession = new Map<string, Map<UpdateReceiver, Subscription>>();
  const byReceiver = new Map<UpdateReceiver, Set<string>>();

  function add(sessionKey: string, receiver: UpdateReceiver): Subscription {
    const receivers = bySession.get(sessionKey) ?? new Map<UpdateReceiver, Subscription>();
    bySession.set(sessionKey, receivers);
    const known = receivers.get(receiver);
    if (known !== undefined) return known;
    const subscription: Subscription = { waiting: undefined, hasOverflowed: false, sentUpTo: 0 };
    receivers.set(receiver, subscription);
    const sessions = byReceiver.get(receiver) ?? new Set<string>();
    byReceiver.set(receiver, sessions);
    sessions.add(sessionKey);
    const [first] = sessions;
    if (sessions.size > SESSIONS_PER_RECEIVER && first !== undefined) unsubscribe(first, receiver);
    return subscription;
  }

  function unsubscribe(sessionKey: string, receiver: UpdateReceiver): void {
    const receivers = bySession.get(sessionKey);
    if (receivers?.delete(receiver) && receivers.size === 0) bySession.delete(sessionKey);
    const sessions = byReceiver.get(receiver);
    if (sessions?.delete(sessionKey) && sessions.size === 0) byReceiver.delete(receiver);
  }

  return {
    publish(sessionKey, seq, text) {
      const receivers = bySession.get(sessionKey);
      if (receivers === undefined) return;
      const params = rawJson(text);
      for (const [receiver, subscription] of receivers) {
        if (seq <= subscription.sentUpTo) continue;
        if (subscription.waiting === undefined) receiver.update(params, seq);
        else wait(subscription, seq, params);
      }
    },
    subscribe: (sessionKey, receiver) => void add(sessionKey, receiver),
    unsubscribe,
    async subscribeAfter(sessionKey, receiver, afterSeq, replay) {
      const subscription = add(sessionKey, receiver);
      // The same connection asked for it twice: the first replay goes on.
      if (subscription.waiting !== undefined) return;
      let lastSent = afterSeq;
      try {
        do {
          subscription.waiting = [];
          subscription.hasOverflowed = false;
          lastSent = await replay(lastSent);
        } while (subscription.hasOverflowed);
      } catch (error) {
        unsubscribe(sessionKey, receiver);
        throw error;
      }
      const { waiting } = subscription;
      subscription.waiting = undefined;
      subscription.sentUpTo = lastSent;
      for (const { seq, params } of waiting) if (seq > lastSent) receiver.update(params, seq);
    },
    end(sessionKey) {
      for (const receiver of bySession.get(sessionKey)?.keys() ?? []) unsubscribe(sessionKey, receiver);
    },
    forget(receiver) {
      for (const sessionKey of byReceiver.get(receiver) ?? []) unsubscribe(sessionKey, receiver);
    },
  };
}

function wait(subscription: Subscription, seq: number, params: RawJson): void {
  const { waiting } = subscription;
  if (waiting === undefined || subscription.hasOverflowed) return;
  waiting.push({ seq, params });
  if (waiting.length <= MOST_WAITING) return;
  waiting.length = 0;
  subscription.hasOverflowed = true;
}
