import type { Clock } from './clock.ts';

/** Resolves when the time has passed, or at once when `signal` aborts: whoever pauses looks at it then. */
export function pause(clock: Pick<Clock, 'after'>, ms: number, signal?: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const cancel = clock.after(ms, done);
  signal?.addEventListener('abort', done, { once: true });
  function done(): void {
    cancel();
    signal?.removeEventListener('abort', done);
    resolve();
  }
  if (signal?.aborted === true) done();
  return promise;
}
