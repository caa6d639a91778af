import type { ServerResponse } from 'node:http';

/** Whether somebody still waits for the answer. One listener at a time: what is under way now. */
export interface CallerPresence {
  readonly gone: boolean;
  /** Called at once when the caller is gone already. */
  watch(listener: () => void): void;
  leave(): void;
}

export function createCallerPresence(): CallerPresence {
  let gone = false;
  let listener: (() => void) | undefined;
  return {
    get gone() {
      return gone;
    },
    watch(next) {
      listener = next;
      if (gone) next();
    },
    leave() {
      if (gone) return;
      gone = true;
      listener?.();
    },
  };
}

/** The caller of an HTTP request leaves when its connection closes. */
export function watchCaller(response: ServerResponse): CallerPresence {
  const presence = createCallerPresence();
  if (response.destroyed) presence.leave();
  else response.once('close', presence.leave);
  return presence;
}
