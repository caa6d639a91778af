import { type SqliteThread, startSqliteThread } from './sqlite-thread.ts';

/** A claim on a thread that all databases of the process share. */
export interface ThreadClaim {
  readonly thread: SqliteThread;
  release(): Promise<void>;
}

interface Shared {
  readonly thread: SqliteThread;
  claims: number;
}

/**
 * `writer` commits for all files, so that the commits of one moment share a thread and not the event loop; `reader`
 * runs longer queries and starts when the first one comes. Each ends with its last claim.
 */
const threads = new Map<'writer' | 'reader', Shared>();

export function claimThread(role: 'writer' | 'reader'): ThreadClaim {
  const running = threads.get(role);
  // A thread that died stays dead for those who use it, but does not stand in the way of databases opened later.
  const shared = running?.thread.isAlive() ? running : { thread: startSqliteThread(), claims: 0 };
  threads.set(role, shared);
  shared.claims += 1;
  return {
    thread: shared.thread,
    async release() {
      shared.claims -= 1;
      if (shared.claims > 0) return;
      if (threads.get(role) === shared) threads.delete(role);
      await shared.thread.end();
    },
  };
}
