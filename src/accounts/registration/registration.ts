import type { Clock } from '../../platform/clock/clock.ts';
import type { Randomness } from '../../platform/clock/randomness.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Call, RequestHead } from '../../platform/http/surface.ts';
import type { SecretBox } from '../../platform/secrets/secret-keys.ts';
import { sameSecret } from '../../platform/secrets/tokens.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { User } from '../contract/conventions.ts';
import type { Application } from '../contract/registration.ts';
import { cookieText, readCookie, VERIFICATION_COOKIE } from '../cookies.ts';
import { byAddress } from '../limiter/limiter.ts';
import { accountExistsMail, registrationCodeMail } from '../mail/messages.ts';
import type { AccountsSettings } from '../settings.ts';
import type { FlowStore } from '../storage/expiring-stores.ts';
import { createPersonCreation, normalizeName, requireEmail } from './new-user.ts';

interface Registration {
  /** Mails a code, or a notice if the address is registered. */
  sendCode(email: string, head: RequestHead): Promise<{ message: string }>;
  /** Returns a token that replaces the correct code. */
  verify(
    given: { readonly email: string; readonly code: string },
    call: Pick<Call, 'head' | 'reply'>,
  ): Promise<Verified>;
  register(application: Application, call: Pick<Call, 'head' | 'reply'>): Promise<{ message: string; user: User }>;
}

interface Verified {
  readonly message: string;
  readonly verified: true;
  readonly verificationToken: string;
}

type Parts = AccountsCore;

/** Sends a code to an address, checks it, and creates the user. */
export function createRegistration(parts: Parts): Registration {
  const { database, users, flows, flowStore, audit, mail, clock, randomness, limiter } = parts;
  const createPerson = createPersonCreation(parts);
  const codes = createEmailCodes({
    kind: 'register_code',
    store: flowStore,
    secretBox: parts.secretBox,
    clock,
    randomness,
  });

  async function refuseCode(head: RequestHead): Promise<never> {
    const failed = audit.statement({ event: 'register.code_failed', head });
    await database.write([limiter.count(byAddress('address_failures', head)), failed]);
    throw new AppError('INVALID_CODE');
  }

  const setCookie = ({ head, reply }: Pick<Call, 'head' | 'reply'>, value: string, maxAgeSeconds: number): void => {
    const options = { secure: parts.cookiesAreSecure(head), maxAgeSeconds };
    reply.header('set-cookie', cookieText(VERIFICATION_COOKIE, value, options));
  };

  /** Checks the proof that the address is the applicant's, and returns the statements that use it up. */
  async function useProof(email: string, given: Application, head: RequestHead): Promise<readonly Runnable[]> {
    const { code = '', verificationToken: token = '' } = given;
    if (!parts.settings().require_verification) return [];
    if (code === '' && token === '') throw new AppError('VERIFICATION_REQUIRED');
    await limiter.refuseWhileLocked(byAddress('address_failures', head));
    if (code !== '') {
      if (!(await codes.check(email, code))) return refuseCode(head);
      return [codes.take(email), flowStore.removeOfEmail(email, ['verification'])];
    }
    const flow = await flows.open('verification', token);
    if (flow?.email !== email) return refuseCode(head);
    return [flows.take('verification', token), codes.remove(email)];
  }

  return {
    async sendCode(given, head) {
      const email = requireEmail(given);
      refuseUnlessOpen(email, parts.settings());
      await limiter.takeMail({ email, address: head.address });
      const [user, blocked] = await Promise.all([users.byEmail(email), parts.blacklist.has(email)]);
      // Created for every address, so that known and unknown addresses cause the same work.
      const code = await codes.current(email);
      if (user !== undefined) await mail.send(accountExistsMail(email));
      else if (!blocked) await mail.send(registrationCodeMail(email, code));
      return { message: 'verification_sent' };
    },
    async verify({ email: given, code }, call) {
      const { head } = call;
      const email = requireEmail(given);
      refuseUnlessOpen(email, parts.settings());
      await limiter.refuseWhileLocked(byAddress('address_failures', head));
      if (!(await codes.check(email, code))) return refuseCode(head);
      const { token, expiresAt, statement } = flows.issue('verification', { email });
      await database.write([statement]);
      setCookie(call, token, Math.floor((expiresAt - clock.now()) / 1000));
      return { message: 'verified', verified: true, verificationToken: token };
    },
    async register(given, call) {
      const { head } = call;
      refuseUnlessOpen(undefined, parts.settings());
      const name = given.name ?? '';
      if (normalizeName(name) === undefined) throw new AppError('NAME_REQUIRED');
      if (!given.email || !given.password) throw new AppError('MISSING_CREDENTIALS', { fields: 'email and password' });
      const email = requireEmail(given.email);
      refuseUnlessOpen(email, parts.settings());
      const verificationToken = given.verificationToken ?? readCookie(head, VERIFICATION_COOKIE);
      const { user } = await createPerson({
        how: 'registration',
        name,
        email,
        emailVerified: parts.settings().require_verification,
        password: given.password,
        role: 'user',
        head,
        async proof() {
          const statements = await useProof(email, { ...given, verificationToken }, head);
          if (await parts.blacklist.has(email)) throw new AppError('FORBIDDEN');
          return statements;
        },
        // Nothing was stored: another request has used the code up.
        conflict: 'INVALID_CODE',
      });
      setCookie(call, '', 0);
      return { message: 'registered', user: await parts.userObjects.describe(user) };
    },
  };
}

