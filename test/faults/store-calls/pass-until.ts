import type { FakeClock } from '../../kit/fake-clock.ts';
import { until } from '../../kit/until.ts';

const TRIES = 5;
const SOON_MS = 120;

/** Lets time pass until something has happened by itself, which is tried again after a while when it has failed. */
export async function passUntil(
  clock: FakeClock,
  ms: number,
  what: string,
  isDone: () => Promise<boolean>,
): Promise<void> {
  for (let tries = 0; tries < TRIES; tries += 1) {
    await clock.advance(ms);
    if (await until(what, isDone, SOON_MS).catch(() => false)) return;
  }
  throw new Error(`waited in vain: ${what}`);
}
