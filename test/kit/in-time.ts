const PATIENCE_MS = 30_000;

/** What the promise gives; when it does not settle in time, the test fails and says what it waited for. */
export async function inTime<Result>(
  what: string,
  promise: Promise<Result>,
  patienceMs = PATIENCE_MS,
): Promise<Result> {
  const { promise: never, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`waited ${patienceMs} ms in vain: ${what}`)), patienceMs);
  try {
    return await Promise.race([promise, never]);
  } finally {
    clearTimeout(timer);
  }
}
