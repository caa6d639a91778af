import { setTimeout as pause } from 'node:timers/promises';

/** Asks again until the answer is no longer undefined; gives up after five seconds. */
export async function eventually<Answer>(ask: () => Answer | undefined): Promise<Answer> {
  for (let attempt = 0; attempt < 500; attempt += 1) {
    const answer = ask();
    if (answer !== undefined) return answer;
    await pause(10);
  }
  throw new Error('it never came');
}
