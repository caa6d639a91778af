import { rawJson } from '../../platform/json-rpc/envelope.ts';
import type { BridgeCaller } from '../access.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import type { UpdateReceiver } from '../sessions/update-hub.ts';
import type { ForwardCandidate } from './decide-forward.ts';
import type { FollowPeer } from './follow-peer.ts';
import { seqOf, type UpdateRelay } from './update-relay.ts';

/** Connections that are clients of a session, wherever it lives. */
export interface SessionFollowing {
  /** `lost` is called when the session's node can no longer be followed: the client had better come again. */
  follow(
    caller: BridgeCaller,
    sessionId: string,
    afterSeq: number | undefined,
    receiver: UpdateReceiver,
    lost: () => void,
  ): Promise<void>;
  /** The connection is gone. */
  forget(receiver: UpdateReceiver): void;
}

/** Where a session lives, when that is not here. */
export interface FollowedPlace {
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
  const following = new Map<UpdateReceiver, (() => void)[]>();
  const gone = new WeakSet<UpdateReceiver>();

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
