import { appendFileSync } from 'node:fs';
import fc from './properties.ts';

/** What the properties of one file came to. */
export interface CountedTries {
  readonly file: string;
  readonly tries: number;
  readonly longestMs: number;
}

/** For long runs: how often properties were tried, and the longest try, as a line in this file when the process ends. */
export function countTries(log: string): void {
  let tries = 0;
  let longestMs = 0;
  let began = 0;
  fc.installGlobalPlugin(
    fc.beforeEach(() => {
      began = performance.now();
    }),
  );
  fc.installGlobalPlugin(
    fc.afterEach(() => {
      tries += 1;
      longestMs = Math.max(longestMs, performance.now() - began);
    }),
  );
  process.on('exit', () => {
    const counted: CountedTries = { file: process.argv[1] ?? '', tries, longestMs };
    appendFileSync(log, `${JSON.stringify(counted)}\n`);
  });
}
