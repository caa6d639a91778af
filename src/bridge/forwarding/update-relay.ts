import type { LookupFunction, Socket } from 'node:net';
import type { Clock } from '../../platform/clock/clock.ts';
import { rawJson } from '../../platform/json-rpc/envelope.ts';
import type { BridgeCaller } from '../access.ts';
import { readMessage } from '../agents/post-for-events.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import type { NotificationSink } from '../sessions/update-hub.ts';
import type { ForwardCandidate } from './decide-forward.ts';
import { createPeerConnector } from './endpoints.ts';
import type { CallName } from './session-routes.ts';

/** Passes on the updates of one session that arrive for one connection in several responses: each once, in order. */
export interface UpdateRelay {
  open(receiver: object, sessionName: string): RelayedUpdates;
}

/** The updates of one response. */
interface RelayedUpdates {
  take(seq: number, send: () => void): void;
  /** Undefined while there is room; otherwise resolves when the updates that wait for another response were passed on. */
  room(): Promise<void> | undefined;
  /** Resolves when all updates of this response were passed on, by this or another one. */
  end(): Promise<void>;
}

interface OpenAnswer {
  readonly waiting: { readonly seq: number; readonly send: () => void }[];
  /** Set when the response has ended, and its updates wait to be passed on. */
  whenPassed: (() => void) | undefined;
}

interface SharedSession {
  lastSeq: number;
  /** In the order of their calls: the first one leads, the others wait for it. */
  answers: OpenAnswer[];
  /** Set while a response waits until an update is passed on. */
  progress: PromiseWithResolvers<void> | undefined;
}

/** When more updates than this wait, reading of the response pauses. */
const MAX_WAITING = 100;
/** A response that has waited this long takes over, because the leading one has stopped. */
const MAX_WAIT_MS = 1000;

/**
 * On one connection, a client may have several open calls about one session. Each response of the other node contains all
 * updates of the session since its call began; the client expects each of them once.
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

      /** Whether the first waiting update follows directly on the last one that was passed on. */
      const isNext = (): boolean => (own.waiting[0]?.seq ?? 0) <= session.lastSeq + 1;

      /** Pauses reading, to limit memory. Only time shows that the leading response has stopped, not the number of updates. */
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

/** Passes on the updates of the leading response; when that has ended, the next one leads. */
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

/** Returns the updates of the leading response, and earlier ones of other responses, such as `queued`. */
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

/** Connections that are clients of a session, wherever it lives. */
export interface SessionFollowing {
  /** `lost` is called when the session's node can no longer be followed: the client should reconnect. */
  follow(
    caller: BridgeCaller,
    sessionId: string,
    afterSeq: number | undefined,
    receiver: NotificationSink,
    lost: () => void,
  ): Promise<void>;
  /** The connection is gone. */
  forget(receiver: NotificationSink): void;
}

