import { PATIENCE_MS, timeLimit } from './time.ts';

/** What the promise gives; when it does not settle in time, the test fails and says what it waited for. */
export async function inTime<Result>(what: string, promise: Promise<Result>, timeoutMs = PATIENCE_MS): Promise<Result> {
  const { promise: never, reject } = Promise.withResolvers<never>();
  const limitMs = Math.round(timeLimit(timeoutMs));
  const timer = setTimeout(() => reject(new Error(`waited ${limitMs} ms in vain: ${what}`)), limitMs);
  try {
    return await Promise.race([promise, never]);
  } finally {
    clearTimeout(timer);
  }
}
