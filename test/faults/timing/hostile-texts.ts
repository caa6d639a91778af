import { checkNewPassword } from '../../../src/accounts/passwords/passwords.ts';
import { nameKey, normalizeEmail, normalizeName } from '../../../src/accounts/registration/new-user.ts';
import { bearerToken, type RequestHead } from '../../../src/platform/http/surface.ts';

const LONG = 60_000;

/** Texts that bring patterns with nested repetition to a standstill. */
const TEXTS: readonly string[] = [
  `${'a'.repeat(LONG)}!`,
  `${'a.'.repeat(LONG / 2)}@`,
  `${'a@'.repeat(LONG / 2)}`,
  `a@${'a-'.repeat(LONG / 2)}.`,
  `a@${'a.'.repeat(120)}`,
  `${'a'.repeat(63)}.${'a'.repeat(63)}@${'-'.repeat(100)}`,
  `a@${'xn--'.repeat(60)}.org`,
  `${' '.repeat(LONG)}x`,
  `bearer ${' '.repeat(LONG)}\t`,
  `${'\u0301'.repeat(LONG)}`,
  `a@b.c\r\nBcc:${'x'.repeat(200)}`,
  `${'ﷺ'.repeat(200)}@example.org`,
];

/** Everything that looks at a text before anybody is logged in. */
const READERS: Readonly<Record<string, (text: string) => unknown>> = {
  'e-mail address': normalizeEmail,
  name: normalizeName,
  'name at the login': (text) => nameKey(text.slice(0, 256)),
  password: (text) => {
    try {
      checkNewPassword(text, { name: 'Ann', email: 'ann@example.org' }, () => false);
    } catch {
      // Refused: how long that took is what counts.
    }
  },
  'authorization header': (text) => bearerToken({ headers: { authorization: text } } as unknown as RequestHead),
};

export interface SlowestReading {
  readonly reader: string;
  readonly text: string;
  readonly ms: number;
}

const TRIES = 5;

/** The reading that takes longest, by the best of a few tries. */
export function timeHostileTexts(): SlowestReading {
  const readings = Object.entries(READERS).flatMap(([reader, read]) =>
    TEXTS.map((text) => ({ reader, text: JSON.stringify(text.slice(0, 12)), ms: bestOf(() => read(text)) })),
  );
  return readings.reduce((slowest, reading) => (reading.ms > slowest.ms ? reading : slowest));
}

function bestOf(work: () => unknown): number {
  const times = Array.from({ length: TRIES }, () => {
    const started = performance.now();
    work();
    return performance.now() - started;
  });
  return Math.min(...times);
}
