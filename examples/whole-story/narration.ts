import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';

const SHOWN_CHARACTERS = 1000;

let chapters = 0;

/** Begins a step of the story. */
export function chapter(title: string): void {
  chapters += 1;
  console.log(`\n${chapters}. ${title}`);
}

export function say(line: string): void {
  console.log(`   ${line}`);
}

/** Checks a condition, and ends the story with what was seen if it does not hold. */
export function expect(holds: boolean, claim: string, seen: unknown): asserts holds {
  if (!holds) {
    const instead = JSON.stringify(seen).slice(0, SHOWN_CHARACTERS);
    throw new Error(`in step ${chapters} it does not hold that ${claim}: ${instead}`);
  }
  say(`ok  ${claim}`);
}

/** Calls `look` until it returns something. */
export async function until<Seen>(
  what: string,
  limitMs: number,
  look: () => Seen | undefined | Promise<Seen | undefined>,
): Promise<Seen> {
  const deadline = performance.now() + limitMs;
  for (;;) {
    const seen = await look();
    if (seen !== undefined) return seen;
    if (performance.now() > deadline) throw new Error(`in step ${chapters}, not within ${limitMs / 1000} s: ${what}`);
    await pause(25);
  }
}

/** Runs a story to its end, or to the step that does not hold, cleans up, and ends the process. */
export async function perform(
  cleanUps: (() => unknown)[],
  tell: () => Promise<void>,
  end: (steps: number, seconds: string) => string,
): Promise<never> {
  const began = performance.now();
  const interrupted = Promise.race(['SIGINT', 'SIGTERM'].map((name) => once(process, name).then(() => name)));
  try {
    const broken = interrupted.then((signal) => Promise.reject(new Error(`interrupted by ${signal}`)));
    await Promise.race([tell(), broken]);
    console.log(`\n${end(chapters, ((performance.now() - began) / 1000).toFixed(1))}`);
  } catch (error) {
    process.exitCode = 1;
    console.error(`\nIt does not hold: ${error instanceof Error ? error.message : error}`);
  } finally {
    for (const cleanUp of cleanUps.reverse()) await cleanUp();
  }
  // Interrupted steps may still wait for their own timeout.
  process.exit();
}
