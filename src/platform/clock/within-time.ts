import type { Clock } from './clock.ts';

/** What `work` gives, or what `late` gives (or throws) when that takes longer than `ms`. Late work is not stopped. */
export async function withinTime<T, Late>(
  clock: Pick<Clock, 'after'>,
  ms: number,
  work: Promise<T>,
  late: () => Late,
): Promise<T | Late> {
  const { promise: timeUp, resolve } = Promise.withResolvers<typeof TIME_UP>();
  const cancel = clock.after(ms, () => resolve(TIME_UP));
  try {
    const first = await Promise.race([work, timeUp]);
    return first === TIME_UP ? late() : (first as T);
  } finally {
    cancel();
  }
}

const TIME_UP = Symbol('time up');
