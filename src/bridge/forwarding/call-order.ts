/** Lets calls about one thing go out one after the other, as they came. */
export interface CallOrder {
  /** `work` runs when the calls before it have ended, or have said by `letNext` that the next one may follow. */
  run<Result>(name: string, work: (letNext: () => void) => Promise<Result>): Promise<Result>;
}

/**
 * Each forwarded call has a connection of its own, on which it could overtake the one before it: a message on the heels of
 * a start would not find its session.
 */
export function createCallOrder(): CallOrder {
  const last = new Map<string, Promise<void>>();
  return {
    async run(name, work) {
      const before = last.get(name);
      const { promise, resolve } = Promise.withResolvers<void>();
      last.set(name, promise);
      const letNext = (): void => {
        resolve();
        if (last.get(name) === promise) last.delete(name);
      };
      try {
        await before;
        return await work(letNext);
      } finally {
        letNext();
      }
    },
  };
}
