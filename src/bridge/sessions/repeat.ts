import type { Clock } from '../../platform/clock/clock.ts';

/** Work that comes back again and again until it is stopped. */
export interface Repeated {
  /** Resolves when the work under way has ended. */
  stop(): Promise<void>;
}

export interface RepeatOptions {
  readonly clock: Pick<Clock, 'after'>;
  /** From the end of one time to the beginning of the next. */
  readonly pauseMs: number;
  /** Ends soon after `signal` aborts. */
  work(signal: AbortSignal): Promise<void>;
  onError(error: unknown): void;
}

export function repeat({ clock, pauseMs, work, onError }: RepeatOptions): Repeated {
  const stopped = new AbortController();
  let cancel = () => {};
  let underWay = Promise.resolve();
  const again = (): void => {
    cancel = clock.after(pauseMs, () => {
      underWay = work(stopped.signal)
        .catch(onError)
        .then(() => {
          if (!stopped.signal.aborted) again();
        });
    });
  };
  again();
  return {
    stop() {
      stopped.abort();
      cancel();
      return underWay;
    },
  };
}
