import type { ServerResponse } from 'node:http';

/**
 * Whether somebody still waits for the answer. One listener at a time: what is under way now. A class, because there is
 * one for each call.
 */
export class CallerPresence {
  gone = false;
  #listener: (() => void) | undefined = undefined;

  /** Called at once when the caller is gone already. */
  watch(listener: () => void): void {
    this.#listener = listener;
    if (this.gone) listener();
  }

  leave(): void {
    if (this.gone) return;
    this.gone = true;
    this.#listener?.();
  }
}

/** The caller of an HTTP request leaves when its connection closes. */
export function watchCaller(response: ServerResponse): CallerPresence {
  const presence = new CallerPresence();
  if (response.destroyed) presence.leave();
  else response.once('close', () => presence.leave());
  return presence;
}
