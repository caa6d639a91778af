import { sees } from '../principal.ts';
import type { LiveSession } from './live-session.ts';
import type { UpdateReceiver } from './update-hub.ts';

/** A connection that wants a session which, as far as it is known, is not there. */
interface EarlyFollower {
  readonly principal: string;
  readonly sessionId: string;
  /** The session has started meanwhile: the connection is its client since before its first update. */
  isAdmitted: boolean;
}

/**
 * Who follows a session before it starts: an app that submits a job gets its answer before the job's session begins.
 * There is one entry for each connection, until it goes.
 */
export interface EarlyFollowers {
  add(principal: string, sessionId: string, receiver: UpdateReceiver): void;
  /** Whether it still waits. False when its session has started, or the connection has gone. */
  isWaiting(receiver: UpdateReceiver): boolean;
  /** Those who become clients of a session that starts. */
  admit(session: Pick<LiveSession, 'id' | 'owner'>): readonly UpdateReceiver[];
  remove(receiver: UpdateReceiver): void;
}

export function createEarlyFollowers(): EarlyFollowers {
  const byReceiver = new Map<UpdateReceiver, EarlyFollower>();
  const bySession = new Map<string, Set<UpdateReceiver>>();

  function remove(receiver: UpdateReceiver): void {
    const { sessionId = '' } = byReceiver.get(receiver) ?? {};
    byReceiver.delete(receiver);
    const receivers = bySession.get(sessionId);
    if (receivers?.delete(receiver) && receivers.size === 0) bySession.delete(sessionId);
  }

  return {
    add(principal, sessionId, receiver) {
      remove(receiver);
      byReceiver.set(receiver, { principal, sessionId, isAdmitted: false });
      const receivers = bySession.get(sessionId) ?? new Set<UpdateReceiver>();
      bySession.set(sessionId, receivers.add(receiver));
    },
    isWaiting: (receiver) => byReceiver.get(receiver)?.isAdmitted === false,
    admit({ id, owner }) {
      const admitted: UpdateReceiver[] = [];
      for (const receiver of bySession.get(id) ?? []) {
        const follower = byReceiver.get(receiver);
        if (follower === undefined || !sees(follower.principal, owner)) continue;
        follower.isAdmitted = true;
        admitted.push(receiver);
      }
      return admitted;
    },
    remove,
  };
}
