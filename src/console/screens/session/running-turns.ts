import { useSyncExternalStore } from 'react';
import type { Turn } from '../../../client/trestle-client.ts';

/** How long a refusal of a message is waited for. A turn that was taken is followed by the updates of its session. */
const TAKEN_MS = 1500;
/** How long a session is waited for. Its page would be empty before, and agents may take their time to start. */
export const STARTED_MS = 30_000;

/** With these, a turn that has begun is taken back: nothing of it was stored, or nobody knows. */
const NOT_STORED: ReadonlySet<string> = new Set(['STORAGE_FULL', 'STORAGE_UNAVAILABLE']);
const codeOf = (error: unknown) => (error as { readonly code?: string }).code ?? '';

type FailureListener = (error: unknown) => void;

interface RememberOptions {
  readonly waitMs?: number;
  /** Called when the turn was never taken, or taken back, however late that is. */
  readonly onRefused?: () => void;
}

/** By the key of a session, who wants to know of a turn that failed. */
const listeners = new Map<string, Set<FailureListener>>();

/** By the key of a session, how many turns were sent and not taken yet. */
const untaken = new Map<string, number>();
const untakenListeners = new Set<() => void>();

function countUntaken(key: string, change: 1 | -1): void {
  const count = (untaken.get(key) ?? 0) + change;
  if (count === 0) untaken.delete(key);
  else untaken.set(key, count);
  for (const listener of untakenListeners) listener();
}

/** Whether something that was sent to this session waits to be taken by the server. */
export function useIsUntaken(key: string): boolean {
  return useSyncExternalStore(
    (listener) => {
      untakenListeners.add(listener);
      return () => untakenListeners.delete(listener);
    },
    () => untaken.has(key),
  );
}

/**
 * Resolves when the turn was taken: with its first update, or when no refusal has come for a moment. Rejects with a refusal.
 * The turn itself goes on at the server; a failure that comes later reaches the listeners of the session.
 */
export async function rememberTurn(
  key: string,
  turn: Turn,
  { waitMs = TAKEN_MS, onRefused }: RememberOptions = {},
): Promise<void> {
  let hasBegun = false;
  countUntaken(key, 1);
  const refused = turn.result.then(throwUnavailable).then(
    () => undefined,
    (error: unknown) => {
      // After the caller has gone on: it takes the message out of its field when the turn begins.
      if (onRefused !== undefined && (!hasBegun || NOT_STORED.has(codeOf(error)))) setTimeout(onRefused, 0);
      for (const listener of listeners.get(key) ?? []) listener(error);
      throw error;
    },
  );
  const taken = () => countUntaken(key, -1);
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
  Promise.race([refused, began]).then(taken, taken);
  await Promise.race([refused, began, new Promise((resolve) => setTimeout(resolve, waitMs))]);
  refused.catch(() => undefined);
}

/** A turn whose agent cannot be used is a result for callers, and a refusal on a page: nothing of it is stored. */
function throwUnavailable({ status, code, error }: Awaited<Turn['result']>): void {
  if (status === 'unavailable') throw Object.assign(new Error(error), { code });
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
