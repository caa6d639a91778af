import type { OpenLink } from './open-link.ts';
import { createPatience } from './patience.ts';
import type { SessionUpdate } from './session-update.ts';
import type { SocketLink } from './socket-link.ts';
import { createUpdateQueue } from './update-queue.ts';

export interface FollowOptions {
  readonly sessionId: string;
  /** The last update that was seen; 0 to see all. */
  readonly afterSeq: number;
  readonly openLink: OpenLink;
  readonly reconnectMs: number;
  readonly maxWaitingUpdates: number;
  readonly signal: AbortSignal;
}

/** All updates of a session, whoever's turns they are, each once and in order, over however many connections. */
export async function* followSession(options: FollowOptions): AsyncGenerator<SessionUpdate> {
  const { sessionId, openLink, maxWaitingUpdates, signal } = options;
  const patience = createPatience(options.reconnectMs, signal);
  let last = options.afterSeq;
  for (;;) {
    signal.throwIfAborted();
    const queue = createUpdateQueue(maxWaitingUpdates);
    const query = new URLSearchParams({ sessionId, afterSeq: String(last) });
    let link: SocketLink | undefined;
    let isFull = false;
    try {
      link = await openLink(query.toString(), (update) => {
        if (update.sessionId !== sessionId || update.seq <= last || isFull) return;
        isFull = queue.size() >= maxWaitingUpdates;
        // The reader is slow: what does not fit is asked for again when it has caught up.
        if (isFull) return link?.close();
        last = update.seq;
        queue.push(update);
      });
    } catch (error) {
      await patience.failed(error);
      continue;
    }
    patience.progressed();
    const { close, closed } = link;
    signal.addEventListener('abort', close, { once: true });
    if (signal.aborted || isFull) close();
    void closed.then(() => queue.end());
    try {
      yield* queue.read();
    } finally {
      signal.removeEventListener('abort', close);
      close();
    }
  }
}
