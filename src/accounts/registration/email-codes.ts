import type { Clock } from '../../platform/clock/clock.ts';
import type { Randomness } from '../../platform/clock/randomness.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { SecretBox } from '../../platform/secrets/secret-box.ts';
import { sameSecret } from '../../platform/secrets/tokens.ts';
import type { FlowStore } from '../storage/flow-store.ts';

/** Contract/accounts, Rules: E-mail code. */
const DIGITS = 6;
const LIFETIME_MS = 10 * 60_000;
const TRIES = 5;
/** The purpose is part of the key: a code for one thing is unknown to any other. */
const KIND = 'register_code';

export interface EmailCodes {
  /** The code for an address: the same one within its ten minutes, unless too many wrong ones were tried. */
  current(email: string): Promise<string>;
  /** Whether it is the code; counts the wrong ones. Does not use it up. */
  check(email: string, code: string): Promise<boolean>;
  /** Uses it up, for the one batch that is first. */
  take(email: string): Runnable;
  /** Uses it up if there is one. */
  remove(email: string): Runnable;
}

export interface EmailCodesOptions {
  readonly store: FlowStore;
  readonly secretBox: SecretBox;
  readonly clock: Pick<Clock, 'now'>;
  readonly randomness: Pick<Randomness, 'below'>;
}

export function createEmailCodes({ store, secretBox, clock, randomness }: EmailCodesOptions): EmailCodes {
  const context = (email: string) => `flow:${KIND}:${email}`;
  const read = (sealed: string, email: string) => Buffer.from(secretBox.open(sealed, context(email))).toString('utf8');

  return {
    async current(email) {
      const now = clock.now();
      const code = String(randomness.below(10 ** DIGITS)).padStart(DIGITS, '0');
      const fresh = {
        kind: KIND,
        key: email,
        user_id: '',
        email,
        data: secretBox.seal(code, context(email)),
        attempts: 0,
        created_at: now,
        expires_at: now + LIFETIME_MS,
      };
      const live = await store.putUnlessLive(fresh, TRIES);
      return read(live.data, email);
    },
    async check(email, code) {
      const flow = { kind: KIND, key: email };
      // The try is counted before it is made: a burst of guesses gets no more of them than one after another.
      const row = await store.reserveTry(flow, TRIES, clock.now());
      if (row === undefined || !sameSecret(plainCode(code), read(row.data, email))) return false;
      await store.returnTry(flow);
      return true;
    },
    take: (email) => store.take({ kind: KIND, key: email }, clock.now()),
    remove: (email) => store.removeOfEmail(email, [KIND]),
  };
}

/** Codes are copied by hand: blanks and full-width digits do not matter. */
function plainCode(text: string): string {
  return text.slice(0, 64).normalize('NFKC').replaceAll(/\s/g, '');
}