/**
 * Throws unless a person with that address may create an account without an invitation. Without an address, it checks
 * only the mode of registration.
 */
export function refuseUnlessOpen(
  email: string | undefined,
  { registration, allowed_domains: domains }: Pick<AccountsSettings, 'registration' | 'allowed_domains'>,
): void {
  if (registration === 'closed') throw new AppError('REGISTRATION_CLOSED');
  if (registration === 'invite') throw new AppError('INVITATION_REQUIRED');
  if (email !== undefined) requireAllowedDomain(email, domains);
}

/** Throws DOMAIN_NOT_ALLOWED unless the domain of an address is listed, or none is. */
export function requireAllowedDomain(email: string, domains: readonly string[]): void {
  const domain = email.slice(email.lastIndexOf('@') + 1);
  if (domains.length === 0 || domains.some((allowed) => allowed.toLowerCase() === domain)) return;
  throw new AppError('DOMAIN_NOT_ALLOWED', { domain });
}

const CODE_DIGITS = 6;
const CODE_LIFETIME_MS = 10 * 60_000;
const CODE_TRIES = 5;

/** Codes that prove an address, for one purpose each. `userId` is the user who requested the code. */
interface EmailCodes {
  /** The code for an address: the same one within its ten minutes, unless too many wrong ones were tried. */
  current(email: string, userId?: string): Promise<string>;
  /** Whether it is the code; counts the wrong ones. Does not use it up. */
  check(email: string, code: string, userId?: string): Promise<boolean>;
  /** Uses it up, for the one batch that is first. */
  take(email: string, userId?: string): Runnable;
  /** Uses it up if there is one. */
  remove(email: string): Runnable;
}

interface EmailCodesOptions {
  readonly kind: 'register_code' | 'email_code';
  readonly store: FlowStore;
  readonly secretBox: SecretBox;
  readonly clock: Pick<Clock, 'now'>;
  readonly randomness: Pick<Randomness, 'below'>;
}

export function createEmailCodes({ kind, store, secretBox, clock, randomness }: EmailCodesOptions): EmailCodes {
  const keyOf = (email: string, userId: string) => (userId === '' ? email : `${userId} ${email}`);
  const context = (key: string) => `flow:${kind}:${key}`;
  const read = (sealed: string, key: string) => Buffer.from(secretBox.open(sealed, context(key))).toString('utf8');

  return {
    async current(email, userId = '') {
      const now = clock.now();
      const code = String(randomness.below(10 ** CODE_DIGITS)).padStart(CODE_DIGITS, '0');
      const key = keyOf(email, userId);
      const fresh = {
        kind,
        key,
        user_id: userId,
        email,
        data: secretBox.seal(code, context(key)),
        attempts: 0,
        created_at: now,
        expires_at: now + CODE_LIFETIME_MS,
      };
      const live = await store.putUnlessLive(fresh, CODE_TRIES);
      return read(live.data, key);
    },
    async check(email, code, userId = '') {
      const flow = { kind, key: keyOf(email, userId) };
      // Counts the try before the comparison, so that parallel guesses get no more tries than sequential ones.
      const row = await store.reserveTry(flow, CODE_TRIES, clock.now());
      if (row === undefined || !sameSecret(plainCode(code), read(row.data, flow.key))) return false;
      await store.returnTry(flow);
      return true;
    },
    take: (email, userId = '') => store.take({ kind, key: keyOf(email, userId) }, clock.now()),
    remove: (email) => store.removeOfEmail(email, [kind]),
  };
}

/** Removes spaces and normalizes full-width digits, because people copy codes by hand. */
function plainCode(text: string): string {
  return text.slice(0, 64).normalize('NFKC').replaceAll(/\s/g, '');
}
