import type { FakeClock } from '../../kit/fake-clock.ts';
import { until } from '../../kit/until.ts';

const TRIES = 5;
/** After each step of the clock but the last. Then it waits as patiently as any test: the machine may have much to do. */
const SOON_MS = 400;
const LATER_MS = 4_000;

/** Lets time pass until something has happened by itself, which is tried again after a while when it has failed. */
export async function passUntil(
  clock: FakeClock,
  ms: number,
  what: string,
  isDone: () => Promise<boolean>,
): Promise<void> {
  if (await isDone()) return;
  for (let tries = 1; tries < TRIES; tries += 1) {
    await clock.advance(ms);
    if (await until(what, isDone, SOON_MS).catch(() => false)) return;
  }
  // A round that was under way has joined what each of these steps began.
  for (let tries = 1; tries < TRIES; tries += 1) {
    await clock.advance(ms);
    if (await until(what, isDone, LATER_MS).catch(() => false)) return;
  }
  await clock.advance(ms);
  await until(what, isDone);
}
