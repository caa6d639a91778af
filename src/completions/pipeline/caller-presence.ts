import type { ServerResponse } from 'node:http';
import { AppError } from '../../platform/errors/app-error.ts';

/**
 * Whether somebody still waits for the answer. One listener at a time: what is under way now. A class, because there is
 * one for each call.
 */
export class CallerPresence {
  gone = false;
  /** Why the call was ended although the caller still waits; undefined when the caller has left. */
  reason: AppError | undefined = undefined;
  #listener: (() => void) | undefined = undefined;

  /** Called at once when the caller is gone already. */
  watch(listener: () => void): void {
    this.#listener = listener;
    if (this.gone) listener();
  }

  /** With a reason, the caller still waits and gets the reason as the answer. */
  leave(reason?: AppError): void {
    if (this.gone) return;
    this.gone = true;
    this.reason = reason;
    this.#listener?.();
  }

  /** What a call that nobody waits for, or that was ended, fails with. */
  failure(): AppError {
    return this.reason ?? new AppError('CALL_CANCELLED');
  }
}

/** The caller of an HTTP request leaves when its connection closes. */
export function watchCaller(response: ServerResponse): CallerPresence {
  const presence = new CallerPresence();
  if (response.destroyed) presence.leave();
  else response.once('close', () => presence.leave());
  return presence;
}