/** The other node that has a session. */
interface FollowedPlace {
  readonly candidate: ForwardCandidate;
  readonly owner: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface SessionFollowingParts {
  readonly sessions: Pick<SessionOrchestrator, 'follow' | 'forget'>;
  readonly followPeer: FollowPeer;
  readonly relay: UpdateRelay;
  /** Undefined for a session of this bridge, and for one that no node is known to have. */
  placeOf(caller: BridgeCaller, sessionId: string): Promise<FollowedPlace | undefined>;
  /** Calls the listener with the names of sessions and jobs that another node has received. */
  onPlaced(listener: (names: readonly CallName[]) => void): void;
}

export function createSessionFollowing(parts: SessionFollowingParts): SessionFollowing {
  const { sessions, followPeer, relay, placeOf } = parts;
  /** By connection, what ends the following of sessions elsewhere. */
  const following = new Map<NotificationSink, (() => void)[]>();
  const gone = new WeakSet<NotificationSink>();

  /** By session, the connections that followed it before its node was known. */
  const waiting = new Map<string, Map<NotificationSink, Follower>>();
  const waitsFor = new WeakMap<NotificationSink, string>();

  function wait(sessionId: string, follower: Follower): void {
    const followers = waiting.get(sessionId) ?? new Map<NotificationSink, Follower>();
    waiting.set(sessionId, followers.set(follower.receiver, follower));
    // A connection, and each session that a live socket follows, has a receiver of its own.
    waitsFor.set(follower.receiver, sessionId);
  }

  /** Whether the session lives on another node, and is followed there. */
  async function followElsewhere(sessionId: string, follower: Follower): Promise<boolean> {
    const { caller, afterSeq, receiver, lost } = follower;
    const place = await placeOf(caller, sessionId);
    if (gone.has(receiver)) return true;
    if (place === undefined) {
      wait(sessionId, follower);
      return false;
    }
    const shared = relay.open(receiver, `${place.owner}\n${sessionId}`);
    const stop = await followPeer({
      endpoint: place.candidate.nextHop.endpoint,
      headers: place.headers,
      sessionId,
      afterSeq,
      withQuestions: receiver.takesQuestions === true,
      update(params) {
        const seq = seqOf(params);
        if (seq !== undefined) shared.take(seq, () => receiver.update(rawJson(JSON.stringify(params)), seq));
      },
      async drained() {
        await shared.room();
        return receiver.drained();
      },
      ended() {
        void shared.end();
        if (!gone.has(receiver)) lost();
      },
    });
    if (gone.has(receiver)) stop();
    else following.set(receiver, [...(following.get(receiver) ?? []), stop]);
    return true;
  }

  parts.onPlaced((names) => {
    for (const { kind, name } of names) {
      const followers = kind === 'session' ? waiting.get(name) : undefined;
      waiting.delete(kind === 'session' ? name : '');
      for (const follower of followers?.values() ?? []) {
        // The session may have sent its first updates before this connection follows it.
        followElsewhere(name, { ...follower, afterSeq: follower.afterSeq ?? 0 }).catch(follower.lost);
      }
    }
  });

  return {
    async follow(caller, sessionId, afterSeq, receiver, lost) {
      const isElsewhere = await followElsewhere(sessionId, { caller, afterSeq, receiver, lost });
      if (!isElsewhere) await sessions.follow(caller.principal, sessionId, afterSeq, receiver);
    },
    forget(receiver) {
      gone.add(receiver);
      sessions.forget(receiver);
      for (const stop of following.get(receiver) ?? []) stop();
      following.delete(receiver);
      const sessionId = waitsFor.get(receiver) ?? '';
      const followers = waiting.get(sessionId);
      if (followers?.delete(receiver) && followers.size === 0) waiting.delete(sessionId);
    },
  };
}

interface Follower {
  readonly caller: BridgeCaller;
  readonly afterSeq: number | undefined;
  readonly receiver: NotificationSink;
  readonly lost: () => void;
}

/** Updates of a session that lives on another node. */
interface PeerUpdates {
  /** The endpoint of the node, without a final slash. */
  readonly endpoint: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly sessionId: string;
  /** Those after this one are sent first; undefined: only those to come. */
  readonly afterSeq: number | undefined;
  /** Also questions that wait for an answer. */
  readonly withQuestions: boolean;
  update(params: unknown): void;
  /** Resolves when more can be taken. */
  drained(): Promise<boolean>;
  /** Called once, when no more will come. */
  ended(): void;
}

/** Follows until it is over, or until the returned function is called. */
type FollowPeer = (updates: PeerUpdates) => Promise<() => void>;

interface FollowPeerOptions {
  readonly clock: Pick<Clock, 'after'>;
  readonly lookup?: LookupFunction | undefined;
  readonly connectMs: number;
  /** For the next message or ping: the other side pings every thirty seconds. */
  readonly idleMs: number;
}

const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;

/** `GET /acp?sessionId=` of another node, as a client of that session. */
export function createFollowPeer({ clock, lookup, connectMs, idleMs }: FollowPeerOptions): FollowPeer {
  return async (updates) => {
    const [{ WebSocket }, { buildConnector }] = await Promise.all([import('ws'), import('undici')]);
    const connect = createPeerConnector(buildConnector, {
      clock,
      lookup,
      connectMs,
      beforeSend: async () => undefined,
    });
    const { protocol, hostname, port } = new URL(updates.endpoint);
    const query = new URLSearchParams({
      sessionId: updates.sessionId,
      ...(updates.afterSeq !== undefined && { afterSeq: String(updates.afterSeq) }),
      ...(updates.withQuestions && { questions: 'true' }),
    });
    const socket = new WebSocket(`${updates.endpoint.replace(/^http/, 'ws')}/acp?${query}`, {
      headers: updates.headers,
      perMessageDeflate: false,
      followRedirects: false,
      handshakeTimeout: connectMs,
      maxPayload: MAX_MESSAGE_BYTES,
      // The connection is handed over when it is open, and only if its address is allowed.
      createConnection: ((_options: unknown, made: (error: Error | null, socket?: Socket) => void) => {
        const host = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
        connect({ protocol, hostname: host, host, port }, (error, connected) =>
          error === null ? made(null, connected) : made(error),
        );
      }) as never,
    });
    let stopTimer = clock.after(idleMs, () => socket.terminate());
    const alive = (): void => {
      stopTimer();
      stopTimer = clock.after(idleMs, () => socket.terminate());
    };
    socket.on('ping', alive);
    socket.on('open', alive);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      stopTimer();
      updates.ended();
    });
    socket.on('message', (data) => {
      alive();
      const message = readMessage(String(data));
      if (message?.method !== 'session.update') return;
      updates.update(message.params);
      socket.pause();
      void updates.drained().then(() => socket.resume());
    });
    return () => socket.close();
  };
}
