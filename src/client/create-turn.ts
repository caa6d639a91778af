import type { SessionResult } from '../bridge/contract/session.ts';
import type { SessionUpdate } from './session-update.ts';
import { createUpdateQueue } from './update-queue.ts';

/** A turn under way: read its updates, await its result, or both. */
export interface Turn extends AsyncIterable<SessionUpdate> {
  readonly result: Promise<SessionResult>;
}

/** `run` reports each update and gives the result. Reading ends with the result, or with the error. */
export function createTurn(
  run: (onUpdate: (update: SessionUpdate) => void) => Promise<SessionResult>,
  maxWaitingUpdates: number,
): Turn {
  const queue = createUpdateQueue(maxWaitingUpdates);
  const result = run(queue.push);
  // Whoever reads the updates gets the failure there, and may never look at the result.
  result.then(() => queue.end(), queue.end);
  return { result, [Symbol.asyncIterator]: queue.read };
}
