import type { Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { byAddress } from '../limiter/limiter.ts';
import { accountExistsMail, registrationCodeMail } from '../mail/messages.ts';
import { checkNewPassword } from '../passwords/password-rules.ts';
import type { AccountsSettings } from '../settings.ts';
import type { FoundUser } from '../storage/accounts-schema.ts';
import { requireEmail } from './email-address.ts';
import { createEmailCodes } from './email-codes.ts';
import { normalizeName } from './identity-names.ts';
import { newUserRow } from './new-user.ts';
import { trialOf } from './trial.ts';

export interface Application {
  readonly name?: string | undefined;
  readonly email?: string | undefined;
  readonly password?: string | undefined;
  readonly code?: string | undefined;
  readonly verificationToken?: string | undefined;
}

export interface Registration {
  /** Mails a code; to someone who is registered, a notice instead. */
  sendCode(email: string, head: RequestHead): Promise<void>;
  /** A token that stands for a right code. */
  verify(email: string, code: string, head: RequestHead): Promise<{ token: string; expiresAt: number }>;
  register(application: Application, head: RequestHead): Promise<FoundUser>;
}

type Parts = Pick<
  AccountsCore,
  | 'database'
  | 'users'
  | 'subscriptions'
  | 'blacklist'
  | 'flows'
  | 'flowStore'
  | 'audit'
  | 'mail'
  | 'limiter'
  | 'passwords'
  | 'settings'
  | 'secretBox'
  | 'clock'
  | 'randomness'
  | 'makeId'
>;

/** Contract/accounts: register/send, register/verify, register. */
export function createRegistration(parts: Parts): Registration {
  const { database, users, flows, flowStore, audit, mail, clock, makeId, randomness, limiter } = parts;
  const codes = createEmailCodes({ store: flowStore, secretBox: parts.secretBox, clock, randomness });

  async function refuseCode(head: RequestHead): Promise<never> {
    const failed = audit.statement({ event: 'register.code_failed', head });
    await database.write([limiter.count(byAddress('address_failures', head)), failed]);
    throw new AppError('INVALID_CODE');
  }

  /** What proves that the address is theirs, as the statements that use it up. */
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
      // Made for everyone, so that the same is done whether or not the address is known.
      const code = await codes.current(email);
      if (user !== undefined) await mail.send(accountExistsMail(email));
      else if (!blocked) await mail.send(registrationCodeMail(email, code));
    },
    async verify(given, code, head) {
      const email = requireEmail(given);
      refuseUnlessOpen(email, parts.settings());
      await limiter.refuseWhileLocked(byAddress('address_failures', head));
      if (!(await codes.check(email, code))) return refuseCode(head);
      const { token, expiresAt, statement } = flows.issue('verification', { email });
      await database.write([statement]);
      return { token, expiresAt };
    },
    async register(given, head) {
      refuseUnlessOpen(undefined, parts.settings());
      const name = normalizeName(given.name ?? '');
      if (name === undefined) throw new AppError('NAME_REQUIRED');
      if (!given.email || !given.password) throw new AppError('MISSING_CREDENTIALS', { fields: 'email and password' });
      const email = requireEmail(given.email);
      refuseUnlessOpen(email, parts.settings());
      checkNewPassword(given.password, { name, email });
      const proof = await useProof(email, given, head);
      if (await parts.blacklist.has(email)) throw new AppError('FORBIDDEN');
      const passwordHash = await parts.passwords.hash(given.password);
      const now = clock.now();
      const user = newUserRow(
        { name, email, emailVerified: proof.length > 0, confirmed: true, passwordHash, role: 'user', now },
        makeId,
        randomness,
      );
      const trial = trialOf(user.id, parts.settings().trial_days, now, makeId);
      const registered = audit.statement({ event: 'register', actor: user.id, subject: user.id, head });
      const rows = [...users.add(user), ...trial.map(parts.subscriptions.add), registered];
      try {
        await database.write([...proof, ...rows]);
      } catch (error) {
        throw explain(error);
      }
      return user;
    },
  };
}

/**
 * Throws unless anyone with that address may create an account, now that no invitation was given. Without an address it
 * is only asked whether anyone may.
 */
export function refuseUnlessOpen(
  email: string | undefined,
  { registration, allowed_domains: domains }: Pick<AccountsSettings, 'registration' | 'allowed_domains'>,
): void {
  if (registration === 'closed') throw new AppError('REGISTRATION_CLOSED');
  if (registration === 'invite') throw new AppError('INVITATION_REQUIRED');
  if (email === undefined || domains.length === 0) return;
  const domain = email.slice(email.lastIndexOf('@') + 1);
  if (!domains.some((allowed) => allowed.toLowerCase() === domain))
    throw new AppError('DOMAIN_NOT_ALLOWED', { domain });
}

/** Nothing was stored, and the code is still good: someone else has the name, or was quicker with the same code. */
function explain(error: unknown): unknown {
  if (!(error instanceof AppError)) return error;
  if (error.code === 'STORAGE_CONFLICT') return new AppError('INVALID_CODE');
  if (error.code !== 'STORAGE_DUPLICATE') return error;
  const columns = Array.isArray(error.details.columns) ? error.details.columns : [];
  return new AppError(columns.includes('email') ? 'EMAIL_ALREADY_EXISTS' : 'NAME_ALREADY_EXISTS');
}
