/** The same items, until the signal aborts: then it throws at once, also while the source is silent, and lets go of it. */
export async function* untilAborted<Item>(source: AsyncIterable<Item>, signal: AbortSignal): AsyncGenerator<Item> {
  const iterator = source[Symbol.asyncIterator]();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  aborted.catch(() => undefined);
  const onAbort = (): void => reject(signal.reason);
  signal.addEventListener('abort', onAbort);
  let isOver = false;
  try {
    signal.throwIfAborted();
    for (;;) {
      const next = iterator.next();
      // A source that fails after nobody waits for it any more is of no interest.
      next.catch(() => undefined);
      const step = await Promise.race([next, aborted]);
      if (step.done === true) {
        isOver = true;
        return;
      }
      yield step.value;
    }
  } finally {
    signal.removeEventListener('abort', onAbort);
    // Not waited for: a source that hangs would hold us too.
    if (!isOver) void Promise.resolve(iterator.return?.()).catch(() => undefined);
  }
}
