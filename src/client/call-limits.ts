import { clientError } from './trestle-error.ts';

/** What any call may be given. */
export interface CallOptions {
  /** Ends the waiting. A turn goes on at the bridge all the same: `cancel` stops it. */
  readonly signal?: AbortSignal;
  /** How long the answer may take; 30 s for calls, no limit for turns, unless given. */
  readonly timeoutMs?: number;
}

/**
 * Runs something that stops when the caller gives up, the time is over or the client is closed. Whatever it throws
 * then, the error says which of them it was.
 */
export async function withinLimits<Result>(
  { signal, timeoutMs }: CallOptions,
  closed: AbortSignal,
  run: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const stop = new AbortController();
  const stopWith = (error: Error) => () => stop.abort(error);
  const onAbort = stopWith(clientError('ABORTED', 'The call was aborted.', { cause: signal?.reason }));
  const onClose = stopWith(clientError('CLIENT_CLOSED', 'The client was closed.'));
  const onTimeout = stopWith(clientError('TIMEOUT', `There was no answer within ${timeoutMs} ms.`));
  const timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, timeoutMs);
  signal?.addEventListener('abort', onAbort);
  closed.addEventListener('abort', onClose);
  try {
    if (closed.aborted) onClose();
    if (signal?.aborted) onAbort();
    stop.signal.throwIfAborted();
    return await run(stop.signal);
  } catch (error) {
    throw stop.signal.aborted ? stop.signal.reason : error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', onAbort);
    closed.removeEventListener('abort', onClose);
  }
}
