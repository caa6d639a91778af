import { setTimeout as pause } from 'node:timers/promises';

const SHOWN_CHARACTERS = 1000;

let chapters = 0;

/** A step of the story begins. */
export function chapter(title: string): void {
  chapters += 1;
  console.log(`\n${chapters}. ${title}`);
}

export function chapterCount(): number {
  return chapters;
}

export function say(line: string): void {
  console.log(`   ${line}`);
}

/** Something that must be so for the story to go on. What was seen instead stands in the error. */
export function expect(holds: boolean, claim: string, seen: unknown): asserts holds {
  if (!holds) {
    const instead = JSON.stringify(seen).slice(0, SHOWN_CHARACTERS);
    throw new Error(`in step ${chapters} it does not hold that ${claim}: ${instead}`);
  }
  say(`ok  ${claim}`);
}

/** Looks again and again until there is something to see. */
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
