import { setTimeout as pause } from 'node:timers/promises';
import { PATIENCE_MS, timeLimit } from './time.ts';

const PAUSE_MS = 5;

/**
 * Asks again and again until the answer is neither `false` nor `undefined`, and returns it. When nothing of the kind
 * comes, the test fails and says what it waited for; an error of the question ends it at once.
 */
export async function until<Answer>(
  what: string,
  ask: () => Answer | Promise<Answer>,
  patienceMs = PATIENCE_MS,
): Promise<Exclude<Answer, false | undefined>> {
  const start = performance.now();
  for (;;) {
    const answer = await ask();
    if (isAnswer(answer)) return answer;
    const waited = performance.now() - start;
    if (waited > timeLimit(patienceMs)) throw new Error(`waited ${Math.round(waited)} ms in vain: ${what}`);
    await pause(PAUSE_MS);
  }
}

function isAnswer<Answer>(answer: Answer): answer is Exclude<Answer, false | undefined> {
  return answer !== false && answer !== undefined;
}
