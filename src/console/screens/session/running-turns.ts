import type { Turn } from '../../../client/trestle-client.ts';

/** How long a refusal of a message is waited for. A turn that was taken is followed by the updates of its session. */
const TAKEN_MS = 1500;
/** How long a session is waited for. Its page would be empty before, and agents may take their time to start. */
export const STARTED_MS = 30_000;

/** Takes the failure of a turn, and whether the turn had begun: one that had not was never taken. */
type FailureListener = (error: unknown, hasBegun: boolean) => void;

/** By the key of a session, who wants to know of a turn that failed. */
const listeners = new Map<string, Set<FailureListener>>();

/**
 * Resolves when the turn was taken: with its first update, or when no refusal has come for a moment. Rejects with a refusal.
 * The turn itself goes on at the server; a failure that comes later reaches the listeners of the session.
 */
export async function rememberTurn(key: string, turn: Turn, patienceMs = TAKEN_MS): Promise<void> {
  let hasBegun = false;
  const refused = turn.result.then(
    () => undefined,
    (error: unknown) => {
      for (const listener of listeners.get(key) ?? []) listener(error, hasBegun);
      throw error;
    },
  );
  const iterator = turn[Symbol.asyncIterator]();
  const began = iterator.next().then(async ({ done }) => {
    hasBegun = done !== true;
    // The updates come over the live socket; here they are let go.
    void (async () => {
      try {
        while (!(await iterator.next()).done);
      } catch {
        // `result` has the reason.
      }
    })();
  });
  await Promise.race([refused, began, new Promise((resolve) => setTimeout(resolve, patienceMs))]);
  refused.catch(() => undefined);
}

/** Calls the listener when a turn of this session fails after it was sent. */
export function onTurnFailure(key: string, listener: FailureListener): () => void {
  const known = listeners.get(key) ?? new Set();
  listeners.set(key, known.add(listener));
  return () => {
    known.delete(listener);
    if (known.size === 0) listeners.delete(key);
  };
}
