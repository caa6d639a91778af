import { clientError } from './trestle-error.ts';

/** What any call may be given. */
export interface CallOptions {
  /** Ends the waiting. A turn goes on at the bridge all the same: `cancel` stops it. */
  readonly signal?: AbortSignal;
  /** How long the answer may take; 30 s for calls, no limit for turns, unless given. */
  readonly timeoutMs?: number;
}

/** When to stop waiting. */
export interface CallLimits {
  /** Its reason is the error to end with. */
  readonly signal: AbortSignal;
  release(): void;
}

/** The waiting is over when the caller gives up, the time is over or the client is closed. */
export function createCallLimits({ signal, timeoutMs }: CallOptions, closed: AbortSignal): CallLimits {
  const stop = new AbortController();
  const onAbort = () => stop.abort(clientError('ABORTED', 'The call was aborted.', { cause: signal?.reason }));
  const onClose = () => stop.abort(clientError('CLIENT_CLOSED', 'The client was closed.'));
  const onTimeout = () => stop.abort(clientError('TIMEOUT', `There was no answer within ${timeoutMs} ms.`));
  const timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, timeoutMs);
  signal?.addEventListener('abort', onAbort);
  closed.addEventListener('abort', onClose);
  if (closed.aborted) onClose();
  if (signal?.aborted) onAbort();
  return {
    signal: stop.signal,
    release() {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
      closed.removeEventListener('abort', onClose);
    },
  };
}

/** Whatever is thrown once the waiting is over, the error says why it is. */
export async function withinLimits<Result>(
  options: CallOptions,
  closed: AbortSignal,
  run: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const { signal, release } = createCallLimits(options, closed);
  try {
    signal.throwIfAborted();
    return await run(signal);
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  } finally {
    release();
  }
}
