export interface JoinedSignal {
  readonly signal: AbortSignal;
  /** When the work that the signal was for is over. */
  release(): void;
}

/**
 * A signal that is aborted with the first of the given ones. `AbortSignal.any` does the same, but what still listens to its
 * result is kept for as long as the given ones live: with one that lives as long as the program, for ever.
 */
export function joinSignals(...signals: readonly AbortSignal[]): JoinedSignal {
  const joined = new AbortController();
  const onAbort = (): void => joined.abort(signals.find(({ aborted }) => aborted)?.reason);
  for (const signal of signals) signal.addEventListener('abort', onAbort, { once: true });
  if (signals.some(({ aborted }) => aborted)) onAbort();
  return {
    signal: joined.signal,
    release() {
      for (const signal of signals) signal.removeEventListener('abort', onAbort);
    },
  };
}
