import type { LookupFunction, Socket } from 'node:net';
import type { Clock } from '../../platform/clock/clock.ts';
import { rawJson } from '../../platform/json-rpc/envelope.ts';
import type { BridgeCaller } from '../access.ts';
import { readMessage } from '../call-bridge.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import type { NotificationSink } from '../sessions/update-hub.ts';
import type { ForwardCandidate } from './decide-forward.ts';
import { createPeerConnector } from './endpoints.ts';
import { seqOf, type UpdateRelay } from './update-relay.ts';

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

/** Where a session lives, when that is not here. */
interface FollowedPlace {
  readonly candidate: ForwardCandidate;
  readonly owner: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface SessionFollowingParts {
  readonly sessions: Pick<SessionOrchestrator, 'follow' | 'forget'>;
  readonly followPeer: FollowPeer;
  readonly relay: UpdateRelay;
  /** Undefined for a session that lives here, or nowhere. */
  placeOf(caller: BridgeCaller, sessionId: string): Promise<FollowedPlace | undefined>;
}

export function createSessionFollowing(parts: SessionFollowingParts): SessionFollowing {
  const { sessions, followPeer, relay, placeOf } = parts;
  /** By connection, what ends the following of sessions elsewhere. */
  const following = new Map<NotificationSink, (() => void)[]>();
  const gone = new WeakSet<NotificationSink>();

  return {
    async follow(caller, sessionId, afterSeq, receiver, lost) {
      const place = await placeOf(caller, sessionId);
      if (gone.has(receiver)) return;
      if (place === undefined) {
        await sessions.follow(caller.principal, sessionId, afterSeq, receiver);
        return;
      }
      const shared = relay.open(receiver, `${place.owner}\n${sessionId}`);
      const stop = await followPeer({
        endpoint: place.candidate.nextHop.endpoint,
        headers: place.headers,
        sessionId,
        afterSeq,
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
    },
    forget(receiver) {
      gone.add(receiver);
      sessions.forget(receiver);
      for (const stop of following.get(receiver) ?? []) stop();
      following.delete(receiver);
    },
  };
}

/** Updates of a session that lives on another node. */
interface PeerUpdates {
  /** The endpoint of the node, without a final slash. */
  readonly endpoint: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly sessionId: string;
  /** Those after this one are sent first; undefined: only those to come. */
  readonly afterSeq: number | undefined;
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

/** `GET /acp?sessionId=` of another node, as a client of that session (contract/bridge 1, Resume). */
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
    });
    const socket = new WebSocket(`${updates.endpoint.replace(/^http/, 'ws')}/acp?${query}`, {
      headers: updates.headers,
      perMessageDeflate: false,
      followRedirects: false,
      handshakeTimeout: connectMs,
      maxPayload: MAX_MESSAGE_BYTES,
      // Given the connection when it stands, and only when its address is one that may be used.
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
